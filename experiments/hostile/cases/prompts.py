"""Prompts, typed and in files."""

from experiments.hostile.case import accepted, case, refused
from experiments.hostile.steps import fifo

# fmt: off

CASES = [
    case(
        "a letter that the vocabulary lacks", "generate --workdir=characters 'the Ж'",
        accepted("Ж", "vocabulary|unknown|<unk>"),
    ),
    case(
        "a word that the vocabulary lacks", "generate --workdir=masking 'the zebra <mask> on'",
        accepted("zebra", "vocabulary|unknown|<unk>"),
    ),
    case(
        "a word that the six lack", "generate --workdir=six 'where is the zebra'",
        accepted("zebra", "vocabulary|unknown|<unk>"),
    ),
    case("capitals where training had none", "probe --workdir=primer THEKINGS", accepted("K", "vocabulary lacks")),
    case("an answer of two lines", "generate --workdir=characters 'a\nb' 'c'", accepted("\\n", lines=2)),
    case("control characters in a prompt", "generate --workdir=characters 'the \x1b[31m\x07'", accepted("\\x1b")),
    case("a prompt of half a character", "generate --workdir=characters '\udcff'", refused("\\udcff")),
    case("a prompt shorter than the model's sight", "generate --workdir=primer 'the'", refused("prompt 1")),
    case(
        "a temperature for outputs that are no logits", "generate --workdir=primer --temperature=0.8 'the cat sat on'",
        refused("temperature"),
    ),
    case(
        "a second text longer than the positions: characters", f"probe --workdir=characters the {'the' + 'cat' * 20}",
        refused("16"),
    ),
    case(
        "a second text longer than the positions: reversal", f"probe --workdir=reversal '1 2' '{'1 2 ' * 20}'",
        refused("11"),
    ),
    case(
        "a second text longer than the positions: pairs", f"probe --workdir=pairs 'I see' '{'le chat ' * 40}'",
        refused("40"),
    ),
    case(
        "a second text longer than the positions: series", f"probe --workdir=series '1 2' '{'1 2 ' * 20}'",
        refused("8"),
    ),
    case(
        "a second text longer than the positions: primer", f"probe --workdir=primer the {'the' + 'cat' * 20}",
        refused("9"),
    ),
    case("a second text with a number beyond the base", "probe --workdir=series '1 2' '7'", refused("'7'")),
    case("a second text without numbers: series", "probe --workdir=series '1 2' x", refused("'x'")),
    case("a second text without numbers: reversal", "probe --workdir=reversal '1 2' x", refused("'x'")),
    case(
        "a second text for a model that fills in blanks", "probe --workdir=masking 'the <mask> sat' 'cat'",
        refused("a second text"),
    ),
    case(
        "a prompt that just fits: probe", "probe --workdir=primer 'the cat '", accepted("positions|residual|weights"),
    ),
    case("full-width digits", "generate --workdir=reversal '３ １'", accepted(lines=1)),
    case("Arabic digits", "generate --workdir=series '١ ٢'", accepted(lines=1)),
    case("a superscript for a number", "generate --workdir=reversal '²'", refused("²")),
    case("a number of 5,000 digits", f"generate --workdir=reversal {'1' * 5000}", refused("prompt 1")),
    case("leading zeros", "generate --workdir=reversal '01 2'", accepted(lines=1)),
    case("a signed number", "generate --workdir=reversal '+1'", refused("'+1'")),
    case("a negative number", "generate --workdir=reversal -- '-1'", refused("'-1'")),
    case("the end token as a symbol", "generate --workdir=reversal '0 1'", refused("'0'")),
    case("a symbol too many", "generate --workdir=reversal '1 4'", refused("prompt 1", "'4'")),
    case("commas between", "generate --workdir=reversal '1,2'", refused("'1,2'")),
    case("tabs between", "generate --workdir=reversal '1\t2'", accepted(lines=1)),
    case("a prompt too long", f"generate --workdir=reversal '{'1 ' * 20}'", refused("prompt 1", "11")),
    case("an empty prompt: reversal", "generate --workdir=reversal ''", accepted(lines=1)),
    case("a prompt of white space: series", "generate --workdir=series '   '", refused("prompt 1")),
    case(
        "an empty line among sentences", "generate --workdir=pairs", accepted(lines=3),
        stdin=b"I see the cat.\n\nI see\n",
    ),
    case(
        "a line of white space among sentences", "generate --workdir=pairs", accepted(lines=3),
        stdin=b"I see the cat.\n \t \nI see\n",
    ),
    case("no blank to fill in", "generate --workdir=masking 'the cat'", refused("prompt 1", "<mask>")),
    case("a sentence too long", f"generate --workdir=pairs '{'the cat ' * 60}'", refused("prompt 1", "40")),
    case("a run without prompts", "generate --workdir=map 1", refused("boolean_map")),
    case("no prompt", "generate --workdir=reversal", refused("no prompt")),
    case(
        "prompts that are not UTF-8", "generate --workdir=reversal", refused("standard input:2", "UTF-8"),
        stdin=b"1 2\n\xff\n",
    ),
    case("prompts with NUL", "generate --workdir=reversal", refused("prompt 1", "\\x00"), stdin=b"1 \x00\n"),
    case(
        "prompts with a byte order mark", "generate --workdir=reversal", accepted(lines=1), stdin=b"\xef\xbb\xbf1 2\n",
    ),
    case(
        "prompts with the line ends of DOS", "generate --workdir=pairs", accepted(lines=2),
        stdin=b"I see the cat.\r\nI see\r\n",
    ),
    case("a line of 2 MB", "generate --workdir=pairs", refused("standard input:1"), stdin=b"the cat " * 250_000),
    case("a folder of prompts", "generate --workdir=reversal --input=parallel", refused("--input: parallel")),
    case(
        "prompts from a pipe that nobody writes", "generate --workdir=reversal --input=pipe", refused("--input: pipe"),
        fifo("pipe"),
    ),
    case("prompts without end", "generate --workdir=reversal --input=/dev/zero", refused("--input: /dev/zero")),
]
