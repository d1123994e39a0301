"""The classes of the `transformers` library that fxf can read."""

import tomllib
from pathlib import Path
from typing import Any

from fxf.interop import recurrent_decoders, rotary_decoders
from fxf.interop.architecture import Architecture

READERS = {**vars(rotary_decoders), **vars(recurrent_decoders)}
TABLES = [Path(__file__).with_name(f"{name}.toml") for name in ("architectures", "mixtures", "recurrent")]


def architectures(text: str) -> dict[str, Architecture]:
    """Parses tables in the format of architectures.toml; returns the classes by the `model_type` of config.json."""
    tables: dict[str, dict[str, Any]] = {}
    for model_type, own in tomllib.loads(text).items():
        table = tables.get(own.pop("like", ""), {"reader": "Architecture"})
        inner = {key: {**table.get(key, {}), **value} for key, value in own.items() if isinstance(value, dict)}
        tables[model_type] = {**table, **own, **inner}
    return {
        model_type: READERS[table.pop("reader")](model_type, table.pop("class"), **table)
        for model_type, table in tables.items()
        if "class" in table
    }


TEXT = "\n".join(path.read_text(encoding="utf-8") for path in TABLES)
ARCHITECTURES = architectures(TEXT)
