"""Config sections as frozen dataclasses.

A config file returns an `ml_collections.ConfigDict` that holds every key of every section; `section` turns one of
its sections into the dataclass that the code reads, and refuses what it cannot read. A dataclass is the one place
where a key's name, type, default, range and meaning are written.
"""

import dataclasses
import math
import re
import typing
from collections.abc import Iterator, Mapping
from typing import Any, Literal, TypeVar

from fxf.errors import UserError, nearest

SectionT = TypeVar("SectionT")

LARGEST_INT = 2**31 - 1  # steps, positions and sizes are int32 on the device
FLOAT32 = (1.2e-38, 3.4e38)  # the sizes of its numbers; below them a CPU computes with 0


def key(
    default: Any, doc: str, *, minimum: float | None = None, above: float | None = None, below: float | None = None
) -> Any:
    """A config key: its default, its meaning in one line, and the range of its values."""
    return dataclasses.field(default=default, metadata={"doc": doc, "minimum": minimum, "above": above, "below": below})


@dataclasses.dataclass(frozen=True)
class OptimizerConfig:
    """The `optimizer` section. A key that the chosen optimizer or schedule does not read must keep its default."""

    name: str = key("adam", "one of fxf.training.optimizer.OPTIMIZERS")
    learning_rate: float = key(1e-3, "peak learning rate", above=0)
    schedule: str = key("constant", "one of fxf.training.optimizer.SCHEDULES, after the warm-up")
    warmup_steps: int = key(0, "steps of linear warm-up from 0", minimum=0)
    final_learning_rate: float = key(0.0, "learning rate at the last step", minimum=0)
    b1: float = key(0.9, "decay of the mean of gradients", minimum=0, below=1)
    b2: float = key(0.999, "decay of the mean of squared gradients", minimum=0, below=1)
    eps: float = key(1e-8, "added to the denominator", above=0)
    momentum: float = key(0.0, "decay of the trace of gradients", minimum=0, below=1)
    weight_decay: float = key(0.0, "decoupled decay of matrices; biases, norms, embeddings keep theirs", minimum=0)
    clip_norm: float = key(0.0, "largest global norm of the gradient; 0 does not clip", minimum=0)


@dataclasses.dataclass(frozen=True)
class TrainConfig:
    """The `train` section."""

    steps: int = key(1000, "optimizer steps", minimum=1)
    batch_size: int = key(64, "sequences a step; for batches of a token budget, at most", minimum=1)
    microbatches: int = key(1, "equal parts of a batch whose gradients are summed one after the other", minimum=1)
    label_smoothing: float = key(0.0, "share of a target's probability spread over all tokens", minimum=0, below=1)
    skip_nonfinite: int = key(
        0, "steps whose loss or gradient is not finite that a run may have; they move nothing", minimum=0
    )
    evaluate_every: int = key(0, "steps between validations; the test after the last step comes anyway", minimum=0)
    patience: int = key(
        0, "evaluations without a better checkpoint.best after which training stops; 0 never stops", minimum=0
    )


@dataclasses.dataclass(frozen=True)
class ParallelConfig:
    """The `parallel` section: how training is spread over devices. It changes no number but what dropout draws."""

    kind: Literal["jit", "pmap"] = key(
        "jit", "one program over a mesh of devices; or the step mapped over them, all weights on each"
    )
    data: int = key(0, "parts of a batch's rows, with all weights for each; 0: as many as the devices allow", minimum=0)
    fsdp: int = key(1, "parts of a batch's rows, and of weights and optimizer state", minimum=1)
    tensor: int = key(1, "parts of heads, hidden units and vocabulary, and of their weights", minimum=1)
    processes: int = key(
        1, "processes that train together; 0: as many as SLURM, Open MPI or a TPU pod has started", minimum=0
    )
    coordinator: str = key("", "host:port of the first process, where processes is above 1")
    process: int = key(0, "index of this process, where processes is above 1", minimum=0)

    def __post_init__(self) -> None:
        if self.processes > 1 and not re.fullmatch(r".+:\d+", self.coordinator):
            raise UserError(f"parallel.coordinator: expected host:port of the first process, got {self.coordinator!r}")
        if self.processes <= 1 and (self.coordinator or self.process):
            raise UserError(
                "parallel.coordinator, parallel.process: only read where parallel.processes is above 1; "
                "a launcher's processes find each other"
            )
        if self.process >= max(self.processes, 1):
            raise UserError(
                f"parallel.process: expected less than parallel.processes {self.processes}, got {self.process}"
            )
        if self.kind == "pmap" and self.processes != 1:
            raise UserError("parallel.kind: 'pmap' maps over the devices of one process; 'jit' spreads over several")
        if self.kind == "pmap" and self.fsdp * self.tensor > 1:
            raise UserError("parallel.kind: 'pmap' cuts no weights; leave parallel.fsdp and parallel.tensor at 1")


