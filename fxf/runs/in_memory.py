"""Models in memory, without a run folder: building, training and decoding."""

import dataclasses
import functools
import operator
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fxf.base import weights
from fxf.base.config import Field, arguments, checked, defaults, one_of, registered_section, section
from fxf.base.devices import require_devices
from fxf.base.errors import UserError, require_keywords, shortened
from fxf.base.on_cpu import drawing_options
from fxf.base.on_gpu import deterministic
from fxf.base.random_keys import seed_of
from fxf.base.weights import Params, flatten
from fxf.data.batches import padded
from fxf.layers.config import TransformerConfig
from fxf.models import MODELS
from fxf.models.decode_config import DecodeConfig, changed_decode
from fxf.models.decoder import Decoder
from fxf.models.model import Batch, Model
from fxf.models.quantized import stored_as
from fxf.models.rules import Words
from fxf.models.speculative import Speculative
from fxf.runs.compatibility import first_batch, require_batch, require_params, require_texts
from fxf.tasks import task
from fxf.tasks.prompts import before_end, padded_prompts
from fxf.training.fine_tuning import evaluated_params, require_frozen, without_frozen_gradient
from fxf.training.loop import steps_of_next_call
from fxf.training.optimizer import OPTIMIZERS, OptimizerConfig, make_optimizer
from fxf.training.parallel import ParallelConfig
from fxf.training.sharding import make_layout
from fxf.training.state import hyperparameters, init_state, run_keys
from fxf.training.step import TrainConfig, Trainer, make_train_steps, with_arrays


class Fitted(NamedTuple):
    """What `fit` returns: params (averaged ones with `ema_decay`), and the mean loss of each step, float32 [steps].

    The losses leave terms out, as those of a run do: they are 0 if the objective consists of terms alone.
    """

    params: Params
    losses: np.ndarray


def model(name: str = "transformer_lm", *, vocab_size: int, **keys: Any) -> Model:
    """Builds a model: pure functions from params to logits.

        model = fxf.model("transformer_lm", vocab_size=51, n_layers=2, d_model=64, n_heads=4)
        logits_BTV = model.apply(params, {"inputs": tokens_BT})

    Args:
      name: transformer_lm, masked_lm or encoder_decoder, or module:name of your own.
      vocab_size: tokens are 0 … vocab_size - 1.
      keys: those of the config's `model` section, such as `n_layers` and `positions`; the rest keep their defaults.

    Raises:
      UserError: a key is unknown, has a wrong value, or does not go with another one.
    """
    registered = MODELS[one_of(name, MODELS, "model.name")]
    vocab_size = checked(vocab_size, Field(int, {"minimum": 1}), "vocab_size")
    return registered.make(registered_section(registered.config, {**keys, "name": name}, "model"), vocab_size)


def layer_config(**keys: Any) -> TransformerConfig:
    """Returns the config that every layer reads.

        layer = Attention(fxf.layer_config(d_model=8, n_heads=2))
        params = fxf.initialize(layer.spec())

    Args:
      keys: those of `fxf.layers.config.TransformerConfig`; the rest keep their defaults.

    Raises:
      UserError: a key is unknown, has a wrong value, or does not go with another one.
    """
    return section(TransformerConfig, keys, "model")


def initialize(model: Model | weights.Spec, seed: int = 0) -> Params:
    """Returns random params of a model, or of the spec of a layer: a nested dict of arrays.

    A run with this seed starts from the same params, up to rounding.

    Args:
      seed: from 0 to 2**32 - 1; inside a program, an array.
    """
    spec, dtype = (model.spec, model.weights_dtype) if isinstance(model, Model) else (model, "float32")
    key = run_keys(seed if isinstance(seed, jax.Array) else seed_of(seed)).params
    options = None if isinstance(key, jax.core.Tracer) else drawing_options()  # inside a program, those of that program
    return jax.jit(lambda key: weights.initialize(spec, key, dtype), compiler_options=options)(key)


