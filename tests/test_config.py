import dataclasses
import typing

import pytest

from fxf.config import defaults, differences, differing_keys, flatten, section
from fxf.decoding.config import DecodeConfig, changed_decode
from fxf.errors import UserError
from fxf.models import MODELS
from fxf.models.encoder_decoder import EncoderDecoderConfig
from fxf.models.transformer_lm import TransformerLMConfig
from fxf.runs.experiment import SECTIONS, build, default_config
from fxf.tasks import TASKS
from fxf.training.checkpoint import CheckpointConfig
from helpers import refusals

ALL_SECTIONS = [
    *SECTIONS.values(),
    *(registered.config for registered in MODELS.values()),
    *(cls for registered in TASKS.values() for cls in registered.sections.values()),
]
# What a section refuses: "KEY=VALUE, …: KEY: what the line goes on with". Where the first key is meant, it is left out.
WRONG = {
    ("model", TransformerLMConfig): """
        n_layer=3: unknown key; did you mean 'n_layers'?
        n_layers=2.5: expected int, got 2.5
        n_layers=True: expected int, got True
        n_layers=0: expected at least 1, got 0
        dropout=1.0: expected less than 1, got 1.0
        dropout=1e999: expected a finite number, got inf
        norm_epsilon=1e-60: expected 0, or a size from 1.2e-38 to 3.4e+38 (float32), got 1e-60
        norm_epsilon=1e39: expected 0, or a size from 1.2e-38 to 3.4e+38 (float32), got 1e+39
        norm_epsilon=0.0: expected more than 0, got 0.0
        attention_dropout=-0.5: expected at least 0, got -0.5
        norm_epsilon_in='std': expected one of deviation, variance; got 'std'
        final_norm=1: expected bool, got 1
        n_kv_heads=3: 3 does not divide model.n_heads 8
        n_heads=7: 7 does not divide model.d_model 512
        position_range=2047: expected 0 or at least model.max_len 2048, got 2047
        window=5, position_range=4096: not with model.position_range, which spreads the tokens
        position_range=4096, positions='none': model.positions 'none' does not read it; leave it at 0
        position_stretch=2.0, position_range=4096: not with model.position_range; training draws positions one way
        position_gap=2: only read with a model.position_range; leave it at 1
        position_gap=3, position_range=4097: expected at most model.position_range / model.max_len, 2, got 3
        position_stretch=0.5: expected at least 1, got 0.5
        feature_map='relu': model.attention 'softmax' does not read it; leave it at 'elu'
        logits_bias=True: only read with model.tied_embeddings; see model.final_bias
        final_bias=False, tied_embeddings=True: with model.tied_embeddings there is no final layer; leave it at True
        global_every=2: only read with a model.window; leave it at 0
        global_every=1, window=3: 1 makes every block global; set model.window to 0 for that
        local_rope_theta=9.0, window=3: only read with a model.global_every; leave it at 0
        local_rope_theta=0.5, window=3, global_every=2: expected 0 or more than 1, got 0.5
        rope_trained_len=9: only read with a model.rope_factor above 1; leave it at 0
        rope_theta=1: expected more than 1, got 1.0
        head='dense': expected one of linear, transform; got 'dense'
        """,
    ("model", EncoderDecoderConfig): """
        cross_norm='source', block='post_norm': model.block 'post_norm' does not read it; leave it at 'queries'
        logits_bias=True: only read with model.embeddings 'shared'; see model.final_bias
        final_bias=False, embeddings='shared': with model.embeddings 'shared' there is no final layer; leave it at True
        embeddings='share': expected one of separate, shared; got 'share'; did you mean 'shared'?
        name='transformer_lm': expected one of encoder_decoder; got 'transformer_lm'
        """,
    ("checkpoint", CheckpointConfig): """
        average=2: the mean is of checkpoints at multiples of checkpoint.every; set it
        average=2, every=3, best='bleu': a run uses the mean or the best checkpoint; leave one
        average=0: expected at least 1, got 0
        """,
}
# The same of keys that sections have to agree on, in the default config of reversal.
UNFIT = """
    seed=-1: seed: expected an int from 0 to 2**32 - 1, got -1
    model.name='transformer': model.name: expected one of transformer_lm, masked_lm, encoder_decoder, bilayer; or
    model.name='bilayer': model.name: task 'reversal' needs 'transformer_lm'
    model.max_len=9: model.max_len: 9 is too short; the task's sequences need 52
    task.min_length=26: task.max_length: expected at least task.min_length 26, got 25
    checkpoint.best='exact': checkpoint.best: expected one of exact_match; got 'exact'
    checkpoint.best='exact_match': checkpoint.best: nothing is evaluated before the end; set train.evaluate_every
    train.microbatches=3: train.microbatches: 3 does not divide train.batch_size 64
    train.label_smoothing=1.0: train.label_smoothing: expected less than 1, got 1.0
    train.patience=3, train.evaluate_every=5: train.patience: set checkpoint.best to the figure that has to improve
    decode.top_k=3: decode.top_k, decode.top_p: greedy decoding does not read them
    data.path='x': data: unknown section
    trian.steps=3: trian: unknown section; did you mean 'train'?
    """


def model(config_class=TransformerLMConfig, **changes):
    return section(config_class, defaults(config_class) | changes, "model")


