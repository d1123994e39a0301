"""Every key of every section changes something that the user sees; a name can only be another one, or is refused."""

import dataclasses
import functools
import itertools
import json
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fxf import run
from fxf.config import flatten
from fxf.errors import UserError
from fxf.experiment import SECTIONS, build, default_config
from fxf.models import MODELS
from fxf.sweep import make_points
from fxf.tasks import TASKS
from fxf.tasks.task import Scorer
from fxf.training.metrics import Clock
from fxf.training.step import TrainState, batch_loss, run_keys, train_step
from fxf.weights import initialize, leaves
from helpers import random_params


class Case(NamedTuple):
    """Another value for a key, the other keys under which it is read, and how the value is refused if it must be."""

    value: Any
    under: tuple[tuple[str, Any], ...] = ()
    refusal: str = ""


def case(value, /, refusal="", **sections):
    """Returns a case under the changes of `sections`, for example model={"n_layers": 2}."""
    return Case(value, tuple(flatten(sections)), refusal)


NAME = {name: case("another", refusal=rf"^{name}\.name: expected one of") for name in ("task", "model")}

TRANSFORMER = {
    "model.name": NAME["model"],
    "model.n_layers": case(2),
    "model.d_model": case(12),
    "model.d_ff": case(5),
    "model.n_heads": case(2),
    "model.n_kv_heads": case(1),
    "model.max_len": case(19),
    "model.dropout": case(0.5),
    "model.embedding_dropout": case(0.5),
    "model.attention_dropout": case(0.5),
    "model.block": case("post_norm"),
    "model.final_norm": case(False),
    "model.norm_epsilon": case(0.1),
    "model.norm_epsilon_in": case("variance", model={"norm_epsilon": 0.1}),
    "model.norm": case("rms"),
    "model.positions": case("sinusoidal", model={"positions": "sinusoidal_concatenated"}),
    "model.position_range": case(29, model={"positions": "sinusoidal"}),
    "model.position_stretch": case(3.0, model={"positions": "sinusoidal"}),
    "model.attention": case("expressive"),
    "model.feature_map": case("relu", model={"attention": "linear"}),
    "model.window": case(2),
    "model.qk_norm": case(True),
    "model.activation": case("silu"),
    "model.gated": case(True),
    "model.logit_softcap": case(0.3),
    "model.attention_bias": case("all"),
    "model.init": case("gpt2"),
    "model.scan_blocks": case(True, model={"n_layers": 3}),
}
LANGUAGE_MODEL = {**TRANSFORMER, "model.tied_embeddings": case(True)}
TEXT = {
    "data.path": case("other.txt"),
    "data.validation": case(0.3),
    "data.test": case(0.3),
    "data.lower_case": case(True),
    "data.tokenizer": case("word"),
    "data.vocab_size": case(9),
}
PAIRS, BAD_PAIRS = ({"name": "pairs", "path": path} for path in ("pairs.txt", "bad.txt"))
PARALLEL = {"name": "parallel", "path": "a", "train": "x", "validation": "y", "test": "y"}

# The keys of each model and of each task, and among those of a task the common ones that are shown with it.
CASES: dict[str, dict[str, Case]] = {
    "transformer_lm": LANGUAGE_MODEL,
    "masked_lm": LANGUAGE_MODEL,
    "encoder_decoder": {**TRANSFORMER, "model.embeddings": case("shared"), "model.cross_norm": case("source")},
    "bilayer": {
        "model.name": NAME["model"],
        "model.n_layers": case(2),
        "model.max_len": case(7),
        "model.expand": case(3),
        "model.copies": case(2),
    },
    "reversal": {
        "task.name": NAME["task"],
        "task.n_tokens": case(7),
        "task.min_length": case(2),
        "task.max_length": case(4),
        "task.longer": case(2),
        "task.longer_every": case(2, task={"longer": 3}),
        "task.examples": case(11, task={"n_tokens": 47, "examples": 13}),
        "train.batch_size": case(6),
        "train.microbatches": case(2, model={"dropout": 0.5}),
        "train.label_smoothing": case(0.3),
        "decode.temperature": case(2.0),
        "decode.top_k": case(2, decode={"temperature": 2.0}),
        "decode.top_p": case(0.3, decode={"temperature": 2.0}),
        "decode.beam_width": case(3),
        "decode.length_penalty": case(0.0, decode={"beam_width": 2}),
        "decode.early_stop": case(False, decode={"beam_width": 2}),
    },
    "time_series": {
        "task.name": NAME["task"],
        "task.base": case(5),
        "task.delay": case(2),
        "task.length": case(6),
        "task.examples": case(3),
    },
    "boolean_map": {
        "task.name": NAME["task"],
        "task.positions": case(3),
        "task.dim": case(3),
        "seed": case(1),
        "optimizer.name": case("nadamw"),
        "optimizer.learning_rate": case(0.3),
        "optimizer.schedule": case("linear"),
        "optimizer.warmup_steps": case(2),
        "optimizer.final_learning_rate": case(0.05, optimizer={"schedule": "linear"}),
        "optimizer.b1": case(0.3),
        "optimizer.b2": case(0.3),
        "optimizer.eps": case(0.1),
        "optimizer.momentum": case(0.5, optimizer={"name": "sgd"}),
        "optimizer.weight_decay": case(0.1, optimizer={"name": "adamw"}),
        "optimizer.clip_norm": case(0.1, optimizer={"name": "sgd"}),
        "train.steps": case(4),
        "train.evaluate_every": case(1),
        "train.patience": case(1, train={"evaluate_every": 1}, checkpoint={"best": "solved"}),
        "checkpoint.every": case(2),
        "checkpoint.keep": case(1, checkpoint={"every": 1}),
        "checkpoint.best": case("solved", train={"evaluate_every": 1}),
        "checkpoint.average": case(2, checkpoint={"every": 1}),
        "log.every": case(1),
        "log.tensorboard": case(True),
    },
    "characters": {"task.name": NAME["task"], "task.length": case(7), "task.score": case("last"), **TEXT},
    "masking": {"task.name": NAME["task"], "task.length": case(7), "task.share": case(0.5), **TEXT},
    "translation": {
        "task.name": NAME["task"],
        "task.tokenized": case(True),
        "data.name": case("phrasebook"),
        "data.path": case("b", data=PARALLEL),
        "data.source": case("de", data=PARALLEL),
        "data.target": case("de", data=PARALLEL),
        "data.train": case("y", data=PARALLEL),
        "data.validation": case("x", data=PARALLEL),
        "data.test": case("x", data=PARALLEL),
        "data.held_out": case(0.4, data=PAIRS),
        "data.lower_case": case(True, data=PAIRS),
        "data.tokenizer": case("character", data={"max_length": 41}, model={"max_len": 41}),
        "data.vocab_size": case(11),
        "data.max_length": case(5, data={"on_error": "skip"}),
        "data.on_error": case(
            "stop", data={**BAD_PAIRS, "on_error": "skip"}, refusal="^bad.txt:1: expected source TAB"
        ),
        "data.batch_tokens": case(11),
        "data.shapes": case(1),
    },
}

