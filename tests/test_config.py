import dataclasses
import typing

import pytest

from fxf.config import defaults, differences, differing_keys, flatten, section
from fxf.data.corpus import DataConfig
from fxf.decoding.config import DecodeConfig, changed_decode
from fxf.errors import UserError
from fxf.layers.config import TransformerConfig
from fxf.models import MODELS
from fxf.models.bilayer import BilayerConfig
from fxf.models.encoder_decoder import EncoderDecoderConfig
from fxf.models.masked_lm import MaskedLMConfig
from fxf.models.transformer_lm import TransformerLMConfig
from fxf.runs.experiment import SECTIONS, build, default_config
from fxf.tasks import TASKS
from fxf.tasks.boolean_map import BooleanMapConfig
from fxf.tasks.reversal import ReversalConfig
from fxf.tasks.time_series import TimeSeriesConfig
from fxf.tasks.translation import TranslationConfig
from fxf.training.checkpoint import CheckpointConfig

ALL_SECTIONS = [
    *SECTIONS.values(),
    *(registered.config for registered in MODELS.values()),
    *(cls for registered in TASKS.values() for cls in registered.sections.values()),
]


def model(config_class=TransformerLMConfig, **changes):
    return section(config_class, defaults(config_class) | changes, "model")


def test_a_section_with_all_keys_becomes_its_class():
    assert model(n_layers=3).n_layers == 3
    assert model() == TransformerLMConfig()
    assert model(EncoderDecoderConfig) == EncoderDecoderConfig()


IN_FLOAT32 = "expected 0, or a size from 1.2e-38 to 3.4e+38 (float32)"


@pytest.mark.parametrize("config_class", [TransformerLMConfig, EncoderDecoderConfig])
def test_the_defaults_are_those_of_seed_004(config_class):
    config = config_class()
    assert isinstance(config, TransformerConfig)
    assert (config.block, config.positions, config.activation) == ("pre_norm", "sinusoidal_trained", "relu")
    assert (config.norm_epsilon, config.norm_epsilon_in, config.final_norm) == (1e-6, "deviation", True)
    assert config.attention_bias == "output"
    assert (config.d_model, config.d_ff, config.n_layers, config.n_heads, config.max_len) == (512, 2048, 6, 8, 2048)


