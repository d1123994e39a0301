"""A model class of the `transformers` library in fxf's terms: a table of `architectures.toml`."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

# fxf's activations by their names in config.json; the first name of each is written.
ACTIVATIONS = {
    **{"gelu": "gelu", "gelu_new": "gelu_tanh", "gelu_pytorch_tanh": "gelu_tanh"},
    **{"relu": "relu", "silu": "silu", "swish": "silu"},
}
PARTNERS = (("_bias", ""), ("/bias", "/scale"), ("/bias", "/kernel"))  # path endings of a bias and of its weight


@dataclass(frozen=True)
class Architecture:
    """A class of `transformers`. The head of `architectures.toml` explains the fields."""

    model_type: str
    name: str
    model: str
    keys: dict[str, str]
    section: dict[str, Any]
    tensors: dict[str, str]
    config: dict[str, Any] = field(default_factory=dict)
    layers: dict[str, dict[str, str]] = field(default_factory=dict)
    defaults: dict[str, Any] = field(default_factory=dict)
    checked: dict[str, Any] = field(default_factory=dict)
    transposed: bool = True
    rotary_halves: bool = False
    rotary_share: float = 1.0
    activations: dict[str, str] = field(default_factory=dict)
    biased: tuple[str, str] = ("attention_bias", "all")
    global_every: int = 0
    by_head: str = "^$"
    convolutions: str = "^$"
    rows: tuple[str, ...] = ()
    renamed: dict[str, str] = field(default_factory=dict)
    ignored: str = "^$"

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """Keys of fxf's `model` section, each with a partner in config.json."""
        return [(key, theirs) for key, partners in self.keys.items() for theirs in partners.split()]

    def tensor(self, path: str) -> tuple[int, str]:
        """Returns a weight's index in the table and the name of its tensor. The path omits the block's index."""
        order = list(self.tensors)
        if path in self.tensors:
            return order.index(path), self.tensors[path]
        partners = ((path.removesuffix(end) + weight_end) for end, weight_end in PARTNERS if path.endswith(end))
        weight = next(path for path in partners if path in self.tensors)
        return order.index(weight), self.tensors[weight].removesuffix("weight") + "bias"

    def today(self, name: str) -> str:
        """Returns the current name of a tensor, given its name in this or an older version of the library."""
        for pattern, replacement in self.renamed.items():
            name = re.sub(pattern, replacement, name)
        return name

    def read(self, theirs: Mapping[str, Any], where: str) -> dict[str, Any]:
        """Returns values of the `model` section for those keys of config.json that do not map one to one.

        Raises:
          UserError: fxf cannot express what config.json says. The message begins with `where`.
        """
        return {}

    def write(self, section: Any) -> dict[str, Any]:
        """Returns the keys of config.json that `read` reads."""
        return {}
