"""Import and export of models of the `transformers` library.

Decoders: GPT-2, GPT-Neo, Llama, Mistral, Phi-3, Qwen 2, Qwen 3, SmolLM3, OLMo 2, StarCoder 2, StableLM, GLM-4,
ERNIE 4.5, Gemma, Gemma 2, the text models of Gemma 3. Mixtures of experts: Mixtral, Qwen2-MoE, Qwen 3 MoE, OLMoE,
gpt-oss, DeepSeek-V2 and DeepSeek-V3 (import only). Recurrent layers: Qwen3-Next, Mamba-2. Encoders: BERT, DistilBERT.
Encoder–decoder: Marian. `architectures.toml` and the tables beside it define them. Neither `transformers` nor `torch`
is needed.
"""

import dataclasses
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import tokenizers

from fxf.base.config import Field, checked
from fxf.base.errors import UserError
from fxf.base.files import read_json, require_file
from fxf.base.weights import Params, Spec, flatten
from fxf.data.tokenizer_file import read_backend
from fxf.interop.architecture import Architecture
from fxf.interop.architectures import ARCHITECTURES
from fxf.interop.config_json import Written, read_config, write_config
from fxf.interop.tensors import tensors_of, to_params, write_tensor
from fxf.interop.tokenizer_json import named_tokens
from fxf.interop.weights_file import open_tensors, write_tensors
from fxf.layers.config import TransformerConfig
from fxf.models import MODELS
from fxf.models.model import Model

CONFIG_FILE, TENSORS_FILE, INDEX_FILE = "config.json", "model.safetensors", "model.safetensors.index.json"
GENERATION_FILE, TOKENIZER_FILE = "generation_config.json", "tokenizer.json"
TOKENIZER_CONFIG_FILE = "tokenizer_config.json"
END, SPLIT = "eos_token_id", "split_special_tokens"


class Loaded(NamedTuple):
    """An imported model of `transformers`.

    Attributes:
      config: the `model` section.
      huggingface: the content of config.json, which also names special tokens.
      tokenizer: the tokenizer in the folder's tokenizer.json, of the library `tokenizers`; None without the file.
      end_tokens: the tokens that end a text, from generation_config.json or else config.json.
    """

    config: TransformerConfig
    model: Model
    params: Params
    huggingface: dict[str, Any]
    tokenizer: tokenizers.Tokenizer | None
    end_tokens: tuple[int, ...]


def load(folder: str | Path, shardings_of: Callable[[Spec], Params] | None = None) -> Loaded:
    """Reads a folder of `transformers`, with its tensors in one or several files.

    One tensor at a time is in memory besides the params.

    Args:
      shardings_of: maps a spec to the shardings of its weights, as `Layout.weights` does; None: the default device
        holds all.

    Raises:
      UserError: the folder cannot be read, or fxf cannot express the model.
    """
    folder, where, tokenizer = Path(folder), str(folder), None
    huggingface, tensors = _read_json(folder / CONFIG_FILE), _open_folder(folder)
    if (folder / TOKENIZER_FILE).exists():
        tokenizer = read_backend(folder / TOKENIZER_FILE)
        tokenizer.encode_special_tokens = _optional_json(folder / TOKENIZER_CONFIG_FILE).get(SPLIT) is True
    architecture, config = _section(huggingface, where)
    vocab_size = checked(huggingface.get("vocab_size"), Field(int, {"minimum": 1}), f"{where}: vocab_size")
    model = MODELS[architecture.model].make(config, vocab_size)
    shardings = {} if shardings_of is None else flatten(shardings_of(model.spec))
    params = to_params(architecture, model.spec, tensors, where, shardings)
    ends = {**huggingface, **_optional_json(folder / GENERATION_FILE)}.get(END)
    tokens = ends if isinstance(ends, list) else [] if ends is None else [ends]
    # A class's default may lie outside a small vocabulary, and older exports have -1 where no token ends a text.
    end_tokens = tuple(token for token in tokens if type(token) is int and 0 <= token < vocab_size)
    return Loaded(config, model, params, huggingface, tokenizer, end_tokens)


def section_of(folder: Path) -> TransformerConfig:
    """Returns the `model` section for a folder of `transformers`; raises as `load`."""
    return _section(_read_json(folder / CONFIG_FILE), str(folder))[1]


