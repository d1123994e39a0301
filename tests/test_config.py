import dataclasses
import typing

import pytest

from fxf.config import TransformerConfig, defaults, differing_keys, flatten, section
from fxf.errors import UserError
from fxf.experiment import SECTIONS, build, default_config
from fxf.models import MODELS
from fxf.tasks import TASKS

ALL_SECTIONS = [*SECTIONS.values(), *(cls for cls, _ in [*MODELS.values(), *TASKS.values()])]


def model(**changes):
    return section(TransformerConfig, defaults(TransformerConfig) | changes, "model")


def test_a_section_with_all_keys_becomes_its_class():
    assert model(n_layers=3).n_layers == 3
    assert model() == TransformerConfig()


def test_the_defaults_are_those_of_seed_004():
    config = TransformerConfig()
    assert (config.d_model, config.d_ff, config.n_layers, config.n_heads, config.max_len) == (512, 2048, 6, 8, 2048)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"n_layer": 3}, "model.n_layer: unknown key; did you mean 'n_layers'?"),
        ({"n_layers": 2.5}, "model.n_layers: expected int, got 2.5"),
        ({"n_layers": True}, "model.n_layers: expected int, got True"),
        ({"n_layers": 0}, "model.n_layers: expected at least 1, got 0"),
        ({"dropout": 1.0}, "model.dropout: expected less than 1, got 1.0"),
        ({"dropout": float("nan")}, "model.dropout: expected at least 0, got nan"),
        ({"block": "ideal"}, "model.block: expected one of definition, idea; got 'ideal'; did you mean 'idea'?"),
        ({"n_heads": 7}, "model.n_heads: 7 does not divide model.d_model 512"),
    ],
)
def test_what_a_section_cannot_read_is_named(changes, message):
    with pytest.raises(UserError) as error:
        model(**changes)
    assert str(error.value) == message


def test_an_empty_section_is_an_error():
    with pytest.raises(UserError, match=r"model: missing name, n_layers, "):
        section(TransformerConfig, {}, "model")


def test_an_int_serves_for_a_float():
    assert model(dropout=0).dropout == 0.0
    assert type(model(dropout=0).dropout) is float


@pytest.mark.parametrize("cls", ALL_SECTIONS)
def test_every_key_has_a_meaning_and_a_default_of_its_type(cls):
    for field in dataclasses.fields(cls):
        assert field.metadata["doc"]
        kind = typing.get_type_hints(cls)[field.name]
        assert field.default in typing.get_args(kind) if typing.get_args(kind) else type(field.default) is kind


def test_the_default_config_builds():
    build(default_config("reversal").to_dict())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda c: c.pop("train"), "train: missing; a config holds seed, task, "),
        (lambda c: c.update(trian={}), "trian: unknown section; did you mean 'train'?"),
        (lambda c: c.update(seed=-1), "seed: expected an int from 0 to 2**32 - 1, got -1"),
        (
            lambda c: c["model"].update(name="transformer"),
            "model.name: expected one of transformer_lm; got 'transformer'",
        ),
        (lambda c: c["model"].update(max_len=9), "model.max_len: 9 is too short; the task's sequences need 52"),
        (lambda c: c["task"].update(min_length=26), "task.max_length: expected at least task.min_length 26, got 25"),
        (lambda c: c["checkpoint"].update(best="exact"), "checkpoint.best: expected one of exact_match; got 'exact'"),
    ],
)
def test_sections_that_do_not_fit_are_named(change, message):
    config = default_config("reversal").to_dict()
    change(config)
    with pytest.raises(UserError) as error:
        build(config)
    assert str(error.value).startswith(message)


def test_flatten_and_differing_keys_name_keys_by_section():
    a, b = {"seed": 0, "model": {"x": 1, "y": 2}}, {"seed": 0, "model": {"x": 3, "z": 2}}
    assert dict(flatten(a)) == {"seed": 0, "model.x": 1, "model.y": 2}
    assert differing_keys(a, b) == ["model.x", "model.y", "model.z"]
    assert differing_keys(a, a) == []
