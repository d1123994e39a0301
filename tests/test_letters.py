"""Shape letters: each has one meaning, and every array has the shape that its name says.

The legend is in the docstring of `fxf/__init__.py`.
"""

import ast
import dataclasses
import functools
import re
import sys
from contextlib import contextmanager

import jax
import numpy as np
import pytest

import fxf
from fxf.decoding.config import DecodeConfig
from fxf.decoding.decoder import Decoder
from fxf.models.bilayer import BilayerConfig, bilayer
from fxf.models.encoder_decoder import EncoderDecoderConfig, encoder_decoder
from fxf.models.masked_lm import MaskedLMConfig, masked_lm
from fxf.models.transformer_lm import TransformerLMConfig, transformer_lm
from fxf.tasks.boolean_map import BooleanMap, BooleanMapConfig
from fxf.tasks.masking import masked_batch
from fxf.tasks.reversal import Reversal, ReversalConfig
from fxf.tasks.task import RunInfo
from fxf.tasks.time_series import TimeSeries, TimeSeriesConfig
from fxf.training.gradient import batch_loss, loss_and_gradient
from fxf.training.step import TrainConfig
from fxf.weights import shapes
from small_runs import ROOT

LEGEND = dict(re.findall(r"^    ([A-Z])  (.+)$", fxf.__doc__, re.MULTILINE))
FOLDER = str(ROOT / "fxf")
SUFFIX = re.compile(r"^_?[a-z]\w*?_([A-Z0-9]*[A-Z][A-Z0-9]*)$")
EINSUM = re.compile(r"^[A-Z]+(,[A-Z]+)*->[A-Z]*$")
SHAPE = re.compile(r"\[((?:[^\[\],]+, )*[^\[\],]*)\]")


@functools.cache
def suffix(name):
    """Returns the letters and digits of an array's name, or "" for another name."""
    found = SUFFIX.match(name)
    return found[1] if found else ""


@functools.cache
def files():
    """Returns the nodes of each file's code."""
    return {path: list(ast.walk(ast.parse(path.read_text()))) for path in sorted((ROOT / "fxf").rglob("*.py"))}


def names_in(nodes):
    for node in nodes:
        if isinstance(node, ast.Name | ast.arg | ast.Attribute | ast.keyword):
            yield getattr(node, {ast.Name: "id", ast.Attribute: "attr"}.get(type(node), "arg")) or ""


def einsums_in(nodes):
    """Yields the letters of each operand of an einsum, and the operand's name if it has one."""
    for node in nodes:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "einsum":
            letters, *operands = node.args
            assert isinstance(letters, ast.Constant) and EINSUM.match(letters.value), ast.unparse(node)
            inputs, output = letters.value.split("->")
            for part, operand in zip(inputs.split(","), operands, strict=True):
                yield part, operand.id if isinstance(operand, ast.Name) else ""
            yield output, ""


def shapes_in_text(text, nodes):
    """Yields the letters of the shapes in brackets in docstrings and comments, such as [B, 2P+2, D]."""
    alone = [node.value.value for node in nodes if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)]
    for part in [*filter(lambda value: isinstance(value, str), alone), *re.findall("#.*", text)]:
        for shape in SHAPE.findall(part):
            yield from re.findall(r"(?<![A-Za-z_'\"])[A-Z](?![A-Za-z_'\"])", shape)


def letters_in(nodes):
    """Returns the letters of the names and the einsums in code."""
    names = {letter for name in names_in(nodes) for letter in suffix(name) if letter.isalpha()}
    return names | {letter for letters, _ in einsums_in(nodes) for letter in letters}


def test_every_letter_of_a_name_an_einsum_or_a_shape_is_in_the_legend():
    found = {
        path: letters_in(nodes).union(shapes_in_text(path.read_text(), nodes)) - LEGEND.keys()
        for path, nodes in files().items()
    }
    assert {str(path): letters for path, letters in found.items() if letters} == {}


def test_an_einsum_has_the_letters_of_its_operands():
    for path, nodes in files().items():
        for letters, name in einsums_in(nodes):
            assert suffix(name) in ("", letters), f"{path}: {name}"


def test_every_letter_of_the_legend_is_in_a_name_or_an_einsum():
    assert LEGEND.keys() <= set().union(*map(letters_in, files().values()))


