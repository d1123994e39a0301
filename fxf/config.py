"""Config sections as frozen dataclasses.

A config file returns an `ml_collections.ConfigDict` that holds every key of every section; `section` turns one of
its sections into the dataclass that the code reads, and refuses what it cannot read. A dataclass is the one place
where a key's name, type, default, range and meaning are written.
"""

import dataclasses
import typing
from collections.abc import Iterator, Mapping
from typing import Any, Literal, TypeVar

from fxf.errors import UserError, nearest

SectionT = TypeVar("SectionT")


def key(
    default: Any, doc: str, *, minimum: float | None = None, above: float | None = None, below: float | None = None
) -> Any:
    """A config key: its default, its meaning in one line, and the range of its values."""
    return dataclasses.field(default=default, metadata={"doc": doc, "minimum": minimum, "above": above, "below": below})


@dataclasses.dataclass(frozen=True)
class TransformerConfig:
    """The `model` section for `transformer_lm`; the defaults are those of seed 004, "Definition of TransformerLM"."""

    name: Literal["transformer_lm"] = key("transformer_lm", "the model to build")
    n_layers: int = key(6, "decoder blocks", minimum=1)
    d_model: int = key(512, "width of the residual stream", minimum=1)
    d_ff: int = key(2048, "width inside the feed-forward layer", minimum=1)
    n_heads: int = key(8, "attention heads; divides d_model", minimum=1)
    max_len: int = key(2048, "longest sequence, in tokens, the leading 0 included", minimum=1)
    dropout: float = key(0.0, "rate on embeddings, attention weights and residual branches", minimum=0, below=1)
    block: Literal["definition", "idea"] = key(
        "definition", "X + CA(N X) + FF(X + CA(N X)), or seed 004's idea X + FF(X + CA(N X))"
    )
    init: Literal["default", "uniform"] = key(
        "default", "a scaled init for each weight, or seed 004's uniform(-1/2, 1/2) for all"
    )
    scan_blocks: bool = key(False, "loop over blocks in the compiled program: compiles in constant time, runs slower")

    def __post_init__(self) -> None:
        if self.d_model % self.n_heads:
            raise UserError(f"model.n_heads: {self.n_heads} does not divide model.d_model {self.d_model}")


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
    batch_size: int = key(64, "sequences a step", minimum=1)
    evaluate_every: int = key(0, "steps between evaluations; 0 evaluates after the last step only", minimum=0)


@dataclasses.dataclass(frozen=True)
class CheckpointConfig:
    """The `checkpoint` section."""

    every: int = key(0, "steps between checkpoints; 0 saves after the last step only", minimum=0)
    keep: int = key(2, "newest checkpoints kept", minimum=1)
    best: str = key("", "a metric of the evaluation: the checkpoint where it is highest is kept and preferred")


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
        value = float(value)
    if type(value) is not kind:
        raise UserError(f"{path}: expected {kind.__name__}, got {value!r}")
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
    if value not in valid:
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