def _section(huggingface: Mapping[str, Any], where: str) -> tuple[Architecture, TransformerConfig]:
    model_type = huggingface.get("model_type")
    if model_type not in list(ARCHITECTURES):  # suggests no nearest name, because bart is not a mistyped bert
        raise UserError(f"{where}: model_type: expected one of {', '.join(ARCHITECTURES)}; got {model_type!r}")
    if huggingface.get("quantization_config"):
        raise UserError(f"{where}: quantization_config: fxf cannot read quantized weights")
    architecture, config = ARCHITECTURES[model_type], read_config(ARCHITECTURES[model_type], huggingface, where)
    ignored = architecture.ignored.replace("{n_layers}", str(config.n_layers))
    return dataclasses.replace(architecture, rotary_share=config.rotary_share, ignored=ignored), config


def save(
    folder: str | Path,
    config: TransformerConfig,
    params: Params,
    *,
    first: int | None,
    end: int | None,
    padding: int | None,
    tokenizer: str | None = None,
    longest: int | None = None,
) -> None:
    """Writes a folder that `from_pretrained` reads.

    Args:
      config: the `model` section; a class of `transformers` must fit it.
      first: the token before every sequence that a decoder reads; None for none.
      end: the token that ends a sequence; None for none.
      padding: the padding token; None for `end`.
      tokenizer: the content of a tokenizer.json, as `tokens_of` returns it for a task.
      longest: the maximum number of tokens that `generate` adds; None: the number of positions.

    Raises:
      UserError: `transformers` has no model like `config`.
    """
    folder, written = Path(folder), write_config(config)
    ids = {"bos_token_id": first, END: end, "pad_token_id": end if padding is None else padding}
    model = written.architecture.model
    if model == "encoder_decoder":
        ids |= {"decoder_start_token_id": first, "forced_eos_token_id": None}
    record = {**written.record, "vocab_size": len(params["embedding"]["table"]), **ids}
    texts = {CONFIG_FILE: _json(record)}
    if model != "masked_lm":
        # max_length counts the first token, and the last new token needs no position.
        texts[GENERATION_FILE] = _json({**ids, "max_length": 1 + (longest or config.max_len)})
    if tokenizer is not None:
        tokenizer_config = {
            "tokenizer_class": "PreTrainedTokenizerFast",
            **named_tokens(tokenizer, ids, masks=model == "masked_lm"),
            SPLIT: True,  # text that is spelled like a special token is encoded as text
            "clean_up_tokenization_spaces": False,
            "model_input_names": ["input_ids", "attention_mask"],
            "model_max_length": config.max_len,
            # Generation continues at the end of each row, so prompts are padded on the left. Only rotary positions
            # allow this: the others count from the start of the row.
            "padding_side": "left" if config.positions == "rotary" else "right",
        }
        texts |= {TOKENIZER_FILE: tokenizer, TOKENIZER_CONFIG_FILE: _json(tokenizer_config)}
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")
    write_tensors(folder / TENSORS_FILE, tensors(written, params), {"format": "pt"})


def tensors(written: Written, params: Params) -> dict[str, np.ndarray]:
    """Returns the tensors of a state dict by name, without tied copies."""
    architecture, values = written.architecture, flatten(params)
    spec = MODELS[architecture.model].make(written.section, len(params["embedding"]["table"])).spec
    parts = tensors_of(architecture, spec)
    return {name: write_tensor(architecture, name, parts[name], values) for name in parts}


def _open_folder(folder: Path) -> dict[str, Any]:
    """Opens the tensors of a folder, in one file or in the files that its index names."""
    if (folder / TENSORS_FILE).exists() or not (folder / INDEX_FILE).exists():
        if not (folder / TENSORS_FILE).exists() and (others := sorted(folder.glob("*.bin"))):
            raise UserError(f"{folder}: {TENSORS_FILE} is missing; fxf does not read {others[0].name}")
        return open_tensors(folder / TENSORS_FILE)
    files = dict.fromkeys(_read_json(folder / INDEX_FILE).get("weight_map", {}).values())
    return {name: tensor for file in files for name, tensor in open_tensors(folder / file).items()}


def _json(record: Mapping[str, Any]) -> str:
    return json.dumps(record, indent=2, ensure_ascii=False) + "\n"


def _optional_json(path: Path) -> dict[str, Any]:
    return _read_json(path) if path.exists() else {}


def _read_json(path: Path) -> dict[str, Any]:
    require_file(path)
    return read_json(path, "JSON of transformers")