TINY_MODEL = {"n_layers": 1, "d_model": 6, "d_ff": 7, "n_heads": 3, "max_len": 17}
TINY: dict[str, dict[str, Any]] = {
    "reversal": {"task": {"n_tokens": 5, "max_length": 3}, "model": TINY_MODEL},
    "time_series": {"task": {"base": 3, "length": 5}, "model": TINY_MODEL},
    "boolean_map": {"model": {"n_layers": 1}, "optimizer": {"learning_rate": 0.1}},
    "characters": {"task": {"length": 8}, "data": {"path": "text.txt"}, "model": TINY_MODEL},
    "masking": {"task": {"length": 8}, "data": {"path": "text.txt"}, "model": TINY_MODEL},
    "translation": {"data": {"name": "six", "tokenizer": "word", "max_length": 17}, "model": TINY_MODEL},
}
COMMON = {"train": {"steps": 3, "batch_size": 4}, "log": {"every": 3, "tensorboard": False}}


@pytest.fixture(scope="module", autouse=True)
def files(tmp_path_factory):
    """The texts that the configs name, in the working folder."""
    folder = tmp_path_factory.mktemp("files")
    texts = {
        "text.txt": "".join(f"Text {i}\n" for i in range(70)),
        "other.txt": "".join(f"Other {i}\n" for i in range(60)),
        "pairs.txt": "".join(f"Sentence {i}\tPhrase {i} {i}\n" for i in range(17)),
    }
    texts["bad.txt"] = "no tab\n" + texts["pairs.txt"]
    for path, split, language in itertools.product("ab", "xy", ("en", "fr", "de")):
        texts[f"{path}/{split}.{language}"] = f"{path} {split} {language}\n" * (3 if split == "x" else 2)
    for name, text in texts.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("TFDS_DATA_DIR", str(folder / "tfds"))
        yield


def keys_there_are():
    """Yields (its model or task, or "" if it is common, the key) for all keys."""
    classes = [("", SECTIONS), *((name, {"model": cls}) for name, (cls, _) in MODELS.items())]
    classes += [(name, task.sections) for name, task in TASKS.items()]
    yield "", "seed"
    for owner, sections in classes:
        for section, cls in sections.items():
            yield from ((owner, f"{section}.{field.name}") for field in dataclasses.fields(cls))


def test_every_key_has_one_case():
    common = {"seed", *SECTIONS}
    cases = [("" if key.split(".")[0] in common else owner, key) for owner, keys in CASES.items() for key in keys]
    assert Counter(cases) == Counter(keys_there_are())


def plain_config(owner, under=()):
    """Returns the small config of a task, or of the task of a model, with the keys `under` changed."""
    task = owner if owner in TASKS else next(name for name, task in TASKS.items() if task.models[0] == owner)
    changes = dict(flatten({**COMMON, **TINY[task]}))
    return make_points(default_config(task).to_dict(), [changes | dict(under)])[0].config


@functools.cache
def experiment_of(config):
    return build(json.loads(config))


def spec(experiment):
    return {path: (weight.shape, weight.axes) for path, weight in leaves(experiment.model.spec)}