def language_model_batch(tokens: Any, weights: Any = None) -> Batch:
    """Returns the batch from which a decoder learns to predict each token from those before it.

    Args:
      tokens: int32 [B, T]; the model reads them after token 0, without the last one.
      weights: float32 [B, T], the weight of each token in the loss; 1 if None.

    Returns:
      inputs int32 [B, T], targets int32 [B, T] and weights float32 [B, T].

    Raises:
      UserError: the tokens are no ints [B, T], or the weights have another shape.
    """
    try:
        tokens_BT = jnp.asarray(tokens)
    except ValueError:
        expected = "expected int32 [B, T], got rows of several lengths; their padding has weight 0"
        raise UserError(f"tokens: {expected}") from None
    if tokens_BT.ndim != 2 or not jnp.issubdtype(tokens_BT.dtype, jnp.integer):
        raise UserError(f"tokens: expected int32 [B, T], got {tokens_BT.dtype} {[*tokens_BT.shape]}")
    weights_BT = jnp.ones(tokens_BT.shape) if weights is None else jnp.asarray(weights, jnp.float32)
    if weights_BT.shape != tokens_BT.shape:
        raise UserError(f"weights: expected the shape of the tokens, {[*tokens_BT.shape]}, got {[*weights_BT.shape]}")
    return task.language_model_batch(tokens_BT.astype(jnp.int32), weights_BT)


def fit(
    model: Model,
    batch: Callable[[jax.Array, jax.Array], Batch],
    *,
    steps: int,
    params: Params | None = None,
    seed: int = 0,
    optimizer: str = "adam",
    microbatches: int = 1,
    label_smoothing: float = 0.0,
    **keys: Any,
) -> Fitted:
    """Trains a model in memory, and returns params and losses as `Fitted` says.

        params, losses = fxf.fit(model, batch, steps=200, learning_rate=1e-2, schedule="cosine")

    Another call with this `model` and `batch` compiles nothing new for another seed, rate, weight decay or smoothing.

    Args:
      batch: `batch(key, step)` returns the batch of a step, arrays [B, T] as `language_model_batch` has, all of one
        shape. It is a pure function, compiled as part of the step: what NumPy draws in it is drawn once, for all steps.
        The random key derives from (seed, step); the step is an int32 scalar from 0.
      params: the initial params, which stay as they are; None draws them from the seed.
      seed: the seed of the initial params, the keys of the batches, and dropout.
      optimizer: one of `fxf.training.optimizer.OPTIMIZERS`, or module:name of your own.
      microbatches: number of equal parts of a batch; their gradients are summed one by one, which needs less memory.
      label_smoothing: share of a target's probability that is spread over all tokens.
      keys: other keys of the config's `optimizer` section, such as `learning_rate`, `schedule` and `weight_decay`.

    Raises:
      UserError: a key or its value is wrong, the batch or the params do not fit the model, or the loss is not finite.
    """
    seed, model = seed_of(seed), _checked_model(model)
    chosen = {"steps": steps, "microbatches": microbatches, "label_smoothing": label_smoothing}
    train = section(TrainConfig, chosen, "train")
    optimizer_class = OPTIMIZERS[one_of(optimizer, OPTIMIZERS, "optimizer.name")].config
    require_keywords(fit, keys, defaults(optimizer_class))
    optimizer_config = registered_section(optimizer_class, {**keys, "name": optimizer}, "optimizer")
    if params is not None:
        require_params(model, params)
    require_frozen(model.spec, optimizer_config.frozen)
    require_batch("batch", first_batch(batch, seed), model, microbatches)
    layout = make_layout(ParallelConfig(data=1), require_devices())
    trainer = Trainer(model, make_optimizer(optimizer_config, train.steps, model.spec), train, layout)
    given = params and flatten(jax.device_put(jax.tree.map(jnp.array, params), layout.replicated))  # copies
    programs, arrays = _fitting(trainer, optimizer_config, batch)
    state, train_steps = programs["start"](run_keys(seed).params, given), programs["steps"]
    numbers = hyperparameters(seed, train, optimizer_config, model.weights_dtype)
    losses, done, at_once = list[np.ndarray](), 0, 1
    while done < train.steps:  # in calls of about a second
        n, before = min(at_once, train.steps - done), time.perf_counter()
        state, metrics = train_steps(state, numbers, np.int32(n), *arrays)
        sums, counts = (np.asarray(metrics[name])[:n] for name in ("loss_sum", "weight_sum"))
        losses.append(sums / np.maximum(counts, np.finfo(np.float32).tiny))
        if not np.isfinite(losses[-1]).all():
            first = int(np.argmin(np.isfinite(losses[-1])))
            what = f"step {done + first + 1}: the loss is {losses[-1][first]}"
            raise UserError(f"{what}; a lower learning_rate may help; a target that is no token makes it NaN too")
        done, at_once = done + n, steps_of_next_call(n, time.perf_counter() - before)
    return Fitted(evaluated_params(state), np.concatenate(losses))


