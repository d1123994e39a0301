"""A config file is executed once, with the modules beside it; what it registers is recorded, and found again."""

import json
import sys
import time
from types import ModuleType

import pytest

from fxf.config import section
from fxf.errors import UserError
from fxf.layers.attention import ATTENTIONS
from fxf.layers.feed_forward import ACTIVATIONS
from fxf.models import MODELS
from fxf.runs import run, run_folder
from fxf.runs.command_line import read_config
from fxf.runs.config_file import line_of_file, load, load_of_run, origin_of
from fxf.runs.experiment import build
from fxf.tasks import TASKS
from fxf.tasks.text_metrics import METRICS
from fxf.training.log import Clock
from fxf.training.optimizer import OPTIMIZERS
from small_runs import ROOT, new_process, script, tiny_config

REGISTERS = "from fxf.layers.feed_forward import ACTIVATIONS\n\nACTIVATIONS['{}'] = lambda x: {} * x\n"
SECTION = (
    "import dataclasses\nfrom fxf.tasks import TASKS, RegisteredTask\n\n@dataclasses.dataclass\nclass Mine:\n    {}\n\n"
    "TASKS['mine'] = RegisteredTask({{'task': Mine}}, abs, ('transformer_lm',))\n"
)
CONFIG = (
    "from fxf.runs.experiment import default_config\n\n\ndef get_config():\n    return default_config('reversal')\n"
)


@pytest.fixture(autouse=True)
def process():
    with new_process():
        yield


def write(path, text):
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    return path


def doubling(folder, factor=2, rest=CONFIG):
    return write(folder / "mine.py", REGISTERS.format("scaled", factor) + rest)


def origin(path):
    return {"config_file": str(path), "overrides": {}, **load(path).origin()}


def test_a_file_is_executed_once_in_a_process(tmp_path):
    path = write(tmp_path / "mine.py", f"import sys\n\nsys.executions.append(1)\n{CONFIG}")
    sys.executions = []
    assert load(path).call("get_config").seed == load(str(path)).call("get_config").seed == 0
    assert sys.executions == [1]
    del sys.executions


def test_a_copy_of_a_file_registers_nothing_twice(tmp_path):
    loaded = load(doubling(tmp_path / "a"))
    first = ACTIVATIONS["scaled"]
    assert load(doubling(tmp_path / "b")).registered == loaded.registered == {("activation", "scaled")}
    assert ACTIVATIONS["scaled"] is first
    with pytest.raises(UserError, match=r"mine.py: activation 'scaled' is registered already; choose another name"):
        load(doubling(tmp_path / "c", factor=3))
    assert ACTIVATIONS["scaled"] is first


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (REGISTERS.format("relu", 2), "mine.py: activation 'relu' is registered already; choose another name"),
        (2 * REGISTERS.format("scaled", 2), "mine.py: activation 'scaled' is registered twice, again in line"),
        (REGISTERS.format("a,b", 2), "mine.py: activation 'a,b': expected a name without spaces and commas"),
        (REGISTERS.format("", 2), "mine.py: activation '': expected a name without spaces and commas"),
        ("class Stop(BaseException):\n    pass\n\n\nraise Stop('x')\n", "mine.py:5: .*Stop: x"),
        (REGISTERS.format("scaled", 2) + "1 / 0\n", "mine.py:4: ZeroDivisionError: division by zero"),
        ("import beside\n", "beside.py:4: ZeroDivisionError: division by zero"),
        (
            "from fxf.runs.experiment import default_config\n\ndefault_config('revers')\n",
            r"mine.py:3: task.name: .*'rev",
        ),
        ("import beside.more\n\ndef get_config(:\n", "mine.py:3: SyntaxError: invalid syntax$"),
        ("import cut\n", "cut.py:1: SyntaxError: '\\(' was never closed$"),
        ("import circle\n", "back.py:1: ImportError: cannot import name 'b' from 'back'"),
        ("def f():\n    f()\n\nf()\n", "mine.py:2: RecursionError"),
        ("assert False\n", "mine.py:1: AssertionError$"),
        ("import no_such_module\n", "mine.py:1: ModuleNotFoundError: No module named 'no_such_module'$"),
        (f"x = {'-' * 100_000}1\n", "mine.py: (MemoryError|RecursionError)"),
    ],
)
def test_a_wrong_file_is_one_line_and_leaves_nothing_registered(text, message, tmp_path):
    before = dict(ACTIVATIONS)
    write(tmp_path / "beside.py", REGISTERS.format("scaled", 2) + "1 / 0\n")
    write(tmp_path / "cut.py", "x = (\n")
    write(tmp_path / "circle.py", "from back import b\n\na = 1\n")
    write(tmp_path / "back.py", "from circle import a\n\nb = 1\n")
    with pytest.raises(UserError, match=message) as error:
        load(write(tmp_path / "mine.py", text))
    assert "\n" not in str(error.value)
    assert before == ACTIVATIONS