@pytest.mark.parametrize("cls", ALL_SECTIONS)
@pytest.mark.parametrize("value", [float("inf"), float("-inf"), float("nan")])
def test_no_key_takes_a_number_that_is_not_finite(cls, value):
    for name, kind in typing.get_type_hints(cls).items():
        if kind is float:
            with pytest.raises(UserError, match=rf"section\.{name}: expected a finite number, got {value}"):
                section(cls, defaults(cls) | {name: value}, "section")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"n_layer": 3}, "model.n_layer: unknown key; did you mean 'n_layers'?"),
        ({"n_layers": 2.5}, "model.n_layers: expected int, got 2.5"),
        ({"n_layers": True}, "model.n_layers: expected int, got True"),
        ({"n_layers": 0}, "model.n_layers: expected at least 1, got 0"),
        ({"dropout": 1.0}, "model.dropout: expected less than 1, got 1.0"),
        ({"dropout": float("nan")}, "model.dropout: expected a finite number, got nan"),
        ({"norm_epsilon": 1e-60}, f"model.norm_epsilon: {IN_FLOAT32}, got 1e-60"),
        ({"norm_epsilon": 1e39}, f"model.norm_epsilon: {IN_FLOAT32}, got 1e+39"),
        ({"norm_epsilon": float("inf")}, "model.norm_epsilon: expected a finite number, got inf"),
        (
            {"norm_epsilon": 10**400},
            "model.norm_epsilon: expected a finite number, got an integer too large for a float",
        ),
        ({"embedding_dropout": 1.5}, "model.embedding_dropout: expected less than 1, got 1.5"),
        ({"attention_dropout": -0.5}, "model.attention_dropout: expected at least 0, got -0.5"),
        ({"norm_epsilon": 0.0}, "model.norm_epsilon: expected more than 0, got 0.0"),
        ({"norm_epsilon_in": "std"}, "model.norm_epsilon_in: expected one of deviation, variance; got 'std'"),
        ({"final_norm": 1}, "model.final_norm: expected bool, got 1"),
        ({"n_kv_heads": 3}, "model.n_kv_heads: 3 does not divide model.n_heads 8"),
        ({"position_range": 2047}, "model.position_range: expected 0 or at least model.max_len 2048, got 2047"),
        (
            {"position_range": 4096, "window": 5},
            "model.window: not with model.position_range, which spreads the tokens",
        ),
        (
            {"position_range": 4096, "positions": "none"},
            "model.position_range: model.positions 'none' does not read it; leave it at 0",
        ),
        (
            {"position_range": 4096, "position_stretch": 2.0},
            "model.position_stretch: not with model.position_range; training draws positions one way",
        ),
        ({"position_gap": 2}, "model.position_gap: only read with a model.position_range; leave it at 1"),
        (
            {"position_range": 4097, "position_gap": 3},
            "model.position_gap: expected at most model.position_range / model.max_len, 2, got 3",
        ),
        ({"position_stretch": 0.5}, "model.position_stretch: expected at least 1, got 0.5"),
        ({"feature_map": "relu"}, "model.feature_map: model.attention 'softmax' does not read it; leave it at 'elu'"),
        ({"n_heads": 7}, "model.n_heads: 7 does not divide model.d_model 512"),
        (
            {"logits_bias": True},
            "model.logits_bias: only read with model.tied_embeddings; see model.final_bias",
        ),
        (
            {"tied_embeddings": True, "final_bias": False},
            "model.final_bias: with model.tied_embeddings there is no final layer; leave it at True",
        ),
        ({"global_every": 2}, "model.global_every: only read with a model.window; leave it at 0"),
        (
            {"global_every": 1, "window": 3},
            "model.global_every: 1 makes every block global; set model.window to 0 for that",
        ),
        (
            {"local_rope_theta": 9.0, "window": 3},
            "model.local_rope_theta: only read with a model.global_every; leave it at 0",
        ),
        (
            {"local_rope_theta": 0.5, "window": 3, "global_every": 2},
            "model.local_rope_theta: expected 0 or more than 1, got 0.5",
        ),
        ({"rope_trained_len": 9}, "model.rope_trained_len: only read with a model.rope_factor above 1; leave it at 0"),
        ({"rope_theta": 1}, "model.rope_theta: expected more than 1, got 1.0"),
        ({"head": "dense"}, "model.head: expected one of linear, transform; got 'dense'"),
    ],
)
def test_what_a_section_cannot_read_is_named(changes, message):
    with pytest.raises(UserError) as error:
        model(**changes)
    assert str(error.value) == message


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"cross_norm": "source", "block": "post_norm"},
            "model.cross_norm: model.block 'post_norm' does not read it; leave it at 'queries'",
        ),
        (
            {"logits_bias": True},
            "model.logits_bias: only read with model.embeddings 'shared'; see model.final_bias",
        ),
        (
            {"embeddings": "shared", "final_bias": False},
            "model.final_bias: with model.embeddings 'shared' there is no final layer; leave it at True",
        ),
        ({"embeddings": "share"}, "model.embeddings: expected one of separate, shared; got 'share'; did you mean "),
        ({"n_heads": 7}, "model.n_heads: 7 does not divide model.d_model 512"),
        ({"name": "transformer_lm"}, "model.name: expected one of encoder_decoder; got 'transformer_lm'"),
    ],
)
def test_what_the_section_of_an_encoder_decoder_cannot_read_is_named(changes, message):
    with pytest.raises(UserError) as error:
        model(EncoderDecoderConfig, **changes)
    assert str(error.value).startswith(message)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"average": 2}, "checkpoint.average: the mean is of checkpoints at multiples of checkpoint.every; set it"),
        (
            {"average": 2, "every": 3, "best": "bleu"},
            "checkpoint.average: a run uses the mean or the best checkpoint; leave one",
        ),
        ({"average": 0}, "checkpoint.average: expected at least 1, got 0"),
    ],
)
def test_what_the_checkpoint_section_cannot_read_is_named(changes, message):
    with pytest.raises(UserError) as error:
        section(CheckpointConfig, defaults(CheckpointConfig) | changes, "checkpoint")
    assert str(error.value).startswith(message)