MODEL = {"n_layers": 1, "d_model": 24, "d_ff": 11, "n_heads": 6, "max_len": 19}
SIZES = {"D": 24, "H": 6, "K": 4, "F": 11, "V": 17}
DECODING = SIZES | {"P": 3, "U": 8}  # a prompt's 3 tokens and 8 new ones


def arrays_of(variables):
    """Yields the names and values of local variables, and of the fields of those that are dataclasses or tuples."""
    for name, value in variables.items():
        yield name, value
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            yield from vars(value).items()
        elif hasattr(value, "_asdict"):
            yield from value._asdict().items()


@contextmanager
def shapes_watched(found, known):
    """Adds to `found` the arrays of functions in fxf that do not have the shape that their names say."""

    def at_return(frame, event, _):
        if event != "return":
            return at_return
        sizes = dict(known)
        for name, value in arrays_of(frame.f_locals):
            letters, shape = suffix(name), getattr(value, "shape", None)
            if letters and isinstance(shape, tuple):
                expected = [
                    int(x) if x.isdigit() else sizes.setdefault(x, n) if n != 1 else 1
                    for x, n in zip(letters, shape, strict=False)
                ]
                if len(letters) != len(shape) or any(n not in (1, m) for n, m in zip(shape, expected, strict=True)):
                    found.append(f"{frame.f_code.co_qualname}: {name} {shape}, with {sizes}")
        return at_return

    def at_call(frame, event, _):
        if not frame.f_code.co_filename.startswith(FOLDER):
            return None
        frame.f_trace_lines = False
        return at_return

    before = sys.gettrace()
    sys.settrace(at_call)
    try:
        yield
    finally:
        sys.settrace(before)


def watch(known, function, *args):
    """Returns the arrays whose shapes are not those of their names while JAX traces `function`; compiles nothing."""
    found = []
    with shapes_watched(found, known):
        jax.eval_shape(function, *args)
    return found


TOKENS = np.zeros((5, 7), np.int32)
BATCH = {"inputs": TOKENS, "targets": TOKENS, "weights": np.ones((5, 7), np.float32)}
SOURCE = {"source": np.zeros((5, 9), np.int32), "source_mask": np.ones((5, 9), bool)}
PADDED = {"input_mask": np.ones((5, 7), bool), "segments": TOKENS, "positions": TOKENS}


RATES = {"dropout": 0.1, "attention_dropout": 0.1, "embedding_dropout": 0.1}
ROTARY = {"positions": "rotary", "qk_norm": True, "n_kv_heads": 2}
ALIBI = {"positions": "alibi", "window": 3, "gated": True, "norm": "rms", "embedding_norm": True}
LINEAR = {"attention": "linear", "positions": "none", "n_kv_heads": 2, "attention_bias": "all"}
DRAWN = {"attention": "expressive", "position_range": 40, "positions": "learned", "block": "idea", "remat": "full"}


def lm(**choice):
    return transformer_lm(TransformerLMConfig(**MODEL, **choice), 17)


def both_sides(**choice):
    return encoder_decoder(EncoderDecoderConfig(**MODEL, **choice), 17)


def loss(model, known, batch=BATCH, smoothing=0.1):
    """Returns what `watch` takes to trace a step's loss: fxf names no arrays of a gradient but those of the loss."""
    return known, lambda p, key: batch_loss(model, p, batch, key, smoothing), shapes(model.spec), jax.random.key(0)


def step(model, known):
    learn = functools.partial(loss_and_gradient, label_smoothing=0.1, microbatches=5)
    return known, lambda p, key: learn(model, p, BATCH, key), shapes(model.spec), jax.random.key(0)


METHODS = {
    "greedy": DecodeConfig(),
    "sampling": DecodeConfig(temperature=0.7, top_k=3, top_p=0.9),
    "beam": DecodeConfig(beam_width=3),
}


def decoding(model, known, method, n_prompts, **others):
    """Returns what `watch` takes to trace the decoding of prompts of at most 3 tokens, with 8 new ones."""
    rows = np.arange(n_prompts, dtype=np.int32)
    prompts = {"tokens": np.zeros((n_prompts, 3), np.int32), "lengths": rows % 4, "first": rows % 5, **others}
    decoder = Decoder(model, 1, config=METHODS[method])
    return known, lambda params: decoder.search(params, prompts, decoder.key, max_tokens=8), shapes(model.spec)


def of_task(task, config):
    return {"B": 5}, task(config, RunInfo(TrainConfig(batch_size=5))).batch, jax.random.key(0), np.int32(0)