def test_what_only_get_config_registers_is_refused(tmp_path):
    text = "def get_config():\n    from fxf.layers.feed_forward import ACTIVATIONS\n\n    ACTIVATIONS['late'] = abs\n"
    loaded = load(write(tmp_path / "mine.py", text))
    with pytest.raises(UserError, match="get_config registers activation 'late'; do that at the top of the file"):
        loaded.call("get_config")
    assert "late" not in ACTIVATIONS


def test_each_folder_has_its_own_modules(tmp_path):
    for name, factor in (("a", 2), ("b", 3)):
        write(tmp_path / name / "kinds.py", f"FACTOR = {factor}\n")
        write(tmp_path / name / "parts" / "__init__.py", "from parts.inner import FACTOR\n")
        write(tmp_path / name / "parts" / "inner.py", f"FACTOR = {factor}\n")
        write(tmp_path / name / "mine.py", "import kinds\nimport parts\n\ndef get_config():\n    import kinds as late\n"
                                           "    return kinds.FACTOR, parts.FACTOR, late.FACTOR\n")  # fmt: skip
    a, b, again = (load(tmp_path / name / "mine.py") for name in ("a", "b", "a"))
    assert a.call("get_config") == (2, 2, 2)
    assert b.call("get_config")[:2] == (3, 3)
    assert again is a
    assert list(a.digests) == ["mine.py", "kinds.py", "parts/__init__.py", "parts/inner.py"]
    assert not any(str(tmp_path) in place for place in sys.path)


def test_modules_that_import_each_other_are_executed(tmp_path):
    write(tmp_path / "one.py", "import two\n")
    write(tmp_path / "two.py", "import one\n" + REGISTERS.format("scaled", 2))
    assert load(write(tmp_path / "mine.py", "import one\n")).registered == {("activation", "scaled")}


def test_only_files_that_register_something_count_with_what_they_import(tmp_path):
    write(tmp_path / "factor.py", "FACTOR = 2\n")
    write(tmp_path / "kinds.py", f"from factor import FACTOR\n{REGISTERS.format('scaled', 'FACTOR')}")
    mine = write(tmp_path / "mine.py", f"import kinds\n{CONFIG}")
    other = write(tmp_path / "other.py", f"import kinds\nimport factor\n{CONFIG}")
    plain = write(tmp_path / "plain.py", f"import factor\n{CONFIG}")
    assert list(load(mine).recorded_digests()) == list(load(other).recorded_digests()) == ["kinds.py", "factor.py"]
    assert load(plain).origin() == {}


def test_a_file_that_registers_nothing_may_change_in_a_process(tmp_path):
    path = write(tmp_path / "mine.py", CONFIG)
    load(path)
    write(path, CONFIG.replace("reversal", "time_series"))
    assert load(path).call("get_config").task.name == "time_series"


def test_a_file_that_registers_something_may_not_change_in_a_process(tmp_path):
    load(doubling(tmp_path))
    with pytest.raises(UserError, match="changed since this process executed it; start another process"):
        load(doubling(tmp_path, factor=3))


def test_a_config_file_can_be_imported_by_another(tmp_path):
    load(doubling(tmp_path))
    other = load(write(tmp_path / "other.py", "from mine import get_config\n"))
    assert other.registered == {("activation", "scaled")}
    assert other.call("get_config").task.name == "reversal"


def train(path, workdir, **sections):
    config = tiny_config(model={"activation": "scaled"}, **sections)
    return run.train(config, workdir, Clock(time.perf_counter()), origin(path))