@pytest.mark.parametrize("config_class", [TransformerLMConfig, EncoderDecoderConfig])
def test_an_absent_key_has_its_default(config_class):
    assert section(config_class, {}, "model") == config_class()


def test_an_int_serves_for_a_float():
    assert model(dropout=0).dropout == 0.0
    assert type(model(dropout=0).dropout) is float


def test_a_zero_with_a_sign_is_zero():
    config = section(TransformerConfig, {**defaults(TransformerConfig), "dropout": -0.0}, "model")
    assert str(config.dropout) == "0.0"


def test_every_section_there_is_is_among_those_checked_here():
    models = {BilayerConfig, EncoderDecoderConfig, MaskedLMConfig, TransformerLMConfig}
    tasks = {TranslationConfig, DataConfig, ReversalConfig, TimeSeriesConfig, BooleanMapConfig}
    assert models | tasks | {DecodeConfig, CheckpointConfig} < set(ALL_SECTIONS)


@pytest.mark.parametrize("cls", ALL_SECTIONS)
def test_every_key_has_a_meaning_and_a_default_of_its_type(cls):
    for field in dataclasses.fields(cls):
        assert field.metadata["doc"]
        kind = typing.get_type_hints(cls)[field.name]
        assert field.default in typing.get_args(kind) if typing.get_args(kind) else type(field.default) is kind


def test_a_config_builds_as_it_is_and_as_plain_dicts():
    config = default_config("reversal")
    assert build(config).config == build(config.to_dict()).config


def test_the_default_config_builds():
    experiment = build(default_config("reversal").to_dict())
    assert experiment.config == default_config("reversal").to_dict()


def test_the_default_config_of_translation_builds():
    config = default_config("translation").to_dict()
    config["data"] |= {"name": "six", "tokenizer": "word"}
    experiment = build(config)
    assert experiment.config == config
    assert set(config) == {"seed", "task", "data", "model", *SECTIONS}
    assert config["model"]["name"] == "encoder_decoder"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda c: c.update(trian={}), "trian: unknown section; did you mean 'train'?"),
        (lambda c: c.update(seed=-1), "seed: expected an int from 0 to 2**32 - 1, got -1"),
        (
            lambda c: c["model"].update(name="transformer"),
            "model.name: expected one of transformer_lm, masked_lm, encoder_decoder, bilayer; or module:name of yo",
        ),
        (lambda c: c["model"].update(max_len=9), "model.max_len: 9 is too short; the task's sequences need 52"),
        (lambda c: c["task"].update(min_length=26), "task.max_length: expected at least task.min_length 26, got 25"),
        (lambda c: c["checkpoint"].update(best="exact"), "checkpoint.best: expected one of exact_match; got 'exact'"),
        (lambda c: c.pop("task"), "task: missing name, which says what to build"),
        (lambda c: c.update(data={}), "data: unknown section"),
        (
            lambda c: c.update(model=defaults(EncoderDecoderConfig)),
            "model.name: task 'reversal' needs 'transformer_lm'",
        ),
        (
            lambda c: c["train"].update(microbatches=3),
            "train.microbatches: 3 does not divide train.batch_size 64",
        ),
        (lambda c: c["train"].update(label_smoothing=1.0), "train.label_smoothing: expected less than 1, got 1.0"),
        (
            lambda c: c["checkpoint"].update(best="exact_match"),
            "checkpoint.best: nothing is evaluated before the end; set train.evaluate_every",
        ),
        (
            lambda c: c["train"].update(patience=3, evaluate_every=5),
            "train.patience: set checkpoint.best to the figure that has to improve",
        ),
        (lambda c: c["decode"].update(top_k=3), "decode.top_k, decode.top_p: greedy decoding does not read them"),
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