def masked(key, text, lengths):
    return masked_batch(key, text, lengths, 0.15, 17)


BATCHES = SIZES | {"B": 5, "T": 7}
VECTORS = {"D": 17, "F": 68}  # of a bilayer
GIVEN = {"positions": np.zeros((29, 13), np.int32)}
MASKED = MaskedLMConfig(**MODEL, **ROTARY, segments=3, tied_embeddings=True, head="transform")
REVERSAL = ReversalConfig(n_tokens=10, min_length=2, max_length=8)
# Of each program what `watch` takes; others hold the same arrays.
PROGRAMS = {
    "loss, rotary": lambda: loss(lm(**ROTARY, **RATES), BATCHES),
    "loss, alibi": lambda: loss(lm(**ALIBI, **RATES), BATCHES),
    "step, drawn positions": lambda: step(lm(**DRAWN, **RATES), SIZES | {"T": 7}),
    "loss, both sides, linear": lambda: loss(
        both_sides(**LINEAR, dropout=0.1, embeddings="shared"), SIZES | {"B": 5, "S": 9}, {**BATCH, **SOURCE}
    ),
    "loss, masked": lambda: loss(masked_lm(MASKED, 17), BATCHES, {**BATCH, **PADDED}),
    "loss, bilayers": lambda: loss(bilayer(BilayerConfig(max_len=7, copies=2), 17), VECTORS | {"T": 7}, smoothing=None),
    "sampling, linear": lambda: decoding(lm(**LINEAR), DECODING, "sampling", 29, **GIVEN),
    "greedy, alibi": lambda: decoding(lm(**ALIBI), DECODING, "greedy", 29),
    "beam, rotary": lambda: decoding(lm(**ROTARY), DECODING, "beam", 29, **GIVEN),
    "beam, both sides": lambda: decoding(both_sides(**LINEAR), DECODING | {"S": 9, "W": 3}, "beam", 5, **SOURCE),
    "beam, bilayer": lambda: decoding(
        bilayer(BilayerConfig(max_len=7), 17), VECTORS | {"V": 17, "P": 3, "U": 8}, "beam", 5
    ),
    "reversal": lambda: of_task(Reversal, REVERSAL),
    "time_series": lambda: of_task(TimeSeries, TimeSeriesConfig()),
    "boolean_map": lambda: of_task(BooleanMap, BooleanMapConfig()),
    "masking": lambda: ({"B": 5, "P": 7, "T": 9}, masked, jax.random.key(0), TOKENS, np.full((5, 1), 7)),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_arrays_of_a_program_have_the_shapes_of_their_names(name):
    assert watch(*PROGRAMS[name]()) == []


def in_fxf(function):
    """Makes a function one that stands in a file of fxf."""
    function.__code__ = function.__code__.replace(co_filename=str(ROOT / "fxf" / "layers" / "other.py"))
    return function


def heads(x_BTD):
    heads_BHTK = x_BTD.reshape(5, 7, 6, 4)
    return heads_BHTK


def shifted(tokens_BT):
    shifted_BT = tokens_BT[:, 1:]
    return shifted_BT


def flat(x_BTD):
    rows_ND = x_BTD
    return rows_ND


@pytest.mark.parametrize(
    ("function", "shape", "line"),
    [
        (heads, (5, 7, 24), "heads_BHTK (5, 7, 6, 4)"),  # letters in another order
        (shifted, (5, 7), "shifted_BT (5, 6)"),  # a letter of two sizes in one function
        (flat, (5, 7, 24), "rows_ND (5, 7, 24)"),  # an axis without a letter
    ],
)
def test_a_name_that_does_not_fit_its_array_is_found(function, shape, line):
    (found,) = watch(SIZES, in_fxf(function), np.ones(shape, np.float32))
    assert line in found


def test_a_letter_in_a_shape_or_an_einsum_is_read():
    text = 'def f():\n    """Returns [B, Z, 2Y+2, rows]."""  # int32 [J]\n'
    assert list(shapes_in_text(text, ast.walk(ast.parse(text)))) == ["B", "Z", "Y", "J"]
    tree = ast.parse('y = jnp.einsum("BTD,DF->BTF", x_BTD, w_FD)')
    assert list(einsums_in(ast.walk(tree))) == [("BTD", "x_BTD"), ("DF", "w_FD"), ("BTF", "")]
