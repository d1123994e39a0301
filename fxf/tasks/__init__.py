"""Tasks by name: the section classes that configure each, and the function that builds it."""

from collections.abc import Callable
from typing import Any, NamedTuple

from fxf.data.corpus import DataConfig
from fxf.data.text import TextConfig
from fxf.tasks.boolean_map import BooleanMapConfig, boolean_map
from fxf.tasks.characters import CharactersConfig, characters
from fxf.tasks.masking import MaskingConfig, masking
from fxf.tasks.reversal import ReversalConfig, reversal
from fxf.tasks.task import Setting, Task
from fxf.tasks.time_series import TimeSeriesConfig, time_series
from fxf.tasks.translation import TranslationConfig, translation


class RegisteredTask(NamedTuple):
    """The sections that configure a task, `make(task section, Setting) -> Task`, and the models that fit it.

    The first model is the default.
    """

    sections: dict[str, Any]
    make: Callable[[Any, Setting], Task]
    models: tuple[str, ...]


TASKS: dict[str, RegisteredTask] = {
    "reversal": RegisteredTask({"task": ReversalConfig}, reversal, ("transformer_lm",)),
    "translation": RegisteredTask({"task": TranslationConfig, "data": DataConfig}, translation, ("encoder_decoder",)),
    "time_series": RegisteredTask({"task": TimeSeriesConfig}, time_series, ("transformer_lm",)),
    "boolean_map": RegisteredTask({"task": BooleanMapConfig}, boolean_map, ("bilayer",)),
    "characters": RegisteredTask(
        {"task": CharactersConfig, "data": TextConfig}, characters, ("transformer_lm", "bilayer")
    ),
    "masking": RegisteredTask({"task": MaskingConfig, "data": TextConfig}, masking, ("masked_lm",)),
}
