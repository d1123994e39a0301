"""A model with its weights in one file that runs with jax and numpy, without fxf, by `jax.export`.

The file is an .npz archive: under `weights/…` the weights by path, and the programs `forward`, `prefill` and `step`
(the last two where the model generates), for CPUs, GPUs and TPUs and for any number of rows and tokens:

    file = np.load("model.npz")
    weights = {name.removeprefix("weights/"): file[name] for name in file.files if name.startswith("weights/")}
    programs = {name: jax.export.deserialize(file[name].tobytes()) for name in ("forward", "prefill", "step")}
    logits_BTV = programs["forward"].call(weights, batch)
    cache = programs["prefill"].call(weights, batch_of_prompts)
    logits_RV, cache = programs["step"].call(weights, cache, tokens_R)

`batch` is what `model.apply` reads, and `batch_of_prompts` what `model.prefill` reads, dicts of arrays; a cache is a
list of arrays with room for `max_len` tokens a row.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fxf.base.errors import UserError
from fxf.base.weights import Params, flatten, map_weights
from fxf.models.model import Batch, Model

PLATFORMS = ("cpu", "cuda", "tpu")
SOURCE = ("source", "source_mask", "source_positions")  # what has as many positions as the source


def export_model(path: Path, model: Model, params: Params, batch: Mapping[str, Any], max_len: int) -> None:
    """Writes the file.

    Args:
      batch: the arrays that `model.apply` reads, or their shapes. Names and types matter, and sizes do not.
      max_len: positions of the model: the room of a cache, and the most tokens in a row.

    Raises:
      UserError: the model's programs depend on the number of tokens.
    """
    from jax import export

    sizes = ["T", "S"] if any(name in SOURCE for name in batch) else ["T"]
    scope = export.SymbolicScope([f"{size} <= {max_len}" for size in sizes])
    (rows,) = export.symbolic_shape("B", scope=scope)
    length, source_length = export.symbolic_shape("T, S", scope=scope)
    shapes = {
        name: jax.ShapeDtypeStruct(
            (rows, source_length if name in SOURCE else length, *x.shape[2:])[: len(x.shape)], x.dtype
        )
        for name, x in batch.items()
    }
    weights = flatten(params)
    programs = {name: program.serialize() for name, program in _programs(path, model, weights, shapes, max_len)}
    arrays = {f"weights/{name}": np.asarray(x) for name, x in jax.device_get(weights).items()}
    arrays |= {name: np.frombuffer(program, np.uint8) for name, program in programs.items()}
    with path.open("wb") as file:
        np.savez(file, allow_pickle=False, **arrays)


def _programs(
    path: Path, model: Model, weights: dict[str, jax.Array], batch: dict[str, jax.ShapeDtypeStruct], max_len: int
) -> Iterator[tuple[str, Any]]:
    """Yields the name of each program and what `jax.export` makes of it; `batch` has symbolic sizes."""
    from jax import export

    structure: list[Any] = []

    def nested(weights: dict[str, jax.Array]) -> Params:
        return map_weights(lambda name, _: weights[name], model.spec)

    def forward(weights: dict[str, jax.Array], batch: Batch) -> jax.Array:
        return model.apply(nested(weights), batch)

    def prefill(weights: dict[str, jax.Array], batch: Batch) -> list[jax.Array]:
        assert model.prefill is not None
        leaves, tree = jax.tree.flatten(model.prefill(nested(weights), batch, max_len))
        structure.append(tree)
        return leaves

    def step(
        weights: dict[str, jax.Array], cache: list[jax.Array], tokens_R: jax.Array
    ) -> tuple[jax.Array, list[jax.Array]]:
        assert model.step is not None
        logits_RV, after = model.step(nested(weights), jax.tree.unflatten(structure[0], cache), tokens_R)
        return logits_RV, jax.tree.leaves(after)

    def exported(function: Any, *arguments: Any) -> Any:
        try:
            return export.export(jax.jit(function), platforms=PLATFORMS)(weights, *arguments)
        except jax.errors.InconclusiveDimensionOperation:
            raise UserError(f"{path}: the number of tokens decides what this model does; cannot export it") from None

    yield "forward", exported(forward, batch)
    if model.step is None:
        return
    rows = batch["inputs"].shape[:1]
    read = exported(prefill, {**batch, "lengths": jax.ShapeDtypeStruct(rows, jnp.int32)})
    yield "prefill", read
    scope = export.SymbolicScope()  # a step reads no T, of which the other scope demands something

    def freed(shape: Any, dtype: Any) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(export.symbolic_shape(", ".join(map(str, shape)), scope=scope), dtype)

    cache = [freed(x.shape, x.dtype) for x in read.out_avals]
    yield "step", exported(step, cache, freed(rows, jnp.int32))
