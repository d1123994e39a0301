"""Flags of all commands."""

from experiments.hostile.case import accepted, case, refused
from experiments.hostile.fixtures import LONG, NEAR_ZERO, SHOWN, TRAIN
from experiments.hostile.steps import move, remove

# fmt: off

CASES = [
    case("an argument of evaluate", "evaluate --workdir=reversal step=4", refused("step=4")),
    case("an argument of describe", "describe @reversal config.model.n_layers=4", refused("config.model.n_layers=4")),
    case(
        "an argument of sweep", "sweep --config=points.py --workdir=new --dry_run config.seed=1",
        refused("config.seed=1"),
    ),
    case("an argument of export", "export --workdir=reversal --format=jax step=4", refused("step=4")),
    case(
        "a weights file over the run's config",
        "export --workdir=reversal --format=safetensors --output=reversal/config.json", refused("config.json"),
    ),
    case(
        "a weights file over the run's result", "export --workdir=reversal --format=jax --output=reversal/result.json",
        refused("result.json"),
    ),
    case(
        "a picture over a file that is none",
        "probe --workdir=reversal --name=embedding/positions --output=text.txt '1 2'", refused("text.txt", ".png"),
    ),
    case(
        "a picture in a folder that is not there",
        "probe --workdir=reversal --name=params/embedding/table --output=none/x.png '1 2'", refused("none/x.png"),
    ),
    case(
        "a weights file in a folder that is not there",
        "export --workdir=reversal --format=safetensors --output=none/x", refused("none/x"),
    ),
    case(
        "a folder for a weights file", "export --workdir=reversal --format=jax --output=parallel", refused("parallel"),
    ),
    case(
        "a folder of transformers over a run without records", "export --workdir=reversal --format=huggingface"
        " --output=half", refused("half"), remove("half/metrics.jsonl"),
    ),
    case("a smoke run of the root", "train @reversal --workdir=/ --smoke", refused("--workdir")),
    case("no point by its number", "sweep --config=points.py --workdir=new --points=", refused("--points")),
    case(
        "points by number, in a dry run", "sweep --config=points.py --workdir=new --points=1 --dry_run",
        refused("--dry_run"),
    ),
    case("a search of decoding", "compile @reversal --topology=h100:1 --search --rows=2", refused("--rows")),
    case("a comparison of a name too long", f"compare {LONG}", refused("too long")),
    case(
        "a file for a folder", "export --workdir=reversal --format=huggingface --output=text.txt",
        refused("text.txt|model."),
    ),
    case("a format misspelt", "export --workdir=reversal --format=safetensor", refused("--format", "safetensors")),
    case("a format forgotten", "export --workdir=reversal", refused("--format")),
    case("a head without a name", "probe --workdir=reversal --head=0 '1 2'", refused("--head")),
    case(
        "a head beyond the last", "probe --workdir=reversal --name=block_0/attention/weights --head=2 '1 2'",
        refused("head: expected less than 2"),
    ),
    case("a picture without a name", "probe --workdir=reversal --output=x.png '1 2'", refused("--output")),
    case("a lens and a name", "probe --workdir=reversal --lens --name=embedding/positions '1 2'", refused("--lens")),
    case(
        "a name that is near", "probe --workdir=reversal --name=block_0/attention/weight '1 2'",
        refused("--name", "block_0/attention/weights"),
    ),
    case("three texts", "probe --workdir=reversal '1 2' 2 1", refused("3 arguments")),
    case("a lens where there are no blocks", "probe --workdir=map --lens '1 2'", refused("boolean_map")),
    case("a seed below 0", f"{SHOWN} --seed=-1 1", refused("seed")),
    case("no hypothesis", f"{SHOWN} --n_best=0 1", refused("n_best")),
    case("more hypotheses than the beam", f"{SHOWN} --beam_width=2 --n_best=3 1", refused("n_best", "beam_width")),
    case("fewer than no tokens", f"{SHOWN} --max_tokens=-1 1", refused("max_tokens")),
    case("more tokens than positions", f"{SHOWN} --max_tokens=1000000000 1", refused("max_len", "11")),
    case("a beam that draws", f"{SHOWN} --beam_width=2 --temperature=1 1", refused("temperature")),
    case("a seed that nothing draws with", f"{SHOWN} --seed=3 1", refused("seed")),
    case("a temperature that is none", f"{SHOWN} --temperature=nan 1", refused("temperature")),
    case("an infinite temperature", f"{SHOWN} --temperature=inf 1", refused("temperature")),
    case("a temperature next to nothing", f"{SHOWN} --temperature={NEAR_ZERO} 1", refused("temperature")),
    case("prompts twice", f"{SHOWN} --input=prompts.txt 1", refused("--input")),
    case("no file of prompts", f"{SHOWN} --input=prompt.txt", refused("--input", "prompt.txt")),
    case("a switch with a number", f"{TRAIN} --smoke=3", refused("--smoke: expected bool, got '3'")),
    case("a flag misspelt", f"{SHOWN} --beam_with=2 1", refused("beam_with", "beam_width")),
    *(
        case(f"a flag of absl: {flag}", f"{TRAIN} {flag}", refused("unknown flag"))
        for flag in ("--flagfile=text.txt", "--undefok=x --x=3", "-v=1", "--only_check_args", "--nopdb_post_mortem")
    ),
    case("a flag for a value", "train @reversal --workdir --smoke", refused("--workdir", "--smoke")),
    *(
        case(f"a folder whose name is a pattern: {name}", f"{command} '--workdir={name}'", refused(name, "pattern"))
        for name, command in {
            "a[x]": "train @reversal", "b*": "sweep --config=points.py", "c?": "try @reversal --null",
        }.items()
    ),
    case("a folder whose name looks like a format", "evaluate '--workdir=a%s{}'", accepted("exact_match"),
         move("reversal", "a%s{}"), runs=("reversal",)),
    case("slurm's flags without it", "sweep --config=points.py --workdir=new --minutes=3", refused("--minutes")),
    case("fewer than no workers", "sweep --config=points.py --workdir=new --workers=-1", refused("workers")),
    case(
        "an axis that no point changes", "sweep --config=points.py --workdir=sweep --workers=0 --x=model.n_layers",
        refused("--x"),
    ),
    case(
        "an axis that no result has", "sweep --config=points.py --workdir=sweep --workers=0 --y=exact_mach",
        refused("--y", "exact_match"), writes=r"^sweep/table",
    ),
]
