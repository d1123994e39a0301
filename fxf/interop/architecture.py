"""What a model class of the `transformers` library is in fxf's terms."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

# fxf's activations by their names in config.json; the first name of each is written.
ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "relu": "relu",
    "silu": "silu",
    "swish": "silu",
}


class Architecture(NamedTuple):
    """A class of `transformers` in fxf's terms.

    Attributes:
      name: the class.
      model: fxf's model.
      keys: pairs of a key of fxf's `model` section and one of config.json. If a key has several partners, their values
        must be equal.
      section: other keys of the `model` section that differ from the defaults.
      config: keys of config.json that must have these values if they are present.
      tensors: tensor names by the path of fxf's weight; {} is the block's index, which the path omits. Weights that
        share a tensor are side by side in it, in this order. A model has those of them that its config asks for.
      defaults: values of keys that config.json may lack.
      if_null: by a key of config.json that may be null, `value(section)`, which it then stands for. It reads the values
        of the `model` section that precede it in `keys`.
      read: `read(config_json, where)` returns further values of the `model` section, for keys of config.json that are
        no partners of one key; it raises a UserError, which begins with `where`, for what fxf does not have.
      write: `write(section)` returns these keys of config.json.
      transposed: whether matrices are [out, in].
      rotary_halves: whether rotary positions turn pairs (x_i, x_(i + K/2)) of a head, and not (x_2i, x_(2i+1)) as here.
      rows: tensors [1, n] whose weights in fxf are [n].
      renamed: pairs of a regular expression for names in older files and its replacement.
      ignored: a regular expression for tensors that repeat another one, are computed or do not belong to this model.
      computed: by a regular expression for ignored tensors, `computed(shape)`, which they must hold up to rounding.
    """

    name: str
    model: str
    keys: tuple[tuple[str, str], ...]
    section: dict[str, Any]
    config: dict[str, Any]
    tensors: dict[str, str]
    defaults: dict[str, Any] = {}  # noqa: RUF012  nothing changes it
    if_null: dict[str, Callable[[Mapping[str, Any]], Any]] = {}  # noqa: RUF012
    read: Callable[[Mapping[str, Any], str], dict[str, Any]] = lambda config_json, where: {}
    write: Callable[[Any], dict[str, Any]] = lambda section: {}
    transposed: bool = True
    rotary_halves: bool = False
    rows: tuple[str, ...] = ()
    renamed: tuple[tuple[str, str], ...] = ()
    ignored: str = ""
    computed: dict[str, Callable[[tuple[int, ...]], Any]] = {}  # noqa: RUF012


def named_layers(path: str, name: str, parts: dict[str, str], suffixes: tuple[str, str]) -> dict[str, str]:
    """Returns the tensor names of weights and biases by fxf's path; `parts` maps fxf's layer names to theirs."""
    weight, bias = suffixes
    tensors = {f"{path}/{a}{weight}": f"{name}.{b}.weight" for a, b in parts.items()}
    return tensors | {f"{path}/{a}{bias}": f"{name}.{b}.bias" for a, b in parts.items()}


def linear_maps(path: str, name: str, parts: dict[str, str]) -> dict[str, str]:
    """Returns the tensor names of linear maps and their biases, as `named_layers`."""
    return named_layers(path, name, parts, ("", "_bias"))


def norms(path: str, name: str, parts: dict[str, str]) -> dict[str, str]:
    """Returns the tensor names of the scales and biases of norms, as `named_layers`."""
    return named_layers(path, name, parts, ("/scale", "/bias"))
