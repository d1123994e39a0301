"""Keys of training."""

from experiments.hostile.case import Case, case, refused
from experiments.hostile.fixtures import BEYOND

# fmt: off

def key(name: str, flags: str, *parts: str, run: str = "reversal") -> Case:
    return case(name, f"train @{run} --workdir=new {flags}", refused(*parts))


WSD = "--config.optimizer.schedule=wsd"
LENGTH = "train --config=configs/length.py:reverse_string --workdir=new"
CASES = [
    key("everything frozen", "--config.optimizer.frozen=*", "optimizer.frozen", "nothing is left"),
    key("a frozen weight that is none", "--config.optimizer.frozen=embeding/*", "optimizer.frozen", "embeding/*"),
    key("frozen by a negation alone", "--config.optimizer.frozen=!embedding/*", "optimizer.frozen"),
    *(
        key(f"layer_decay {value}", f"--config.optimizer.layer_decay={value}", "optimizer.layer_decay")
        for value in ("0", "-1", "nan")
    ),
    *(
        key(f"ema_decay {value}", f"--config.optimizer.ema_decay={value}", "optimizer.ema_decay")
        for value in ("1", "-0.1", "nan", BEYOND)
    ),
    key("wsd without steps that fall", WSD, "optimizer.decay_steps", "wsd"),
    key("wsd that falls for longer than it trains", f"{WSD} --config.optimizer.decay_steps=7", "optimizer.decay_steps"),
    key("steps that fall on another schedule", "--config.optimizer.decay_steps=3", "optimizer.decay_steps"),
    key("a schedule that is none", "--config.optimizer.schedule=wds", "optimizer.schedule", "wsd"),
    key("flash on a CPU", "--config.model.attention_implementation=flash", "flash"),
    key("an implementation that is none", "--config.model.attention_implementation=flsh", "flash"),
    key(
        "chunks of no scores",
        "--config.model.attention_implementation=chunked --config.model.attention=linear --config.model.positions=none",
        "attention_implementation",
    ),
    key(
        "chunks of a sequence cut by a mesh",
        "--config.model.attention_implementation=chunked --config.parallel.sequence=2",
        "parallel.sequence",
    ),
    key("a sequence cut on one device", "--config.parallel.sequence=2", "parallel.sequence"),
    key("a sequence cut by nothing", "--config.parallel.sequence=0", "parallel.sequence"),
    key("no pair held out", "--config.data.held_out=-1", "data.held_out", run="pairs"),
    key("more than all pairs held out", "--config.data.held_out=1.5", "data.held_out", run="pairs"),
    key("a limit below nothing", "--config.data.limit=-1", "data.limit", run="pairs"),
    key("ends of n-grams below nothing", "--config.decode.no_repeat_ngram=-1", "decode.no_repeat_ngram"),
    case(
        "a problem that is none", f"{LENGTH} --config.task.problem=bucket_srt", refused("task.problem", "bucket_sort")
    ),
    case("lengths that shrink", f"{LENGTH} --config.task.longest=3", refused("task.longest")),
    case("a range below nothing", f"{LENGTH} --config.task.position_range=-1", refused("task.position_range")),
    case("a range too short for its strings", f"{LENGTH} --config.task.position_range=9", refused("position_range")),
    case(
        "a range beyond memory",
        f"{LENGTH} --config.task.position_range=1000000000 --config.model.max_len=1000000000",
        refused("task.position_range"),
    ),
    case(
        "a range that the model has too",
        f"{LENGTH} --config.task.position_range=999 --config.model.max_len=999 --config.model.position_range=999",
        refused("task.position_range"),
    ),
    case("lengths that are never scored", f"{LENGTH} --config.task.score_every=0", refused("task.score_every")),
    case("lengths beyond the model", f"{LENGTH} --config.model.max_len=9", refused("model.max_len")),
    case("an answer that is none", f"{LENGTH} --config.task.answer=tapes", refused("task.answer", "tape")),
    case("strings of no symbol", f"{LENGTH} --config.task.max_length=0", refused("task.max_length")),
]
