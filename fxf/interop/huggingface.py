"""Import and export of models of the `transformers` library.

They are GPT-2, BERT, Marian, Llama, Mistral, Qwen 2, Qwen 3, Gemma 2, the text models of Gemma 3, the mixtures of
experts Mixtral, Qwen 3 MoE, OLMoE, DeepSeek-V2 and DeepSeek-V3, and Qwen3-Next and Mamba-2, whose memories fade.
`architectures.toml` and the tables beside it list them. Neither `transformers` nor `torch` is needed.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import tokenizers

from fxf.data.tokenizer_file import read_backend
from fxf.errors import UserError
from fxf.files import read_file
from fxf.interop.architecture import Architecture
from fxf.interop.architectures import ARCHITECTURES
from fxf.interop.config_json import SIZE_LIMIT, Written, read_config, write_config
from fxf.interop.tensors import Part, tensor_shape, tensors_of, to_params, write_tensor
from fxf.interop.tokenizer_json import named_tokens
from fxf.interop.weights_file import StoredTensor, open_tensors, write_tensors
from fxf.layers.config import TransformerConfig
from fxf.models import MODELS
from fxf.models.model import Model
from fxf.training.sharding import Layout
from fxf.weights import Params, flatten

CONFIG_FILE, TENSORS_FILE, INDEX_FILE = "config.json", "model.safetensors", "model.safetensors.index.json"
GENERATION_FILE, TOKENIZER_FILE = "generation_config.json", "tokenizer.json"
TOKENIZER_CONFIG_FILE, TOKENIZER_MAP_FILE = "tokenizer_config.json", "special_tokens_map.json"
REFUSED = {
    "quantization_config": "fxf cannot read quantized weights",
    "per_layer_config": "fxf has one config for all blocks",
    "pruned_heads": "fxf has as many heads in all blocks",
}
END, SPLIT = "eos_token_id", "split_special_tokens"
SHARD_BYTES = 5 * 10**9  # of the largest tensors file that is written, as in transformers


class Loaded(NamedTuple):
    """A model of `transformers` in fxf.

    Attributes:
      config: the `model` section.
      huggingface: the content of config.json, which also names special tokens.
      tokenizer: that of tokenizer.json in the folder, of the library `tokenizers`; None if there is none.
      end_tokens: the tokens that end a text, of generation_config.json or else of config.json.
    """

    config: TransformerConfig
    model: Model
    params: Params
    huggingface: dict[str, Any]
    tokenizer: tokenizers.Tokenizer | None
    end_tokens: tuple[int, ...]


def load(source: Any, layout: Layout | None = None) -> Loaded:
    """Reads a folder of `transformers`, with its tensors in one or several files, or a model object.

    One tensor at a time is in memory beside the params.

    Args:
      layout: the devices that hold the params, each as much as `layout.weights` says; None for the default device.

    Raises:
      UserError: the folder cannot be read, or fxf does not have the model.
    """
    tokenizer, generation = None, {}
    if isinstance(source, str | Path):
        folder, where = Path(source), str(source)
        huggingface, tensors = _read_json(folder / CONFIG_FILE), _open_folder(folder)
        if (folder / TOKENIZER_FILE).exists():
            tokenizer = read_backend(folder / TOKENIZER_FILE)
            tokenizer.encode_special_tokens = _optional_json(folder / TOKENIZER_CONFIG_FILE).get(SPLIT) is True
        generation = _optional_json(folder / GENERATION_FILE)
    else:
        huggingface, where = source.config.to_dict(), type(source).__name__
        tensors = {
            name: _stored(x) for name, tensor in source.state_dict().items() for name, x in _by_expert(name, tensor)
        }
        if getattr(source, "generation_config", None) is not None:
            generation = source.generation_config.to_dict()
    architecture, config = _section(huggingface, where)
    vocab_size = huggingface.get("vocab_size")
    if type(vocab_size) is not int or not 1 <= vocab_size < SIZE_LIMIT:
        raise UserError(f"{where}: vocab_size: expected a positive int, got {vocab_size!r}")
    if config.n_layers > len(tensors):
        raise UserError(f"{where}: the config has {config.n_layers} layers, but there are only {len(tensors)} tensors")
    model = MODELS[architecture.model].make(config, vocab_size)

    shardings = {} if layout is None else flatten(layout.weights(model.spec))

    def place(path: str, value: np.ndarray) -> jax.Array:
        return jax.device_put(value, shardings[path]) if shardings else jnp.array(value)

    params = to_params(architecture, model.spec, tensors, where, place)
    ends = {**huggingface, **generation}.get(END)
    return Loaded(config, model, params, huggingface, tokenizer, _tokens(ends, vocab_size, where))


def _tokens(found: Any, vocab_size: int, where: str) -> tuple[int, ...]:
    """Returns the tokens of a key of config.json, which holds one, several or none."""
    tokens = found if isinstance(found, list) else [] if found is None else [found]
    if not all(type(token) is int for token in tokens):
        raise UserError(f"{where}: {END}: expected a token, several or null, got {found!r}")
    # Classes have numbers of large vocabularies by default, and older exports have -1 where no token ends a text.
    return tuple(token for token in tokens if 0 <= token < vocab_size)


def section_of(folder: Path) -> TransformerConfig:
    """Returns the `model` section for a folder of `transformers`; raises as `load`."""
    return _section(_read_json(folder / CONFIG_FILE), str(folder))[1]


def _section(huggingface: Mapping[str, Any], where: str) -> tuple[Architecture, TransformerConfig]:
    model_type = huggingface.get("model_type")
    if model_type not in list(ARCHITECTURES):  # suggests no nearest name, because bart is not a mistyped bert
        raise UserError(f"{where}: model_type: expected one of {', '.join(ARCHITECTURES)}; got {model_type!r}")
    for key, why in REFUSED.items():
        if huggingface.get(key):
            raise UserError(f"{where}: {key}: {why}")
    architecture = ARCHITECTURES[model_type]
    return architecture, read_config(architecture, huggingface, where)


def save(
    folder: str | Path,
    config: TransformerConfig,
    params: Params,
    *,
    first: int | None,
    end: int | None,
    padding: int | None,
    tokenizer: str | None = None,
    shard_bytes: int = SHARD_BYTES,
) -> None:
    """Writes a folder that `from_pretrained` reads.

    Args:
      config: the `model` section; its choices must be those of a model of `transformers`.
      first: the token in front of every sequence that a decoder reads; None if there is none.
      end: the token that ends a sequence; None if none does.
      padding: the padding token; None for `end`.
      tokenizer: the text of a tokenizer.json, as `tokens_of` returns it for a task.
      shard_bytes: the tensors go into several files if they are larger than this together.

    Raises:
      UserError: `transformers` has no model like `config`, or the folder cannot be written.
    """
    folder, written = Path(folder), write_config(config)
    ids = {"bos_token_id": first, END: end, "pad_token_id": end if padding is None else padding}
    model = written.architecture.model
    if model == "encoder_decoder":
        ids |= {"decoder_start_token_id": first, "forced_eos_token_id": None}
    record = {**written.record, "vocab_size": len(params["embedding"]["table"]), **ids}
    texts = {CONFIG_FILE: _json(record)}
    if model != "masked_lm":
        # The last new token needs no position. The first one stands before them.
        texts[GENERATION_FILE] = _json({**ids, "max_length": 1 + config.max_len})
    if tokenizer is not None:
        texts |= _tokenizer_files(tokenizer, ids, config, masks=model == "masked_lm")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for old in (*folder.glob("model*.safetensors"), folder / INDEX_FILE):  # of another number of files
            old.unlink(missing_ok=True)
        for name, text in texts.items():
            (folder / name).write_text(text, encoding="utf-8")
    except OSError as error:
        raise UserError(f"{folder}: cannot write it: {error.strerror}") from None
    _write_shards(folder, written, params, shard_bytes)


def _tokenizer_files(
    tokenizer: str, ids: Mapping[str, int | None], config: TransformerConfig, masks: bool
) -> dict[str, str]:
    """Returns the texts of the files of a tokenizer by name."""
    names = named_tokens(tokenizer, {key: ids[key] for key in ("bos_token_id", END, "pad_token_id")}, masks)
    record = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        **names,
        SPLIT: True,  # text that is spelled like a special token is text
        "clean_up_tokenization_spaces": False,
        "model_input_names": ["input_ids", "attention_mask"],
        "model_max_length": config.max_len,
        # Generation goes on at the end of each row. Rotary positions may begin anywhere; others begin with the row.
        "padding_side": "left" if config.positions == "rotary" else "right",
    }
    named = {key: name for key, name in names.items() if name is not None}
    return {TOKENIZER_FILE: tokenizer, TOKENIZER_CONFIG_FILE: _json(record), TOKENIZER_MAP_FILE: _json(named)}


def limit_answers(folder: Path, longest: int) -> None:
    """Writes into a folder that was saved how many tokens `generate` adds at most, if it is not all positions."""
    record = _read_json(folder / GENERATION_FILE)
    (folder / GENERATION_FILE).write_text(_json({**record, "max_length": 1 + longest}), encoding="utf-8")


def to_tensors(config: TransformerConfig, params: Params) -> dict[str, np.ndarray]:
    """Returns the tensors of a state dict by name, without those that repeat another one.

    Raises:
      UserError: `transformers` has no model like `config`.
    """
    written, values = write_config(config), flatten(params)
    parts = _parts(written, params)
    return {name: write_tensor(written.architecture, name, group, values) for name, group in parts.items()}


def _parts(written: Written, params: Params) -> dict[str, list[Part]]:
    """Returns the weights of each tensor of the model that was written."""
    architecture, vocab_size = written.architecture, len(params["embedding"]["table"])
    return tensors_of(architecture, MODELS[architecture.model].make(written.section, vocab_size).spec)


def _write_shards(folder: Path, written: Written, params: Params, shard_bytes: int) -> None:
    """Writes the tensors into one file, or into several with an index; makes one file's tensors at a time."""
    parts, architecture, values = _parts(written, params), written.architecture, flatten(params)
    sizes = {name: 4 * int(np.prod(tensor_shape(architecture, name, group))) for name, group in parts.items()}
    shards: list[list[str]] = []
    for name, size in sizes.items():
        if not shards or sum(sizes[other] for other in shards[-1]) + size > shard_bytes:
            shards.append([])
        shards[-1].append(name)
    files: dict[str, str] = {}
    for number, names in enumerate(shards, 1):
        file = TENSORS_FILE if len(shards) == 1 else f"model-{number:05}-of-{len(shards):05}.safetensors"
        tensors = {name: write_tensor(architecture, name, parts[name], values) for name in names}
        write_tensors(folder / file, tensors, {"format": "pt"})
        files |= dict.fromkeys(names, file)
    if len(shards) > 1:
        index = {"metadata": {"total_size": sum(sizes.values())}, "weight_map": files}
        (folder / INDEX_FILE).write_text(json.dumps(index, indent=2) + "\n", encoding="utf-8")


