"""The registry of tasks: the config sections, class and models of each."""

from collections.abc import Callable
from typing import Any, NamedTuple

from fxf.base.config import Choices
from fxf.data.corpus import DataConfig
from fxf.data.documents import DocumentsConfig
from fxf.data.text import TextConfig
from fxf.tasks.language_model import LanguageModelConfig, language_model
from fxf.tasks.masking import Masking, MaskingConfig
from fxf.tasks.reversal import Reversal, ReversalConfig
from fxf.tasks.task import RunInfo, Task
from fxf.tasks.translation import Translation, TranslationConfig


class RegisteredTask(NamedTuple):
    """A task's config sections, its `make(task section, RunInfo) -> Task`, and its models, the default first."""

    sections: dict[str, Any]
    make: Callable[[Any, RunInfo], Task]
    models: tuple[str, ...]


TASKS: Choices[RegisteredTask] = Choices(
    {
        "reversal": RegisteredTask({"task": ReversalConfig}, Reversal, ("transformer_lm",)),
        "translation": RegisteredTask(
            {"task": TranslationConfig, "data": DataConfig}, Translation, ("encoder_decoder",)
        ),
        "language_model": RegisteredTask(
            {"task": LanguageModelConfig, "data": DocumentsConfig}, language_model, ("transformer_lm",)
        ),
        "masking": RegisteredTask({"task": MaskingConfig, "data": TextConfig}, Masking, ("masked_lm",)),
    }
)