def _fitting(trainer: Trainer, config: OptimizerConfig, batch: Callable[..., Batch]) -> tuple[dict[str, Any], Any]:
    """Returns the programs of `fit`, which its calls share, and the arrays that the batches read."""
    model, layout, (make_batch, arrays, text) = trainer.model, trainer.layout, with_arrays(batch)
    constants = {**vars(config), **dict.fromkeys(arguments(config))}  # the others are `Hyperparameters`
    read = model.spec, dataclasses.replace(trainer.config, label_smoothing=0), constants, text
    # The functions of the model, and as text what has no hash: its spec, and what the steps read.
    if not (programs := _programs(*model[1:-1], layout, batch, str(read))):
        trainer = trainer._replace(model=without_frozen_gradient(model, config.frozen))
        # Sharded as each call leaves it; otherwise the second call would compile again.
        options = {"out_shardings": layout.replicated, "compiler_options": drawing_options()}
        programs["start"] = jax.jit(lambda *start: init_state(model, trainer.optimizer, *start), **options)
        programs["steps"] = deterministic(make_train_steps(trainer, make_batch, trainer.config.steps))
    return programs, jax.device_put(arrays, layout.replicated)


def decode(
    model: Model,
    params: Params,
    prompts: Sequence[Sequence[int]],
    max_tokens: int,
    *,
    first_token: int | None = 0,
    end_token: int | Sequence[int] | None = None,
    sources: Sequence[Sequence[int]] | None = None,
    banned: Sequence[Sequence[int]] = (),
    prefix: Sequence[int] = (),
    draft: Sequence[Any] | None = None,
    seed: int = 0,
    **keys: Any,
) -> list[list[int]]:
    """Continues prompts of tokens with a model that generates. It compiles once for each shape of prompts.

        fxf.decode(model, params, [[3, 4], [9]], max_tokens=5, temperature=0.8)

    Args:
      prompts: lists of tokens, which may differ in length and may be empty.
      max_tokens: maximum number of new tokens for each prompt.
      first_token: the token that the model reads before each prompt; None for none, and then no prompt may be empty.
      end_token: the token that ends an answer, or several; without it only the rules end one before `max_tokens`.
      sources: the encoder's tokens, a list for each prompt.
      banned, prefix: sequences of tokens that no answer contains; the tokens that each answer begins with.
      draft: (model, params) or (model, params, n): a smaller model of the same tokens, which drafts n, by default 4.
      seed: the seed of sampling, which a temperature above 0 turns on.
      keys: the others of the config's `decode` section, such as `temperature`, `top_k` and `beam_width`.

    Returns:
      The new tokens of each prompt, the best of a beam, without the end token: `max_tokens` if it did not come.

    Raises:
      UserError: a key is unknown or has a wrong value; or the model does not generate, or lacks a token or a position.
    """
    if _checked_model(model).prefill is None:
        raise UserError("model: cannot generate tokens, because it has no prefill and step")
    require_params(model, params)
    ends = _lists("end_token", [np.atleast_1d(() if end_token is None else end_token)])[0] or [task.NO_END]
    require_keywords(decode, keys, defaults(DecodeConfig))
    method = section(DecodeConfig, changed_decode(defaults(DecodeConfig), keys), "decode")
    if method.ends:
        raise UserError("decode.ends: words are for a task on text; give end_token here")
    read = _read(prompts, sources, banned, prefix, first_token)
    if not read["prompt"] or (max_tokens := checked(max_tokens, Field(int, {"minimum": 0}), "max_tokens")) == 0:
        return [[] for _ in read["prompt"]]
    rules = Words(read["banned"], next(iter(read["prefix"]), []), -1 if first_token is None else first_token)
    programs = {} if draft else _programs_of(model, params, (method, ends, rules))
    options: Any = {"config": method, "seed": seed, "words": rules, "programs": programs}
    params, (model, narrow) = model.to_plain(params), stored_as(method.weights, model.plain)
    require_texts(model, params := narrow(params), read, max(ends), programs)
    n_tokens, room = max(map(len, read["prompt"])), model.max_len  # the last new token is not read
    if room is not None and n_tokens + (0 if model.rolls and method.beam_width == 1 else max_tokens - 1) > room:
        raise UserError(f"max_tokens: {n_tokens} tokens and {max_tokens} more exceed model.max_len {room}")
    decoder = Decoder(model, ends, **options) if draft is None else Speculative(draft, model, ends, **options)
    rows: dict[str, Any] = padded_prompts(read["prompt"])
    if sources := read["source"]:
        rows["source"], rows["source_mask"] = padded(sources, len(sources), max(map(len, sources)))
    return [before_end(answer, ends[0]) for answer in decoder(params, rows, max_tokens)[0][:, 0].tolist()]