def _open_folder(folder: Path) -> dict[str, StoredTensor]:
    """Returns the tensors of a folder, whose index names the files if there are several."""
    if (folder / TENSORS_FILE).exists() or not (folder / INDEX_FILE).exists():
        if not (folder / TENSORS_FILE).exists() and (others := sorted(folder.glob("*.bin"))):
            raise UserError(f"{folder}: fxf reads {TENSORS_FILE}, which is absent, and not {others[0].name}")
        return open_tensors(folder / TENSORS_FILE)[0]
    files = _read_json(folder / INDEX_FILE).get("weight_map")
    if not isinstance(files, Mapping) or not all(isinstance(x, str) and Path(x).name == x for x in files.values()):
        raise UserError(f"{folder / INDEX_FILE}: weight_map: expected names of tensors and of files beside the index")
    opened = {file: open_tensors(folder / file)[0] for file in dict.fromkeys(files.values())}
    for name, file in files.items():
        if name not in opened[file]:
            raise UserError(f"{folder / file}: {name} is absent; {INDEX_FILE} says that it is here")
    return {name: opened[file][name] for name, file in files.items()}


def _by_expert(name: str, tensor: Any) -> Iterator[tuple[str, Any]]:
    """Yields a tensor of a model object; of the experts of a mixture, which are joined there, each as in a folder."""
    place, mark, joined = name.rpartition(".experts.")
    if not mark or joined not in ("gate_up_proj", "down_proj"):
        yield name, tensor
        return
    for expert, of_one in enumerate(tensor):
        parts = (
            zip(("gate_proj", "up_proj"), of_one.chunk(2), strict=True) if joined != "down_proj" else [(joined, of_one)]
        )
        yield from ((f"{place}.experts.{expert}.{part}.weight", x) for part, x in parts)


def _stored(tensor: Any) -> StoredTensor:
    """Returns a tensor of torch, which is copied when it is read."""

    def read() -> np.ndarray:
        here = tensor.detach().cpu()
        return (here.float() if here.is_floating_point() else here).numpy()

    return StoredTensor(tuple(tensor.shape), read)


def _json(record: Mapping[str, Any]) -> str:
    return json.dumps(record, indent=2, ensure_ascii=False) + "\n"


def _optional_json(path: Path) -> dict[str, Any]:
    return _read_json(path) if path.exists() else {}


def _read_json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(read_file(path).decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path}: not JSON: {error}") from None
    if not isinstance(content, dict):
        raise UserError(f"{path}: expected an object of keys")
    return content
