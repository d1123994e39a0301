import contextlib
import dataclasses
import re
import typing

import pytest

from fxf.base.config import Field, checked, defaults, section
from fxf.base.errors import UserError
from fxf.data.documents import DocumentsConfig
from fxf.models import MODELS
from fxf.models.decode_config import DecodeConfig, changed_decode
from fxf.models.transformer_lm import TransformerLMConfig
from fxf.runs.experiment import SECTIONS, build, default_config
from fxf.tasks import TASKS
from fxf.tasks.reversal import ReversalConfig
from fxf.training.checkpoint import CheckpointConfig
from helpers import refused, table, values

ALL_SECTIONS = [
    *SECTIONS.values(),
    *(registered.config for registered in MODELS.values()),
    *(cls for registered in TASKS.values() for cls in registered.sections.values()),
]
SECTIONS_REFUSED = {f"model of {name}": MODELS[name].config for name in ("transformer_lm", "encoder_decoder")}
SECTIONS_REFUSED |= {"checkpoint": CheckpointConfig, "decode": DecodeConfig}
SECTIONS_REFUSED |= {"data of documents": DocumentsConfig, "task of reversal": ReversalConfig}
CONFIGS_REFUSED = ("reversal", "language_model transformer_lm", "masking masked_lm", "translation encoder_decoder")


def model(config_class=TransformerLMConfig, **changes):
    return section(config_class, defaults(config_class) | changes, "model")


@pytest.mark.parametrize("cls", ALL_SECTIONS)
def test_every_key_has_a_meaning_a_default_of_its_type_and_no_number_that_is_not_finite(cls):
    kinds = typing.get_type_hints(cls)
    for field in dataclasses.fields(cls):
        assert field.metadata["doc"]
        kind = kinds[field.name]
        default = field.default if field.default is not dataclasses.MISSING else field.default_factory()
        kind = typing.get_origin(kind) if typing.get_origin(kind) is dict else kind
        assert default in typing.get_args(kind) if typing.get_args(kind) else type(default) is kind
        for value in (float("inf"), float("-inf"), float("nan")) if kind is float else ():
            with pytest.raises(UserError, match=rf"section\.{field.name}: expected a finite number, got {value}"):
                section(cls, defaults(cls) | {field.name: value}, "section")


@pytest.mark.parametrize(
    ("name", "changes", "message"), [(name, *case) for name in SECTIONS_REFUSED for case in refused(name)]
)
def test_a_value_that_a_section_cannot_read_is_named(name, changes, message):
    cls, of = SECTIONS_REFUSED[name], name.split()[0]
    whole = message if re.match(rf"{of}\\\.\w+[:,]", message) else rf"{of}\.{next(iter(changes))}: {message}"
    with pytest.raises(UserError, match=f"^{whole}"):
        section(cls, defaults(cls) | changes, of)


REFUSED = [(name, *case) for name in CONFIGS_REFUSED for case in refused(f"whole config of {name}")]


@pytest.mark.parametrize(("name", "changes", "message"), REFUSED)
def test_sections_that_do_not_fit_are_named(name, changes, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text.txt").write_text("".join(f"{i} and {i * i}\n" for i in range(60)))
    config = default_config(*name.split()).to_dict()
    for key, value in changes.items():
        *of, last = key.split(".")
        if key == "model.name" and value in MODELS:
            config["model"] = defaults(MODELS[value].config)
        (config.setdefault(of[0], {}) if of else config)[last] = value
    with pytest.raises(UserError, match=f"^{message}") if message else contextlib.nullcontext():
        build(config)


def test_an_int_is_accepted_for_a_float_minus_zero_is_zero_and_a_key_may_be_none():
    assert [checked(value, Field(None | float | bool, {}), "a") for value in (3, None, True)] == [3.0, None, True]
    assert [str(model(dropout=value).dropout) for value in (0, -0.0)] == ["0.0", "0.0"]


def test_the_default_configs_build_also_as_plain_dicts_but_not_without_a_task():
    config = default_config("reversal")
    assert build(config).config == build(config.to_dict()).config == config.to_dict()
    config = default_config("translation").to_dict()
    config["data"] |= {"name": "six", "tokenizer": "word"}
    assert build(config).config == config
    assert set(config) == {"seed", "task", "data", "model", *SECTIONS}
    del config["task"]
    with pytest.raises(UserError, match="task: missing name, which says what to build"):
        build(config)


@pytest.mark.parametrize(("there", "texts"), table("other keys of decoding"))
def test_a_key_of_another_decoding_method_replaces_the_current_one(there, texts):
    given, changed = map(values, texts.split(" > "))
    plain = defaults(DecodeConfig)
    found = changed_decode(plain | there, given)
    assert found == plain | changed
    section(DecodeConfig, found, "decode")
