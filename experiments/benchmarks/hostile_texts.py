"""Hostile texts: tokenizers, prompts, texts and pairs of sentences."""

from typing import Any

from hostile_box import (
    BINARY,
    DEEP,
    LONG,
    TRAIN_PAIRS,
    TRAIN_TEXT,
    accepted,
    alter,
    append,
    borrow,
    case,
    change,
    fifo,
    folder,
    link,
    listening,
    mode,
    refused,
    remove,
    tab_separated,
    write,
)

# fmt: off


# --- Tokenizers ------------------------------------------------------------------------------------------------------

TOKENIZER = "characters/tokenizer.json"


def swapped_ids(record: Any) -> Any:
    words = record["model"]["vocab"]
    words["e"], words["t"] = words["t"], words["e"]
    return record


def vocabulary(changes: dict[str, Any]) -> Any:
    return lambda record: {**record, "model": {**record["model"], "vocab": {**record["model"]["vocab"], **changes}}}


def merges_reversed(record: Any) -> Any:
    return {**record, "model": {**record["model"], "merges": record["model"]["merges"][::-1]}}


ADDED = {
    "id": 99,
    "content": "xx",
    "special": False,
    "single_word": False,
    "lstrip": False,
    "rstrip": False,
    "normalized": True,
}
CUT_AT_3 = {"max_length": 3, "strategy": "LongestFirst", "stride": 0, "direction": "Right"}
PADDED = {
    "strategy": {"Fixed": 8},
    "direction": "Right",
    "pad_to_multiple_of": None,
    "pad_id": 1,
    "pad_type_id": 0,
    "pad_token": "<pad>",
}

TOKENIZERS = [
    *(
        case(f"tokenizer.json: {what}", "generate --workdir=characters 'the cat'", refused("tokenizer.json"), step)
        for what, step in {
            "two ids swapped": alter(TOKENIZER, swapped_ids),
            "an id beyond the vocabulary": alter(TOKENIZER, vocabulary({"e": 999})),
            "an id twice": alter(TOKENIZER, vocabulary({"e": 7, "t": 7})),
            "a negative id": alter(TOKENIZER, vocabulary({"e": -1})),
            "an added token": change(TOKENIZER, "added_tokens", [ADDED]),
            "truncation": change(TOKENIZER, "truncation", CUT_AT_3),
            "padding": change(TOKENIZER, "padding", PADDED),
            "a normalizer": change(TOKENIZER, "normalizer", {"type": "Lowercase"}),
            "another pre-tokenizer": change(TOKENIZER, "pre_tokenizer", {"type": "WhitespaceSplit"}),
            "no decoder": change(TOKENIZER, "decoder", None),
            "another unknown token": change(TOKENIZER, "model/unk_token", "e"),
            "an empty vocabulary": change(TOKENIZER, "model/vocab", {}),
            "of another run": borrow("masking/tokenizer.json", TOKENIZER),
            "empty": write(TOKENIZER, ""),
            "an empty object": write(TOKENIZER, "{}"),
            "null": write(TOKENIZER, "null"),
            "binary": write(TOKENIZER, BINARY),
            "deep": write(TOKENIZER, DEEP),
            "a folder": folder(TOKENIZER),
            "a pipe": fifo(TOKENIZER),
            "missing": remove(TOKENIZER),
        }.items()
    ),
    case(
        "tokenizer.json: two ids swapped, train", "train @characters --workdir=halfway", refused("tokenizer.json"),
        alter("halfway/tokenizer.json", swapped_ids),
    ),
    case(
        "tokenizer.json: merges in another order", "evaluate --workdir=pairs", refused("tokenizer.json"),
        alter("pairs/tokenizer.json", merges_reversed),
    ),
    case(
        "tokenizer.json: merges of nothing", "evaluate --workdir=pairs", refused("tokenizer.json"),
        change("pairs/tokenizer.json", "model/merges", [["q", "zzz"]]),
    ),
]


# --- Prompts ---------------------------------------------------------------------------------------------------------