def test_a_section_with_all_keys_or_none_becomes_its_class():
    assert model(n_layers=3).n_layers == 3
    for config_class in (TransformerLMConfig, EncoderDecoderConfig):
        assert model(config_class) == section(config_class, {}, "model") == config_class()


@pytest.mark.parametrize("config_class", [TransformerLMConfig, EncoderDecoderConfig])
def test_the_defaults_are_those_of_seed_004(config_class):
    config = config_class()
    assert (config.block, config.positions, config.activation) == ("pre_norm", "sinusoidal_trained", "relu")
    assert (config.norm_epsilon, config.norm_epsilon_in, config.final_norm) == (1e-6, "deviation", True)
    assert config.attention_bias == "output"
    assert (config.d_model, config.d_ff, config.n_layers, config.n_heads, config.max_len) == (512, 2048, 6, 8, 2048)


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
    ("name", "cls", "changes", "message"),
    [(*of, *case) for of, text in WRONG.items() for case in refusals(text)],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_what_a_section_cannot_read_is_named(name, cls, changes, message):
    with pytest.raises(UserError, match=f"^{name}.{next(iter(changes))}: {message}"):
        section(cls, defaults(cls) | changes, name)


@pytest.mark.parametrize(("changes", "message"), refusals(UNFIT))
def test_sections_that_do_not_fit_are_named(changes, message):
    config = default_config("reversal").to_dict()
    for key, value in changes.items():
        *of, name = key.split(".")
        if key == "model.name" and value in MODELS:
            config["model"] = defaults(MODELS[value].config)
        (config.setdefault(of[0], {}) if of else config)[name] = value
    with pytest.raises(UserError, match=f"^{message}"):
        build(config)


def test_a_config_without_a_task_is_refused():
    config = default_config("reversal").to_dict()
    del config["task"]
    with pytest.raises(UserError, match="task: missing name, which says what to build"):
        build(config)


def test_an_int_serves_for_a_float_and_a_zero_with_a_sign_is_zero():
    assert [str(model(dropout=value).dropout) for value in (0, -0.0)] == ["0.0", "0.0"]


def test_the_default_configs_build_as_they_are_and_as_plain_dicts():
    config = default_config("reversal")
    assert build(config).config == build(config.to_dict()).config == config.to_dict()
    config = default_config("translation").to_dict()
    config["data"] |= {"name": "six", "tokenizer": "word"}
    assert build(config).config == config
    assert set(config) == {"seed", "task", "data", "model", *SECTIONS}
    assert config["model"]["name"] == "encoder_decoder"


def test_flatten_and_differing_keys_name_keys_by_section():
    a, b = {"seed": 0, "model": {"x": 1, "y": 2}}, {"seed": 0, "model": {"x": 3, "z": 2}}
    assert dict(flatten(a)) == {"seed": 0, "model.x": 1, "model.y": 2}
    assert differing_keys(a, b) == ["model.x", "model.y", "model.z"]
    assert differing_keys(a, a) == []


def test_differences_show_eight_digits_of_a_digest_and_whole_values_otherwise():
    there, here = {"text.txt": "0a1b2c3d" * 8, "name": "0a1b2c3d4"}, {"text.txt": "f" * 64, "name": "other"}
    found = differences(there, here)
    assert found == "text.txt (0a1b2c3d there, ffffffff here), name (0a1b2c3d4 there, other here)"


@pytest.mark.parametrize(
    ("there", "given", "changed"),
    [
        ({"beam_width": 5, "length_penalty": 0.6}, {"temperature": 0.8}, {"temperature": 0.8}),
        ({"beam_width": 5}, {"temperature": 0.8, "top_k": 3}, {"temperature": 0.8, "top_k": 3}),
        ({"beam_width": 5, "early_stop": False}, {"temperature": 0.0}, {}),
        ({"beam_width": 5, "length_penalty": 0.6}, {"beam_width": 3}, {"beam_width": 3, "length_penalty": 0.6}),
        ({"beam_width": 5, "length_penalty": 0.6}, {"beam_width": 1}, {}),
        ({"beam_width": 5}, {"length_penalty": 0.0}, {"beam_width": 5, "length_penalty": 0.0}),
        ({"temperature": 0.8, "top_k": 3, "top_p": 0.9}, {"beam_width": 4}, {"beam_width": 4}),
        ({"temperature": 0.8, "top_k": 3}, {"temperature": 0.0}, {}),
        ({"temperature": 0.8, "top_k": 3}, {"top_p": 0.5}, {"temperature": 0.8, "top_k": 3, "top_p": 0.5}),
        ({"beam_width": 5}, {}, {"beam_width": 5}),
    ],
)
def test_a_key_of_another_method_of_decoding_ends_the_one_that_was_there(there, given, changed):
    plain = defaults(DecodeConfig)
    found = changed_decode(plain | there, given)
    assert found == plain | changed
    section(DecodeConfig, found, "decode")


@pytest.mark.parametrize(
    "given", [{"temperature": 0.8, "beam_width": 3}, {"top_k": 3}, {"beam_width": 1, "early_stop": False}]
)
def test_keys_that_contradict_each_other_stay_for_the_section_to_refuse(given):
    with pytest.raises(UserError):
        section(DecodeConfig, changed_decode(defaults(DecodeConfig) | {"beam_width": 5}, given), "decode")
