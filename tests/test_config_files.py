"""Every experiment of configs/ and every point of its sweeps builds offline, with the size that its source gives."""

import functools
import inspect
import re
import shlex
import sys

import pytest

from experiments.benchmarks.smoke import STARTS
from experiments.claims.others import PUBLISHED
from experiments.studies.__main__ import STUDIES
from fxf.base.config import flatten, section, with_values
from fxf.base.weights import count
from fxf.data import phrasebook, text
from fxf.models.transformer_lm import TransformerLMConfig, transformer_lm
from fxf.runs.configs import names, read_sweep
from fxf.runs.experiment import build
from fxf.runs.guests import load
from fxf.sweeps.points import check, make_points
from fxf.tasks.language_model import RunningText
from helpers import first_phrases
from small_runs import ROOT

NAMES = [name for name in names() if not name.startswith(tuple(STARTS))]
LINES = {  # of the file that an argument of a config needs
    "anki": "Sentence {0}.\tPhrase {0}.\n",
    "json_lines": '{{"text": "Text {0}.", "prompt": "Text {0}", "completion": " ends.", "rejected": " goes on."}}\n',
}
# Commands of fxf in tables and code blocks of claims and studies.
COMMANDS = [
    command
    for page in (ROOT / "CLAIMS.md", *sorted(ROOT.glob("experiments/studies/*/README.md")))
    for command in re.findall(r"^(?:    |\|.*\| )(fxf \w+ --config=.*?)(?: \|)?$", page.read_text(), re.MULTILINE)
]


def module_of(name):
    return load(str(ROOT / "configs" / f"{name}.py"))


def arguments_of(name):
    return getattr(module_of(name), "ARGUMENTS", ("",))


@functools.cache
def kept_text(config, length):
    return text.EncodedText(config, None, length)


@pytest.fixture(autouse=True)
def registered(monkeypatch, process):
    """Removes a config's modules after a test. Points on the same text read a small part of it, once."""
    monkeypatch.setattr(
        sys.modules[RunningText.__module__], "EncodedText", lambda config, folder, length: kept_text(config, length)
    )
    monkeypatch.setattr(phrasebook, "phrases", first_phrases)


def config_of(name, argument, tmp_path):
    """Returns the config, with a small file or folder as its path if it needs one."""
    config = module_of(name).get_config(*argument.split())
    if argument in LINES:
        (tmp_path / "lines").write_text("".join(LINES[argument].format(i) for i in range(9)))
        config.data.path = str(tmp_path / "lines")
    if name == "studies/scan":
        for part, n in (("train", 3), ("test", 30)):
            lines = [f"IN: walk {word} OUT:{n * ' I_WALK'}\n" for word in "abcdefgh"]
            (tmp_path / f"tasks_{part}_length.txt").write_text("".join(lines))
        config.data.path = str(tmp_path)
    if argument.startswith("multi30k"):
        for stem in (config.data.train, config.data.validation, config.data.test):
            for language in ("en", "de", "fr"):
                (tmp_path / f"{stem}.{language}").write_text("a man in a hat .\n")
        config.data.path = str(tmp_path)
    return config


@pytest.mark.parametrize("name", NAMES)
def test_every_argument_of_every_config_is_listed_and_builds(name, tmp_path, monkeypatch):
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path / "tfds"))
    module, arguments = module_of(name), arguments_of(name)
    assert len(inspect.signature(module.get_config).parameters) == hasattr(module, "ARGUMENTS")
    assert len(set(arguments)) == len(arguments) > 0
    for argument in arguments:
        assert count(build(config_of(name, argument, tmp_path).to_dict()).model.spec) > 0


@pytest.mark.thorough
@pytest.mark.parametrize("name", NAMES)
def test_every_point_of_every_sweep_builds(name, tmp_path):
    """The seed is left out, because building does not depend on it."""
    for argument in arguments_of(name) if hasattr(module_of(name), "sweep") else ():
        added = read_sweep(":".join([str(ROOT / "configs" / f"{name}.py"), *argument.split()]))
        points = make_points(config_of(name, argument, tmp_path).to_dict(), added)
        different = {str({**point.changes, "seed": 0}): point for point in points}
        check(different.values(), tmp_path)


def test_a_command_of_the_claims_and_of_the_studies_names_a_config_that_builds_and_keys_that_it_has(tmp_path):
    for command in COMMANDS:
        _, verb, *words = shlex.split(command)
        flags = dict(word.removeprefix("--").split("=", 1) for word in words)
        name, _, argument = flags["config"].partition(":")
        config = config_of(name, argument, tmp_path)
        assert not argument or argument in arguments_of(name), command
        changed = {flag.removeprefix("config.") for flag in flags if flag.startswith("config.")}
        assert changed <= dict(flatten(config.to_dict())).keys(), command
        assert flags["workdir"].startswith("runs/")
        assert (verb == "sweep") <= hasattr(module_of(name), "sweep"), command


def test_each_study_and_published_figure_has_its_command():
    named = [re.search(r"--config=(\S+)", command)[1] for command in COMMANDS]
    assert {f"studies/{study}" for study in STUDIES} <= {*named}
    assert len(named) >= len(STUDIES) + len(PUBLISHED)


def test_gpt2_has_its_published_size(tmp_path):
    model = section(TransformerLMConfig, config_of("characters", "gpt2", tmp_path).model.to_dict(), "model")
    assert count(transformer_lm(model, 50257).spec) == 124_439_808


def test_of_a_prompt_with_its_completion_only_the_completion_and_its_end_are_learned(tmp_path):
    task = build(config_of("completions", "json_lines", tmp_path).to_dict()).task
    batch, completion = next(task.batches()), [*task.tokenizer.encode(" ends."), task.end_token]
    assert len(batch["inputs"]) == 7
    for inputs, targets, weights in zip(batch["inputs"], batch["targets"], batch["weights"], strict=True):
        read = inputs[: weights.argmax() + 1].tolist()
        assert (targets[weights > 0].tolist(), read[1:] + completion) == (completion, targets.tolist())
        (group,) = task.to_prompts([task.tokenizer.decode(read)], 0, 0)
        assert [*group.prompts["first"], *group.prompts["tokens"][0]] == read


def test_the_row_of_a_chosen_answer_is_followed_by_that_of_the_rejected_one(tmp_path):
    config, _ = config_of("completions", "json_lines", tmp_path).to_dict(), module_of("choices")
    batch = next((task := build(with_values(config, {"task.name": "choices:CHOICES"})).task).batches())
    rows = [task.tokenizer.decode(row[n > 0]) for row, n in zip(batch["targets"], batch["weights"], strict=True)]
    assert [row.replace(" ends.", " goes on.") for row in rows[::2]] == rows[1::2] and len(rows) == 14