PROMPTS = [
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


# --- Texts and pairs -------------------------------------------------------------------------------------------------

TRAIN_PARALLEL = "train @parallel --workdir=new"
GERMAN = [("Ich sehe", "I see"), ("Du willst", "You want"), ("Ein Hund", "A dog"), ("Brot", "Bread"), ("Wein", "Wine")]
CORRUPT = b"I see\tJe vois\nYou want\tTu v\xffux\nA\tUn\nB\tDeux\n"
BAD_PAIRS: list[tuple[Any, ...]] = [
    ("one column", "I see\n" * 9, ":1", "1 column"),
    ("four columns", "a\tb\tc\td\n" * 9, ":1", "4 columns"),
    ("commas for tabs", "I see,Je vois\n" * 9, ":1", "1 column"),
    ("an empty source", "a\tb\n\tc\nd\te\n", ":2", "source"),
    ("a target of white space", "a\tb\nc\t \nd\te\n", ":2", "target"),
    ("not UTF-8", CORRUPT, ":2", "0xff"),
    ("empty", ""),
    ("UTF-16", "a\tb\n".encode("utf-16") * 9),
]

TEXTS = [
    *(
        case(f"a text: {what}", TRAIN_TEXT, refused("text.txt"), step)
        for what, step in {
            "missing": remove("text.txt"),
            "a folder": folder("text.txt"),
            "empty": write("text.txt", ""),
            "a pipe": fifo("text.txt"),
            "a socket": listening("text.txt"),
            "a loop of links": link("text.txt", "text.txt"),
            "/dev/zero by a link": link("text.txt", "/dev/zero"),
            "/dev/null by a link": link("text.txt", "/dev/null"),
            "binary": write("text.txt", BINARY * 9),
            "UTF-16": write("text.txt", ("the cat\n" * 99).encode("utf-16")),
            "latin-1": write("text.txt", ("déjà vu\n" * 99).encode("latin-1")),
            "halves of characters": write("text.txt", "the \ud800 cat\n" * 99),
            "NUL bytes": write("text.txt", "the cat\n" * 99 + "\0" * 50 + "the cat\n" * 99),
            "too short": write("text.txt", "the cat"),
        }.items()
    ),
    case(
        "a text that may not be read", TRAIN_TEXT, refused("text.txt", "ermission"), mode("text.txt", 0),
        unprivileged=True,
    ),
    case(
        "a text with a byte order mark", TRAIN_TEXT, accepted("training_tokens"),
        write("text.txt", "\ufeff" + "the cat\n" * 99),
    ),
    case(
        "a text with the line ends of DOS", TRAIN_TEXT, accepted("training_tokens"),
        write("text.txt", "the cat\r\n" * 99),
    ),
    case(
        "a text of one line of 10 MB, in words", f"{TRAIN_TEXT} --config.data.tokenizer=word",
        accepted("training_tokens"), write("text.txt", "the cat sat " * 870_000),
    ),
    case(
        "a text of one word of 1 MB, in subwords",
        f"{TRAIN_TEXT} --config.data.tokenizer=bpe --config.data.vocab_size=300", accepted("training_tokens"),
        write("text.txt", "thecatsatonabed" * 70_000),
    ),
    case(
        "a text of white space, in words", f"{TRAIN_TEXT} --config.data.tokenizer=word", refused("text.txt"),
        write("text.txt", " \n" * 500),
    ),
    case(
        "a text whose validation part is too short", f"{TRAIN_TEXT} --config.data.validation=0.001",
        refused("text.txt", "validation"),
    ),
    case(
        "a text whose name has a line end", "train @characters --workdir=new --config.data.path='a\nb.txt'",
        refused("a\\nb.txt"),
    ),
    case(
        "a text whose name is too long", f"train @characters --workdir=new --config.data.path={LONG}",
        refused("too long"),
    ),
    case(
        "a vocabulary that leaves most letters out", f"{TRAIN_TEXT} --config.data.vocab_size=8",
        accepted("unknown_share"),
    ),
]

SWAPPED = write("pairs.tsv", tab_separated(GERMAN * 4))
DOCUMENTS = f"{TRAIN_TEXT} --config.data.path=parallel --config.data.validation=0.2 --config.data.format=files"
# Its words are all of the text's, or not; nothing stands for the others.
WORDS = (
    '{"version": "1.0", "added_tokens": [{"id": 0, "content": "</s>", "special": true, "single_word": false,'
    ' "lstrip": false, "rstrip": false, "normalized": false}], "pre_tokenizer": {"type": "WhitespaceSplit"},'
    ' "model": {"type": "WordLevel", "vocab": {"</s>": 0, "the": 1, "cat": 2}, "unk_token": "<unk>"}}'
)
TEXTS += [
    case("a separator that stands in no file", f"{DOCUMENTS} --config.data.separator='\\n\\n'", refused("separator")),
    case("a separator of half a character", f"{DOCUMENTS} --config.data.separator='\udcff'", refused("data.separator")),
    case(
        "documents of which one cannot be read", DOCUMENTS, refused("parallel/x: it cannot be read"),
        link("parallel/x", "/proc/self/mem"),
    ),
    case(
        "a name of prepared tokens that is too long", f"{DOCUMENTS} --config.data.prepared={LONG}",
        refused("data.prepared", "too long"),
    ),
    case(
        "words that a tokenizer file lacks", f"{TRAIN_TEXT} --config.data.tokenizer=words.json",
        refused("data.tokenizer", "no token for"), write("words.json", WORDS),
    ),
    case(
        "a tokenizer file whose end is not special", f"{TRAIN_TEXT} --config.data.tokenizer=words.json",
        refused("no special token"), write("words.json", WORDS.replace('"special": true', '"special": false')),
    ),
]

PAIRS = [
    case(
        "German TAB English, read as English TAB French", f"{TRAIN_PAIRS} --config.data.source=de",
        refused("data.source", "en, fr"), SWAPPED,
    ),
    case(
        "German TAB English, into English",
        f"{TRAIN_PAIRS} --config.data.columns=de,en --config.data.source=de --config.data.target=en",
        accepted("expected: I see|expected: You want|expected: A dog|expected: Bread|expected: Wine"), SWAPPED,
    ),
    case(
        "a split tested on what it trains on", f"{TRAIN_PARALLEL} --config.data.test=train",
        refused("data.test", "train"),
    ),
    case(
        "a test file that repeats the training's", TRAIN_PARALLEL,
        accepted("of the 16 test sentences are in the training part"), borrow("parallel/train.en", "parallel/test.en"),
        borrow("parallel/train.fr", "parallel/test.fr"),
    ),
    case("both sides the same language's", TRAIN_PARALLEL + " --config.data.target=en", refused("data.target")),
    case("a suffix that no file has", TRAIN_PARALLEL + " --config.data.target=ger", refused("train.ger")),
    case(
        "a side with a line less", TRAIN_PARALLEL, refused("train.", "no such line"),
        write("parallel/train.fr", "Je vois\n"),
    ),
    case("a side with a line more, empty", TRAIN_PARALLEL, refused("val.en"), append("parallel/val.en", "\n")),
    case("a side missing", TRAIN_PARALLEL, refused("val.fr"), remove("parallel/val.fr")),
    case("a file for the folder", TRAIN_PARALLEL + " --config.data.path=pairs.tsv", refused("data.path", "pairs.tsv")),
    case("a folder for the file", TRAIN_PAIRS + " --config.data.path=parallel", refused("data.path", "parallel")),
    *(
        case(f"pairs: {what}", TRAIN_PAIRS, refused("pairs.tsv", *parts), write("pairs.tsv", content))
        for what, content, *parts in BAD_PAIRS
    ),
    case("pairs: two lines", TRAIN_PAIRS, refused("3"), write("pairs.tsv", "a\tb\nc\td\n")),
    case(
        "pairs: one source alone", TRAIN_PAIRS, refused("3"),
        write("pairs.tsv", "".join(f"a\tb{i}\n" for i in range(9))),
    ),
    case(
        "pairs: a sentence too long", f"{TRAIN_PAIRS} --config.data.max_length=4",
        refused("pairs.tsv:1", "data.max_length"),
    ),
    case(
        "pairs: all sentences too long, skipped",
        f"{TRAIN_PAIRS} --config.data.max_length=2 --config.data.on_error=skip", refused("data.max_length"),
    ),
    case(
        "pairs: bad lines skipped and counted", f"{TRAIN_PAIRS} --config.data.on_error=skip", accepted("skipped 2"),
        append("pairs.tsv", "one\n\ttwo\n"),
    ),
    case(
        "a data set that is none",
        "train @parallel --workdir=new --config.data.name=tfds --config.data.path=ted_hrlr_translat/pt_to_en",
        refused("data.path", "ted_hrlr_translat", "did you mean"), seconds=60,
    ),
    case(
        "the phrase book's languages swapped",
        "train --config=configs/translation.py --workdir=new --config.data.source=fr --config.data.target=en",
        refused("data."),
    ),
    case(
        "a key that the corpus does not read", "train @six --workdir=new --config.data.path=pairs.tsv",
        refused("data.path", "six"),
    ),
    case(
        "prepared pairs damaged", TRAIN_PAIRS, refused("prepared"), lambda box: spoil_prepared(box),
        env={"TFDS_DATA_DIR": "prepared"},
    ),
]


def spoil_prepared(box: Any) -> None:
    """Copies the pairs that TFDS has prepared, and halves the copied files."""
    import shutil

    shutil.copytree(box.parents[2] / "tensorflow_datasets", box / "prepared")
    for path in (box / "prepared").rglob("*array_record*"):
        if path.is_file():
            path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
