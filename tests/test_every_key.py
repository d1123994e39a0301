"""Every key of every section changes something that the user sees; unknown names are refused."""

import ast
import dataclasses
import functools
import itertools
import json
import re
import tempfile
from inspect import get_annotations
from pathlib import Path
from typing import Any
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from fxf.base.errors import UserError
from fxf.base.weights import initialize, leaves, shapes
from fxf.interop.weights_file import save_weights
from fxf.models import MODELS
from fxf.models.decoder import Decoder
from fxf.runs.evaluator import Evaluators
from fxf.runs.experiment import SECTIONS, build, default_config
from fxf.runs.generation import Answering
from fxf.runs.warm_start import start_of
from fxf.sweeps.points import make_points
from fxf.tasks import TASKS
from fxf.tasks.task import Evaluator
from fxf.training import hang
from fxf.training.gradient import batch_loss
from fxf.training.state import TrainState, run_keys
from fxf.training.step import make_step
from helpers import in_groups, one_device, random_params, scaled, table, values
from small_runs import KEPT, ROOT, records, trained, without_times


def cases():
    """Returns {owner: {key: (another value, keys under which it is read, how it is refused or "")}} of keys.txt."""
    found: dict[str, dict[str, Any]] = {}
    for line in Path(__file__).with_name("keys.txt").read_text().splitlines():
        if line.startswith("# "):
            of_owner = found.setdefault(line[2:], {})
        elif line and line[0] != ";":
            line, _, refusal = line.partition("  ! ")
            line, _, under = line.partition("  under ")
            key, _, value = line.partition(" = ")
            of_owner[key] = ast.literal_eval(value), tuple(values(under).items()), refusal
    return found


CASES = cases()
STAGES = dict(re.findall(r"^; ([\w.]+): ([\w ]+)$", Path(__file__).with_name("keys.txt").read_text(), re.MULTILINE))
BOOLEAN_MAP = "primer.boolean_map:BOOLEAN_MAP"  # the smallest experiment, which most sections can change

TINY = {name: keys for keys, name in table("small configs of tasks")}


@pytest.fixture(scope="module", autouse=True)
def files(tmp_path_factory):
    """The texts that the configs name, in the working directory."""
    folder = tmp_path_factory.mktemp("files")
    texts = {
        "text.txt": "".join(f"Text {i}\n" for i in range(70)),
        "other.txt": "".join(f"Other {i}\n" for i in range(60)),
        "pairs.txt": "".join(f"Sentence {i}.\tPhrase {i} {i}.\n" for i in range(17)),
    }
    texts["lines.jsonl"] = "".join(json.dumps({"text": f"Text {i}", "title": f"{i}"}) + "\n" for i in range(70))
    texts["bad.txt"] = "no tab\n" + texts["pairs.txt"]
    for path, (n, split), language in itertools.product("ab", enumerate("xyz", 1), ("en", "fr", "de")):
        texts[f"{path}/{split}.{language}"] = f"{path} {split} {' '.join([language] * n)}\n" * (4 - n)
    for name, text in texts.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.syspath_prepend(ROOT / "configs")
        patch.setenv("TFDS_DATA_DIR", str(folder / "tfds"))
        params = random_params(build(plain_config("boolean_map")).model.spec)
        save_weights(folder / "params.safetensors", params)
        save_weights(folder / "more.safetensors", {**params, "more": np.ones(1, np.float32)})
        yield


def keys_of(owner):
    """Returns {key: declaring class} for a model, a task or, as "", for all experiments."""
    owner = BOOLEAN_MAP if owner == "boolean_map" else owner
    sections = TASKS[owner].sections if owner in TASKS else {"model": MODELS[owner][0]} if owner else SECTIONS
    return {
        f"{section}.{field.name}": next(c for c in cls.__mro__ if field.name in get_annotations(c))
        for section, cls in sections.items()
        for field in dataclasses.fields(cls)
        if field.name not in ("layers", "sources")  # contain sections of keys
    }


def test_every_key_has_a_case():
    there_are = {(cls, key) for owner in ("", *MODELS, *TASKS, "boolean_map") for key, cls in keys_of(owner).items()}
    common = keys_of("")
    cases = {((common | keys_of(owner)).get(key), key) for owner, keys in CASES.items() for key in keys}
    differing = sorted(key for _, key in (there_are | {(None, "seed")}) ^ cases)
    assert not differing, f"keys.txt has no case for a key, or one for no key: {differing}"


def plain_config(owner, under=()):
    """Returns the small config of a task, or of a model's task, with the keys `under` changed."""
    task = owner if owner in TINY else next(name for name, task in TASKS.items() if task.models[0] == owner)
    named = BOOLEAN_MAP if task == "boolean_map" else task
    return make_points(default_config(named).to_dict(), [TINY[task] | dict(under)])[0].config


@functools.cache
def experiment_of(config):
    return build(json.loads(config))


def spec(experiment):
    return {path: (weight.shape, weight.axes) for path, weight in leaves(experiment.model.spec)}


def batches(experiment):
    task = experiment.task
    if task.has("batches"):
        return [*itertools.islice(task.batches(), 3)]
    return traced(task.batch, jax.random.key(0), np.int32(0))