def opened(workdir, path):
    """Writes the run's config as training does."""
    workdir.mkdir(exist_ok=True)
    recorded = origin(path)
    digests = recorded.get("registered_by", {}).get("sha256", {})
    return run_folder.open_for_training(workdir, tiny_config(), digests, {}, recorded)


def registered_by(workdir):
    return run_folder.read_config(workdir)[2]


def test_the_run_records_where_the_file_is_and_its_digest(tmp_path):
    path = doubling(tmp_path)
    opened(tmp_path / "run", path)
    assert registered_by(tmp_path / "run") == {
        "path": str(path), "registers": ["activation 'scaled'"], "sha256": load(path).recorded_digests(),
    }  # fmt: skip
    opened(tmp_path / "plain", write(tmp_path / "plain.py", CONFIG))
    assert registered_by(tmp_path / "plain") is None


def test_a_run_whose_file_registers_nothing_executes_nothing(tmp_path):
    path = write(tmp_path / "mine.py", CONFIG)
    opened(tmp_path / "run", path)
    path.unlink()
    load_of_run(tmp_path / "run", registered_by(tmp_path / "run"), None)


def test_a_changed_file_is_named_and_refused_by_a_resume_alone(tmp_path, caplog):
    path, workdir = doubling(tmp_path), tmp_path / "run"
    opened(workdir, path)
    old = load(path).recorded_digests()["config file"][:8]
    with new_process():
        doubling(tmp_path, factor=3)
        new = load(path).recorded_digests()["config file"][:8]
        load_of_run(workdir, registered_by(workdir), None)
        assert f"mine.py changed since the run began: config file ({old} there, {new} here)" in caplog.text
        with pytest.raises(
            UserError, match=rf"content of config file \({old} there, {new} here\); use another --workdir"
        ):
            opened(workdir, path)


def test_a_moved_file_is_named_and_found_where_the_user_says(tmp_path):
    path, workdir = doubling(tmp_path), tmp_path / "run"
    opened(workdir, path)
    with new_process():
        moved = path.rename(tmp_path / "renamed.py")
        message = rf"the run's config file {path}, which registers activation 'scaled', is missing; .*--config=FILE"
        with pytest.raises(UserError, match=message):
            load_of_run(workdir, registered_by(workdir), None)
        load_of_run(workdir, registered_by(workdir), moved)
        assert "scaled" in ACTIVATIONS
        opened(workdir, moved)
    assert registered_by(workdir)["path"] == str(moved)
    changes = json.loads((workdir / "config.json").read_text())["changes"]
    assert [change["registered_by"]["path"] for change in changes] == [str(moved)]


def test_code_in_a_run_folder_is_never_executed(tmp_path):
    path, workdir = doubling(tmp_path), tmp_path / "run"
    opened(workdir, path)
    record = registered_by(workdir)
    inside = write(workdir / "mine.py", "1 / 0\n")
    (tmp_path / "link.py").symlink_to(inside)
    for place in (inside, workdir / ".." / "run" / "mine.py", tmp_path / "link.py"):
        with pytest.raises(UserError, match="lies in the run folder, whose code is never executed"):
            load_of_run(workdir, {**record, "path": str(place)}, None)
    with pytest.raises(UserError, match="lies in the run folder, whose code is never executed"):
        train(doubling(tmp_path / "new"), tmp_path / "new")
    assert not (tmp_path / "new" / "config.json").exists()