def _programs_of(model: Model, params: Params, rules: Any) -> dict[Any, Any]:
    """Returns the dict of compiled programs that decode by a model's functions, weights of these types, and rules."""
    types = tuple((jax.typeof(w), getattr(w, "sharding", None)) for w in jax.tree.leaves(params))
    return _programs(*model[1:-1], types, str(rules))  # without the specs, which have no hash


@functools.lru_cache(maxsize=8)
def _programs(*_: Any) -> dict[Any, Any]:
    return {}


def _read(prompts: Any, sources: Any, banned: Any, prefix: Any, first_token: int | None) -> dict[str, list[list[int]]]:
    """Returns the tokens of prompts, sources and the rules of answers as lists of ints."""
    first = [] if first_token is None else _lists("first_token", [[first_token]])[0]
    texts, read = _lists("prompts", prompts), _lists("sources", () if sources is None else sources)
    if sources is not None and len(read) != len(texts):
        raise UserError(f"sources: expected one for each of {len(texts)} prompts, got {len(read)}")
    of_rules = {"banned": _lists("banned", banned), "prefix": _lists("prefix", [prefix] if np.size(prefix) else [])}
    return {"prompt": [[*first, *prompt] for prompt in texts], "source": read, **of_rules}


def _lists(name: str, rows: Any) -> list[list[int]]:
    """Returns lists of tokens, or rows of an array, as lists of ints. Raises a UserError if they are none."""
    try:
        return [[*map(operator.index, row)] for row in rows]
    except TypeError:
        got = shortened(" ".join(repr(rows).split()), 60)
        raise UserError(f"{name}: expected lists of tokens, as [[3, 4], [5]], got {got}") from None


def _checked_model(model: Any) -> Model:
    """Returns the model. Raises a UserError if it is none."""
    if not isinstance(model, Model):
        raise UserError(f"model: expected one that fxf.model returns, got a {type(model).__name__}")
    return model