@dataclasses.dataclass(frozen=True)
class DecodeConfig:
    """The `decode` section: how tokens are chosen in evaluation and generation. The default is greedy."""

    temperature: float = key(0.0, "divides the logits before a token is drawn; 0 takes the most probable", minimum=0)
    top_k: int = key(0, "draw among the k most probable tokens; 0 among all", minimum=0)
    top_p: float = key(1.0, "then among the fewest that hold this share of the probability", above=0)
    beam_width: int = key(1, "hypotheses of the beam search; 1 searches none", minimum=1)
    length_penalty: float = key(1.0, "a hypothesis scores its log-probability / length^this", minimum=0)
    early_stop: bool = key(True, "end a beam when beam_width hypotheses have ended, not when none can still win")

    def __post_init__(self) -> None:
        if self.top_p > 1:
            raise UserError(f"decode.top_p: expected at most 1, got {self.top_p}")
        if self.temperature == 0 and (self.top_k or self.top_p < 1):
            raise UserError(
                "decode.top_k, decode.top_p: greedy decoding does not read them; set decode.temperature above 0"
            )
        if self.beam_width > 1 and self.temperature:
            raise UserError("decode.temperature: beam search does not read it; leave it at 0")
        if self.beam_width == 1 and not (self.length_penalty == 1 and self.early_stop):
            raise UserError(
                "decode.length_penalty, decode.early_stop: only beam search reads them; set decode.beam_width above 1"
            )


SAMPLING, BEAM = ("temperature", "top_k", "top_p"), ("beam_width", "length_penalty", "early_stop")


