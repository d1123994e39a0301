"""The same paths and folders with other contents."""

from experiments.hostile.case import accepted, case, failed, refused
from experiments.hostile.fixtures import POINTS
from experiments.hostile.steps import borrow, remove, rewrite, write

# fmt: off

# A sweep of one point: a run on a text.
TEXTS_SWEEP = (
    POINTS.replace("tiny.json", "characters/config.json").replace("load(file)", 'load(file)["config"]')
    .replace("range(2)", "[0]")
)
# The same on pairs.
PAIRS_SWEEP = TEXTS_SWEEP.replace("characters", "pairs")
ANOTHER_TEXT = (borrow("other.txt", "text.txt"),)
ANOTHER_PAIRS = (rewrite("pairs.tsv", lambda text: text.replace("chat", "chien bleu")),)
ANOTHER_TOKENIZER = (borrow("fresh/tokenizer.json", "characters/tokenizer.json"),)
ANOTHERS_CHECKPOINTS = (borrow("seed1/checkpoints", "reversal/checkpoints"),)
ONE_OF_ANOTHERS = (borrow("seed1/checkpoints/6", "half/checkpoints/6"),)

CASES = [
    case("another text: train", "train @characters --workdir=halfway", refused("data.path", "halfway"), *ANOTHER_TEXT),
    case(
        "another text: train a finished run", "train @characters --workdir=characters", refused("data.path"),
        *ANOTHER_TEXT,
    ),
    case("another text: evaluate", "evaluate --workdir=characters", refused("data.path"), *ANOTHER_TEXT),
    case("another text: masking, evaluate", "evaluate --workdir=masking", refused("data.path"), *ANOTHER_TEXT),
    case(
        "another text: sweep", "sweep --config=texts.py --workdir=texts --workers=0", refused("data.path"),
        write("texts.py", TEXTS_SWEEP),
        borrow("characters", "texts/seed=0"), *ANOTHER_TEXT, runs=("characters",),
    ),
    case("other pairs: train", "train @pairs --workdir=pairs", refused("data.path"), *ANOTHER_PAIRS),
    case(
        "other pairs: resume", "train @pairs --workdir=pairs", refused("data.path"), *ANOTHER_PAIRS,
        remove("pairs/result.json"), remove("pairs/checkpoints/6"),
    ),
    case("other pairs: evaluate", "evaluate --workdir=pairs", refused("data.path"), *ANOTHER_PAIRS),
    case(
        "other pairs: sweep", "sweep --config=pairs.py --workdir=swept --workers=0", refused("data.path"),
        write("pairs.py", PAIRS_SWEEP), borrow("pairs", "swept/seed=0"), *ANOTHER_PAIRS, runs=("pairs",),
    ),
    # These read no data, because a run brings its own tokenizer, and warn of the change.
    *(
        case(f"{what}: {command.split()[0]}", command, accepted(part, "warning: ", "other data"), *steps)
        for what, steps, commands in [
            ("another text", ANOTHER_TEXT, {
                "generate --workdir=characters 'the cat'": "the cat",
                "probe --workdir=characters the cat": "params/",
                "export --workdir=characters --format=safetensors": "params.safetensors",
            }),
            ("other pairs", ANOTHER_PAIRS, {
                "generate --workdir=pairs 'I see the cat.'": "",
                "probe --workdir=pairs 'I see the cat.' 'Je vois'": "params/",
                "export --workdir=pairs --format=safetensors": "params.safetensors",
            }),
        ]
        for command, part in commands.items()
    ),
    case(
        "another tokenizer: sweep", "sweep --config=texts.py --workdir=texts --workers=0", refused("tokenizer.json"),
        write("texts.py", TEXTS_SWEEP), borrow("characters", "texts/seed=0"),
        borrow("fresh/tokenizer.json", "texts/seed=0/tokenizer.json"), runs=("characters",),
    ),
    case(
        "a text lost with its tokenizer: resume", "train @characters --workdir=halfway",
        refused("data.path|tokenizer.json"), *ANOTHER_TEXT, remove("halfway/tokenizer.json"),
    ),
    *(
        case(f"another tokenizer: {name}", command, refused("tokenizer.json"), *ANOTHER_TOKENIZER, runs=("characters",))
        for name, command in {
            "train": "train @characters --workdir=characters",
            "evaluate": "evaluate --workdir=characters",
            "generate": "generate --workdir=characters 'the cat'",
            "probe": "probe --workdir=characters 'the' 'cat'",
            "export": "export --workdir=characters --format=safetensors",
        }.items()
    ),
    *(
        case(f"checkpoints of another run: {name}", command, refused("checkpoint", "run"), *steps, runs=("reversal",))
        for name, command, steps in [
            ("train", "train @reversal --workdir=half", ONE_OF_ANOTHERS),
            ("evaluate", "evaluate --workdir=reversal", ANOTHERS_CHECKPOINTS),
            ("generate", "generate --workdir=reversal '1 2'", ANOTHERS_CHECKPOINTS),
            ("probe", "probe --workdir=reversal '1 2'", ANOTHERS_CHECKPOINTS),
            ("export", "export --workdir=reversal --format=safetensors", ANOTHERS_CHECKPOINTS),
        ]
    ),
    case(
        "checkpoints of another run: sweep", "sweep --config=points.py --workdir=sweep --workers=1",
        failed("seed=0", "another run"), borrow("seed1/checkpoints", "sweep/seed=0/checkpoints"),
        remove("sweep/seed=0/result.json"), writes="^sweep",
    ),
]