@pytest.mark.thorough  # every time functions above do, and another process in tests/face/test_runs.py
def test_scripts_find_the_file_again_or_are_told_of_it(tmp_path):
    path, workdir = doubling(tmp_path), tmp_path / "run"
    train(path, workdir)
    assert script("generate", f"--workdir={workdir}", "1 2").returncode == 0
    moved = path.rename(tmp_path / "renamed.py")
    refused = script("evaluate", f"--workdir={workdir}")
    assert refused.returncode == 2
    assert refused.stderr.startswith(f"error: {workdir}: the run's config file {path}, which registers")
    evaluated = script("evaluate", f"--workdir={workdir}", f"--config={moved}")
    assert (evaluated.returncode, evaluated.stderr) == (0, "")
    absent = script("evaluate", f"--workdir={workdir}", f"--config={path}")
    assert (absent.returncode, absent.stderr) == (
        2,
        f"error: --config: no file {path}; did you mean '{moved}'?\n",
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "from fxf.layers.attention import ATTENTIONS\n\nATTENTIONS['mine'] = abs\n",
            "mine.py: attention 'mine': expected fxf.layers.attention_kinds.Attention, got builtin_function_or_method",
        ),
        (
            "from fxf.tasks import TASKS\n\nTASKS['mine'] = ({}, int, ())\n",
            "task 'mine': expected fxf.tasks.RegisteredTask, got tuple",
        ),
        (
            "from fxf.tasks.text_metrics import METRICS\n\nMETRICS['mine'] = 3\n",
            "metric 'mine': expected a function, got int",
        ),
        ("from fxf.tasks.text_metrics import METRICS\n\nMETRICS[3] = abs\n", "metric 3: expected a str for its name"),
        (
            "from fxf.models import MODELS, RegisteredModel\n\nMODELS['mine'] = RegisteredModel(3, abs)\n",
            "model 'mine': section 'model': expected a dataclass, got 3",
        ),
        (
            "from fxf.tasks import TASKS, RegisteredTask\n\nTASKS['mine'] = RegisteredTask({}, abs, ('bilayer',))\n",
            "task 'mine': expected a section 'task' among its own, got none",
        ),
        (
            "from fxf.tasks import TASKS, RegisteredTask\n\n"
            "TASKS['mine'] = RegisteredTask({'train': 3}, abs, ('bilayer',))\n",
            "task 'mine': section 'train' is one of fxf's own; choose another name",
        ),
        (
            SECTION.replace("('transformer_lm',)", "()").format("name: str = 'mine'"),
            "task 'mine': expected the names of models that fit it, got none",
        ),
        (SECTION.format("name: str"), "task 'mine': section 'task': Mine.name has no default"),
        (SECTION.format("name: list = None"), "Mine.name: expected bool, int, float, str or a Literal"),
        (SECTION.format("name: 'Absent' = ''"), "NameError: name 'Absent' is not defined"),
        (SECTION.format("x: int = 3"), "task 'mine': section 'task': Mine has no key name"),
        (
            "import dataclasses, optax\nfrom fxf.training.optimizer import OPTIMIZERS, RegisteredOptimizer\n\n"
            "@dataclasses.dataclass\nclass Mine:\n    x: int = 3\n\n"
            "OPTIMIZERS['mine'] = RegisteredOptimizer(optax.sgd, (), Mine)\n",
            "optimizer 'mine': expected a subclass of OptimizerConfig, got Mine",
        ),
    ],
)
def test_an_entry_that_is_none_of_its_registry_is_one_line(text, message, tmp_path):
    before = dict(ATTENTIONS), dict(TASKS), dict(METRICS), dict(MODELS), dict(OPTIMIZERS)
    with pytest.raises(UserError, match=message) as error:
        load(write(tmp_path / "mine.py", text))
    assert "\n" not in str(error.value)
    assert before == (ATTENTIONS, TASKS, METRICS, MODELS, OPTIMIZERS)


def test_a_file_that_the_program_imported_is_named(tmp_path, monkeypatch):
    path = doubling(tmp_path)
    monkeypatch.setitem(ACTIVATIONS, "scaled", abs)
    monkeypatch.setitem(sys.modules, "mine", ModuleType("mine"))
    monkeypatch.setattr(sys.modules["mine"], "__file__", str(path), raising=False)
    with pytest.raises(UserError, match="'scaled' is registered already; the program executed this file itself"):
        load(path)


def test_a_config_file_in_a_folder_whose_name_has_a_space_is_found(tmp_path):
    path = write(tmp_path / "sp ace" / "mine.py", CONFIG)
    for flags in ([f"--config={path}"], ["--config", path]):
        listed = script("keys", *flags)
        assert (listed.returncode, listed.stderr) == (0, "")


def test_a_plain_dataclass_is_a_section(tmp_path):
    load(write(tmp_path / "mine.py", SECTION.format("name: str = 'mine'\n    x: int = 3\n    y: float = 0.5")))
    (cls,) = TASKS["mine"].sections.values()
    assert section(cls, {"name": "mine", "x": 4, "y": 1}, "task") == cls("mine", 4, 1.0)
    with pytest.raises(UserError, match=r"task.x: expected int, got 'a'"):
        section(cls, {"name": "mine", "x": "a", "y": 1}, "task")