def changed_decode(values: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the `decode` section with some keys changed.

    They name the method: to give a key of sampling ends a beam and the other way round, and what the method then does
    not read returns to its default.
    """
    changed, unread = {**values, **changes}, set()
    if set(BEAM) & set(changes):
        unread |= set(SAMPLING)
    elif set(SAMPLING) & set(changes):
        unread |= set(BEAM)
    if changed.get("beam_width") == 1:
        unread |= {"length_penalty", "early_stop"}
    if changed.get("temperature") == 0:
        unread |= {"top_k", "top_p"}
    return changed | {name: value for name, value in defaults(DecodeConfig).items() if name in unread - set(changes)}


@dataclasses.dataclass(frozen=True)
class CheckpointConfig:
    """The `checkpoint` section."""

    every: int = key(0, "steps between checkpoints; 0 saves after the last step only", minimum=0)
    keep: int = key(2, "newest checkpoints kept", minimum=1)
    best: str = key(
        "", "a metric of the evaluation: the checkpoint where it is highest, with - in front lowest, is kept and used"
    )
    average: int = key(
        1, "newest checkpoints whose mean params the run's result, evaluate.py and generate.py use", minimum=1
    )

    def __post_init__(self) -> None:
        if self.average > self.keep:
            raise UserError(f"checkpoint.average: {self.average} is more than checkpoint.keep {self.keep}")
        if self.average > 1 and self.best:
            raise UserError("checkpoint.average: a run uses the mean or the best checkpoint; leave one at its default")


@dataclasses.dataclass(frozen=True)
class LogConfig:
    """The `log` section."""

    every: int = key(100, "steps between metric records; they run in one compiled call", minimum=1)
    tensorboard: bool = key(True, "write TensorBoard event files too")


def defaults(cls: type) -> dict[str, Any]:
    """Returns every key of the section class `cls` with its default."""
    return dataclasses.asdict(cls())


def section(cls: type[SectionT], values: Any, path: str) -> SectionT:
    """Builds the section class `cls` from a mapping that holds exactly its keys.

    Raises:
      UserError: a key unknown, missing, of the wrong type or out of range; the text names `path.key`.
    """
    if not isinstance(values, Mapping):
        raise UserError(f"{path}: expected a section of keys, got {values!r}")
    types = typing.get_type_hints(cls)
    for name in values:
        if name not in types:
            raise UserError(f"{path}.{name}: unknown key{nearest(str(name), types)}")
    missing = [name for name in types if name not in values]
    if missing:
        raise UserError(f"{path}: missing {', '.join(missing)}; a section holds all its keys")
    fields = dataclasses.fields(cls)  # type: ignore[arg-type]
    return cls(**{f.name: _checked(values[f.name], types[f.name], f.metadata, f"{path}.{f.name}") for f in fields})


def _checked(value: Any, kind: Any, limits: Mapping[str, Any], path: str) -> Any:
    """Returns `value` as `kind`, or raises a UserError that names `path`."""
    if typing.get_origin(kind) is Literal:
        return one_of(value, typing.get_args(kind), path)
    if kind is float and type(value) is int:
        try:
            value = float(value)
        except OverflowError:
            raise UserError(f"{path}: expected a finite number, got an integer too large for a float") from None
    if type(value) is not kind:
        raise UserError(f"{path}: expected {kind.__name__}, got {value!r}")
    if kind is int and value > LARGEST_INT:
        raise UserError(f"{path}: expected at most {LARGEST_INT}, as much as an int32 holds, got {value}")
    if kind is float and not math.isfinite(value):
        raise UserError(f"{path}: expected a finite number, got {value}")
    if kind is float and value and not FLOAT32[0] <= abs(value) <= FLOAT32[1]:
        raise UserError(f"{path}: expected 0, or a size from {FLOAT32[0]} to {FLOAT32[1]} as of float32, got {value}")
    if kind in (int, float):
        minimum, above, below = limits["minimum"], limits["above"], limits["below"]
        if minimum is not None and not value >= minimum:
            raise UserError(f"{path}: expected at least {minimum}, got {value}")
        if above is not None and not value > above:
            raise UserError(f"{path}: expected more than {above}, got {value}")
        if below is not None and not value < below:
            raise UserError(f"{path}: expected less than {below}, got {value}")
    return value


def one_of(value: Any, valid: Any, path: str) -> Any:
    """Returns `value` if it is among the names `valid`, else raises a UserError that names `path`."""
    if not isinstance(value, str) or value not in valid:
        raise UserError(f"{path}: expected one of {', '.join(valid)}; got {value!r}{nearest(str(value), valid)}")
    return value


def flatten(config: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yields ('section.key', value) for every leaf of a nested mapping, in order."""
    for name, value in config.items():
        if isinstance(value, Mapping):
            yield from flatten(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def differing_keys(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[str]:
    """Returns the keys on which two configs differ, or that only one of them has."""
    flat_a, flat_b = dict(flatten(a)), dict(flatten(b))
    absent = object()
    return [k for k in {**flat_a, **flat_b} if flat_a.get(k, absent) != flat_b.get(k, absent)]


def differences(there: Mapping[str, Any], here: Mapping[str, Any]) -> str:
    """Returns `key (VALUE there, VALUE here), …` for the keys on which two configs differ; "" if they do not."""
    old, new = dict(flatten(there)), dict(flatten(here))
    return ", ".join(
        f"{key} ({old.get(key, 'absent')} there, {new.get(key, 'absent')} here)" for key in differing_keys(there, here)
    )