def batches(experiment):
    task = experiment.task
    if task.batches:
        made = task.batches()
        return [next(made) for _ in range(3)]
    return [task.batch(jax.random.key(i), i) for i in range(2)]


def loss_of(experiment):
    batch = {name: jnp.asarray(value) for name, value in batches(experiment)[0].items()}
    smoothing = experiment.train.label_smoothing
    return lambda params: batch_loss(experiment.model, params, batch, jax.random.key(1), smoothing)


def loss(experiment):
    return loss_of(experiment)(random_params(experiment.model.spec))


def initial(experiment):
    return initialize(experiment.model.spec, run_keys(experiment.seed)[0])


def program(experiment):
    """Returns the size of what XLA compiles."""
    lowered = jax.jit(loss_of(experiment)).lower(random_params(experiment.model.spec))
    return len(lowered.as_text().splitlines())


def steps(experiment):
    params = random_params(experiment.model.spec)
    state = TrainState(jnp.int32(0), params, experiment.optimizer.init(params))
    step = jax.jit(functools.partial(train_step, experiment.model, experiment.optimizer, experiment.train))
    metrics = []
    for i in range(3):
        state, figures = step(state, batches(experiment)[0], jax.random.key(i))
        metrics.append(figures)
    return state.params, metrics


def figures(experiment):
    """Returns what the task tells of its data, and the scores of a model that always says the same."""
    task = experiment.task
    always_V = np.cos(np.arange(task.vocab_size))

    def predict(prompts, max_tokens):
        return np.full((len(prompts["tokens"]), 1, max_tokens), 5), None

    def loss_sums(batch):
        return float((batch["targets"] * batch["weights"]).sum()), float(batch["weights"].sum())

    scorer = Scorer(predict, loss_sums, lambda batch: np.tile(always_V, (*batch["inputs"].shape[:2], 1)))
    return task.figures(), task.validate(scorer), task.test(scorer)


PROMPTS = [f"{first} {second}" for first in range(1, 6) for second in range(1, 6)]


def answers(experiment):
    # Weights so large that some hypotheses of a beam end early.
    params = jax.tree.map(lambda w: 4 * w, random_params(experiment.model.spec))
    return run.answers(experiment, params, PROMPTS, max_tokens=9)


def finished_run(experiment):
    """Returns what the run leaves in its folder, without times."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        clock = Clock(time.perf_counter())
        result = run.train(experiment.config, folder, clock, {"config_file": "", "overrides": {}})
        records = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
        untimed = [{k: v for k, v in row.items() if "second" not in k} for row in [result, *records]]
        names = sorted(str(path.relative_to(folder)) for path in folder.glob("*"))
        return untimed, names, sorted(path.name for path in (folder / "checkpoints").iterdir())


# Where a key, or the other keys of a section, are to be seen; the cheapest first.
STAGES = {
    "seed": (initial,),
    "model": (spec, loss),
    "model.init": (initial,),
    "model.scan_blocks": (program,),
    "task": (batches, figures),
    "data": (batches, figures),
    "optimizer": (steps,),
    "train": (finished_run,),
    "train.batch_size": (batches,),
    "train.microbatches": (steps,),
    "train.label_smoothing": (loss,),
    "decode": (answers,),
    "checkpoint": (finished_run,),
    "log": (finished_run,),
}


def stages_of(key):
    return STAGES.get(key) or STAGES[key.split(".")[0]]


@functools.cache
def seen(stage, config):
    return jax.tree.map(np.asarray, stage(experiment_of(config)))


def same(a, b):
    """Returns whether two trees of figures and names are the same, but for rounding."""

    def equal(x, y):
        numbers = np.issubdtype(x.dtype, np.number) and np.issubdtype(y.dtype, np.number)
        return x.shape == y.shape and (np.allclose(x, y, rtol=1e-4, atol=1e-6) if numbers else (x == y).all())

    return jax.tree.structure(a) == jax.tree.structure(b) and all(jax.tree.leaves(jax.tree.map(equal, a, b)))


@pytest.mark.parametrize(("owner", "key"), [(owner, key) for owner, keys in CASES.items() for key in keys])
def test_every_key_changes_something(owner, key):
    value, under, refusal = CASES[owner][key]
    config = plain_config(owner, under)
    (changed,) = make_points(config, [{key: value}])
    before, after = json.dumps(config), json.dumps(changed.config)
    assert before != after
    experiment_of(before)
    if refusal:
        with pytest.raises(UserError, match=refusal):
            experiment_of(after)
        return
    assert not all(same(seen(stage, before), seen(stage, after)) for stage in stages_of(key)), f"nothing reads {key}"


@pytest.mark.parametrize("owner", CASES)
def test_what_is_seen_of_the_same_config_is_the_same(owner):
    """Else any key would seem to change something."""
    config = json.dumps(plain_config(owner))
    for stage in dict.fromkeys(stage for key in CASES[owner] for stage in stages_of(key)):
        again = jax.tree.map(np.asarray, stage(build(json.loads(config))))
        assert same(seen(stage, config), again), stage.__name__
