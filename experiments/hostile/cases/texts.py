"""Texts of language models, and documents."""

from experiments.hostile.case import accepted, case, refused
from experiments.hostile.fixtures import BINARY, LONG, TRAIN_TEXT
from experiments.hostile.steps import fifo, folder, link, listening, mode, remove, write

# fmt: off

DOCUMENTS = f"{TRAIN_TEXT} --config.data.path=parallel --config.data.validation=0.2 --config.data.format=files"
# Its words are all of the text's, or not; nothing stands for the others.
WORDS = (
    '{"version": "1.0", "added_tokens": [{"id": 0, "content": "</s>", "special": true, "single_word": false,'
    ' "lstrip": false, "rstrip": false, "normalized": false}], "pre_tokenizer": {"type": "WhitespaceSplit"},'
    ' "model": {"type": "WordLevel", "vocab": {"</s>": 0, "the": 1, "cat": 2}, "unk_token": "<unk>"}}'
)

CASES = [
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
