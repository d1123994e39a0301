"""The classes of the `transformers` library that fxf has."""

import tomllib
from pathlib import Path
from typing import Any

from fxf.interop import recurrent_decoders, rotary_decoders
from fxf.interop.architecture import Architecture

CLASSES = {**rotary_decoders.CLASSES, **recurrent_decoders.CLASSES}
TABLES = [Path(__file__).with_name(f"{name}.toml") for name in ("architectures", "mixtures", "recurrent")]


def _architectures() -> dict[str, Architecture]:
    tables: dict[str, dict[str, Any]] = {}
    text = "\n".join(path.read_text(encoding="utf-8") for path in TABLES)
    for model_type, own in tomllib.loads(text).items():
        table = tables.get(own.pop("like", ""), {})
        inner = {key: {**table.get(key, {}), **value} for key, value in own.items() if isinstance(value, dict)}
        tables[model_type] = {**table, **own, **inner}
    return {
        model_type: CLASSES.get(model_type, Architecture)(model_type, table.pop("class"), **table)
        for model_type, table in tables.items()
        if "class" in table
    }


ARCHITECTURES = _architectures()  # by the `model_type` of config.json