def traced(function, *arguments):
    """Returns the traced program with its constants: equal ones compute the same."""
    program = jax.make_jaxpr(function)(*arguments)
    return re.sub("0x[0-9a-f]+", "", str(program)), program.consts


def parts_of_a_step(experiment):
    return shapes(experiment.model.spec), experiment.task.largest_batch(), jax.random.key(1)


def loss(experiment):
    smoothing = experiment.hyperparameters().label_smoothing
    return traced(lambda *parts: batch_loss(experiment.model, *parts, smoothing), *parts_of_a_step(experiment))


def logits(experiment):
    return traced(experiment.model.apply, *parts_of_a_step(experiment)[:2])


def initial(experiment):
    return traced(lambda: initialize(experiment.model.spec, run_keys(experiment.seed).params))


def start(experiment):
    """Returns what the run starts from, or the error."""
    try:
        return start_of(experiment, one_device(), Path("run"))._replace(lines=())
    except UserError as error:
        return str(error)


def update(experiment):
    """Returns the optimizer's part of a step, which traces much faster."""
    params, numbers = shapes(experiment.model.spec), experiment.hyperparameters().optimizer
    optimizer = optax.with_extra_args_support(experiment.optimizer)
    state = jax.eval_shape(optimizer.init, params)
    return traced(lambda *arguments: optimizer.update(*arguments, numbers=numbers), params, state, params)


def steps(experiment):
    params, batch, _ = parts_of_a_step(experiment)
    state = TrainState(jnp.int32(0), params, jax.eval_shape(experiment.optimizer.init, params))
    numbers, trainer = experiment.hyperparameters(), experiment.trainer(one_device())
    return traced(lambda state, batch: make_step(trainer)(state, batch, numbers), state, batch)


def metrics(experiment):
    """Returns the task's facts about its data, and the scores of a model with constant output."""
    task = experiment.task
    always_V = np.cos(np.arange(task.vocab_size))

    def decode(prompts, max_tokens):
        return np.full((len(prompts["tokens"]), 1, max_tokens), 5), None

    def loss_sums(batch):
        return float((batch["targets"] * batch["weights"]).sum()), float(batch["weights"].sum())

    evaluator = Evaluator(
        in_groups(decode), loss_sums, lambda batch: np.tile(always_V, (*batch["inputs"].shape[:2], 1))
    )
    return task.figures(), task.validate(evaluator), task.test(evaluator)


def prepared(experiment):
    """Returns the folder of prepared tokens; "" for none."""
    documents = experiment.config["data"]["format"] != "text"
    return str(experiment.task.prepared[""].folder) if documents else ""


def decoder(experiment):
    """Returns the program that continues prompts; "answers" has its output."""
    made = Decoder(experiment.model, config=experiment.decode, **experiment.task.rules(experiment.decode))
    prompts = {"tokens": np.zeros((5, 3), np.int32), "lengths": np.ones(5, np.int32)}
    return traced(functools.partial(made.search, max_tokens=9), shapes(experiment.model.spec), prompts, made.key)


def watched(experiment):
    """Returns the arguments of the thread that watches steps."""
    with mock.patch.object(hang, "Thread") as thread, hang.watched(0, 60.0, experiment.log.hang):
        return str(thread.call_args.kwargs["args"][:3])


def stored(experiment):
    """Returns the shapes of the params that evaluation and generation read."""
    layout = one_device()
    return jax.tree.map(str, Evaluators(experiment, layout).shapes(experiment.state_shapes(layout).params))


PROMPTS = [f"{first} {second}" for first in range(1, 6) for second in range(1, 6)]


def answers(experiment):
    # Large weights, so that some hypotheses of a beam end early.
    params = scaled(random_params(experiment.model.spec), 4)
    return Answering(experiment, params, max_tokens=9)(PROMPTS)


def finished_run(experiment):
    """Returns the contents of the run's folder, without times."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        untimed = without_times([trained(experiment.config, folder, kept=KEPT), *records(folder)])
        names = sorted(str(path.relative_to(folder)) for path in folder.glob("*"))
        return untimed, names, sorted(path.name for path in (folder / "checkpoints").iterdir())


def stages_of(key):
    """Returns the functions that must show a key's effect, as keys.txt says for it or its section."""
    return [globals()[name] for name in (STAGES.get(key) or STAGES[key.split(".")[0]]).split()]


@functools.cache
def seen(stage, config):
    return jax.tree.map(np.asarray, stage(experiment_of(config)))


def same(a, b):
    """Returns whether two trees of numbers and names are equal up to rounding."""

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
            experiment_of(after).layout()
        return
    assert not all(same(seen(stage, before), seen(stage, after)) for stage in stages_of(key)), f"nothing reads {key}"


@pytest.mark.thorough
def test_the_same_config_gives_the_same_observations():
    """Otherwise any key would seem to change something."""
    owners = {stage: owner for owner in reversed(CASES) for key in CASES[owner] for stage in stages_of(key)}
    for stage, owner in owners.items():
        config = json.dumps(plain_config(owner))
        again = jax.tree.map(np.asarray, stage(build(json.loads(config))))
        assert same(seen(stage, config), again), stage.__name__
