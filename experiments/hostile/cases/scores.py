"""Scores and answers of a finished run."""

from experiments.hostile.case import accepted, case, refused
from experiments.hostile.fixtures import EVALUATE, SHOWN
from experiments.hostile.steps import fifo, write

# fmt: off

OF_PAIRS = "evaluate --workdir=pairs"
CASES = [
    case("scored pairs that are nowhere", f"{OF_PAIRS} --pairs=none.tsv", refused("--pairs", "none.tsv")),
    case("scored pairs that are none", f"{OF_PAIRS} --pairs=empty.tsv", refused("empty.tsv"), write("empty.tsv", "")),
    case("scored pairs of one column", f"{OF_PAIRS} --pairs=text.txt", refused("text.txt:1", "column")),
    case("scored pairs in a folder", f"{OF_PAIRS} --pairs=parallel", refused("--pairs", "parallel")),
    case("scored pairs from a pipe", f"{OF_PAIRS} --pairs=pipe", refused("--pairs", "pipe"), fifo("pipe")),
    case("scored pairs without end", f"{OF_PAIRS} --pairs=/dev/zero", refused("--pairs", "/dev/zero")),
    case(
        "scored pairs with an empty prompt",
        f"{OF_PAIRS} --pairs=bad.tsv",
        refused("bad.tsv:2"),
        write("bad.tsv", "a\tb\n\tc\n"),
    ),
    case(
        "scored pairs for a boolean map", "evaluate --workdir=map --pairs=pairs.tsv", refused("--pairs", "boolean_map")
    ),
    case("answers into a file", f"{OF_PAIRS} --output=text.txt", refused("--output", "text.txt")),
    case("answers into a bucket", f"{OF_PAIRS} --output=s3://bucket/x", refused("--output|s3://")),
    case("answers of a boolean map", "evaluate --workdir=map --output=x", refused("--output", "boolean_map")),
    case("a baseline that is nowhere", f"{OF_PAIRS} --baseline=none", refused("--baseline", "none")),
    case("a baseline of other files", f"{OF_PAIRS} --baseline=parallel", refused("--baseline", "parallel")),
    case(
        "a baseline of other prompts",
        f"{OF_PAIRS} --baseline=other",
        refused("--baseline", "other"),
        write("other/sources.txt", "one\ntwo\n"),
        write("other/hypotheses.txt", "un\ndeux\n"),
    ),
    case("scored at a step that is not there", f"{EVALUATE} --step=5", refused("5")),
    case("n-grams below nothing", f"{SHOWN} --no_repeat_ngram=-1 1", refused("no_repeat_ngram")),
    case("n-grams that are no number", f"{SHOWN} --no_repeat_ngram=x 1", refused("no_repeat_ngram")),
    case("every answer the same token", f"{SHOWN} --no_repeat_ngram=1 '1 1 1'", accepted(lines=1)),
    case("interactive, with a prompt", f"{SHOWN} --interactive 1", refused("--interactive")),
    case("interactive, with a file", f"{SHOWN} --interactive --input=prompts.txt", refused("--interactive")),
    case(
        "interactive, with a line that is no prompt",
        f"{SHOWN} --interactive",
        accepted("error: ", lines=2),
        stdin=b"1 2\n4 x\n\xff\n2\n",
    ),
    case(
        "interactive, with a run that answers nothing", "generate --workdir=map --interactive", refused("boolean_map")
    ),
    case("no company", "sweep --config=points.py --workdir=new --together=0", refused("together")),
]
