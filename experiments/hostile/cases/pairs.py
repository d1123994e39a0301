"""Pairs of sentences."""

from typing import Any

from experiments.hostile.case import accepted, case, refused
from experiments.hostile.fixtures import TRAIN_PAIRS, tab_separated
from experiments.hostile.steps import append, borrow, remove, write

# fmt: off

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
SWAPPED = write("pairs.tsv", tab_separated(GERMAN * 4))

CASES = [
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
