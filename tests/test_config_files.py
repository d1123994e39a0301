"""Every experiment of configs/ builds offline, and is the size that its source says."""

import importlib.util

import pytest

from fxf.experiment import build
from fxf.weights import count
from runs import ROOT

TRANSLATION = ("fr", "es", "six", "anki", "multi30k_de", "multi30k_fr", "multi30k_deen")
CHARACTERS = ("default", "nanogpt_cpu", "nanogpt_gpu", "fast", "primer")
REVERSAL = ("default", *(f"{kind}{number}" for kind in ("example", "notebook") for number in range(3)))


def config_of(name, argument, tmp_path):
    """Returns the config, its path a small file or folder where it needs one."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "configs" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    config = module.get_config(*argument.split())
    if argument == "anki":
        (tmp_path / "fra.txt").write_text("".join(f"Sentence {i}.\tPhrase {i}.\n" for i in range(9)))
        config.data.path = str(tmp_path / "fra.txt")
    if argument.startswith("multi30k"):
        for stem in (config.data.train, config.data.validation, config.data.test):
            for language in ("en", "de", "fr"):
                (tmp_path / f"{stem}.{language}").write_text("a man in a hat .\n")
        config.data.path = str(tmp_path)
    return config


@pytest.mark.parametrize(
    ("name", "argument"),
    [
        ("time_series", ""),
        ("boolean_map", ""),
        ("masking", ""),
        *(("characters", argument) for argument in CHARACTERS),
        *(("reversal", argument) for argument in REVERSAL),
        *(("translation", argument) for argument in TRANSLATION),
    ],
)
def test_every_argument_of_every_config_builds(name, argument, tmp_path, monkeypatch):
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path / "tfds"))
    assert count(build(config_of(name, argument, tmp_path).to_dict()).model.spec) > 0


@pytest.mark.parametrize(("argument", "millions"), [("nanogpt_cpu", 0.8), ("nanogpt_gpu", 10.65)])
def test_the_recipes_of_nanogpt_are_its_size(argument, millions, tmp_path):
    """As it counts: without positions."""
    spec = build(config_of("characters", argument, tmp_path).to_dict()).model.spec
    rest = count(spec) - count({"positions": spec["embedding"]["positions"]})
    assert rest / 1e6 == pytest.approx(millions, rel=0.005)


@pytest.mark.parametrize("argument", ["multi30k_de", "multi30k_fr", "multi30k_deen"])
def test_multi30k_keeps_within_transformer_tinys_size(argument, tmp_path, monkeypatch):
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path / "tfds"))
    config = config_of("translation", argument, tmp_path)
    experiment = build(config.to_dict())
    table = config.data.vocab_size * config.model.d_model
    rest = count(experiment.model.spec) - experiment.task.vocab_size * config.model.d_model
    assert rest + table <= 2_568_192


def test_an_unknown_argument_is_named(tmp_path):
    with pytest.raises(ValueError, match="unknown argument 'german'; one of fr, es, six"):
        config_of("translation", "german", tmp_path)