def test_a_file_says_what_is_expected_of_an_argument(tmp_path):
    (tmp_path / "a.py").write_text('EXPECTED = {"": {"loss": 0.5}, "b": {"bleu": "much"}}')
    assert (load(tmp_path / "a.py").expected(""), load(tmp_path / "a.py").expected("c")) == ({"loss": 0.5}, {})
    with pytest.raises(UserError, match=r"a.py: EXPECTED: expected figures by argument, as \{'': \{'bleu': 39.7\}\}"):
        load(tmp_path / "a.py").expected("b")


def test_a_config_has_the_origin_of_the_file_that_registers_what_it_names(tmp_path):
    mine = load(doubling(tmp_path / "a"))
    config = {"model": {"activation": "scaled"}, "task": {"metrics": "ter, doubled"}}
    assert origin_of({"model": {"activation": "relu"}}) == {}
    assert origin_of(config) == {"config_file": str(mine.path), "overrides": {}, **mine.origin()}
    doubled = "from fxf.tasks.text_metrics import METRICS\n\nMETRICS['doubled'] = max\n"
    both = load(write(tmp_path / "a" / "both.py", f"import mine\n{doubled}"))
    assert origin_of(config)["registered_by"] == both.origin()["registered_by"]
    load(write(tmp_path / "b" / "other.py", doubled.replace("doubled", "tripled")))
    load(mine.path)
    assert origin_of({"model": config["model"]})["config_file"] == str(mine.path)
    with pytest.raises(UserError, match="names activation 'scaled', metric 'tripled', which no one config file reg"):
        origin_of({**config, "task": {"metrics": "tripled"}})


COPY = (ROOT / "tests/guests/task.py").read_text()
BATCH = (
    "return language_model_batch(targets_BT, jnp.ones(targets_BT.shape) * (jnp.arange(self.longest) > self.n)[None])"
)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("class Copy(Task):", "class Copy:", "expected a subclass of fxf.tasks.task.Task, got Copy"),
        ("def validate", "def valdate", "cannot be made of its section and a RunInfo: .* abstract .*validate"),
        ("def batch", "def btch", "expected a function batch or batches"),
        ("config, run):", "config):", "cannot be made of its section and a RunInfo: .*3 were given"),
        ("metrics = 12,", "metrics = 12.0,", "vocab_size: expected an int of at least 1, got 12.0"),
        ("metrics = 12,", "metrics = 0,", "vocab_size: expected an int of at least 1, got 0"),
        ("12, END, True", "12, 40, True", "end_token: expected less than vocab_size 12, got 40"),
        ("length + 2", "length + 2.0", "longest: expected an int of at least 1, got 12.0"),
        ('("exact_match",)', '"exact_match"', "metrics: expected a tuple of names, got 'exact_match'"),
        (BATCH, "return None", "batch: expected a dict of arrays, targets and weights among them, got NoneType"),
        (BATCH, "return {'inputs': targets_BT}", "batch: expected a dict of .*, got inputs"),
        (BATCH, f"b = {BATCH[7:]}; b['weights'] = b['weights'][:, :3]; return b", r"batch: targets \[5, 12\] and wei"),
        (BATCH, f"b = {BATCH[7:]}; b['inputs'] = b['inputs'][:3]; return b", r"batch: inputs: expected an array with "),
    ],
)
def test_a_task_that_does_not_keep_its_contract_is_one_line(old, new, message, tmp_path):
    assert old in COPY
    config = read_config(str(write(tmp_path / "mine.py", COPY.replace(old, new))))
    with config.unlocked():
        config.train.batch_size, config.model.max_len = 5, 64
    with pytest.raises(UserError, match=f"^task 'copy': {message}"):
        build(config).batch_shapes()


def test_an_exception_in_a_function_of_a_file_is_a_line_that_names_its_place(tmp_path):
    path = write(tmp_path / "mine.py", COPY.replace(BATCH, "raise ValueError('so\\nnot')"))
    with pytest.raises(ValueError, match="so\nnot") as found:
        build(read_config(str(path))).batch_shapes()
    assert line_of_file(found.value) == f"{path}:{COPY[: COPY.index(BATCH)].count(chr(10)) + 1}: ValueError: so not"
    with pytest.raises(ValueError, match="int") as elsewhere:
        int("x")
    assert not line_of_file(elsewhere.value)
