"""A language model of documents: the sentences of fxf's own phrase book, or files of text or JSON lines.

fxf train --config=documents --workdir=runs/documents
fxf train --config=documents:json_lines --config.data.path=corpus.jsonl --workdir=runs/corpus

argument      what
(none)        the phrase book's sentences, with a BPE tokenizer
characters    the same, with a character tokenizer
json_lines    10M weights, documents of any JSON lines; data.path is the file, or a folder of them

Tokens are prepared once in a folder beside `data.path`; a corpus need not fit in memory.
"""

from ml_collections import ConfigDict

from fxf.base.config import one_of
from fxf.runs.experiment import default_config

EXPECTED = {"": {"bits_per_byte": 0.70}, "characters": {"bits_per_byte": 0.96}}  # seed 0

ARGUMENTS = ("default", "characters", "json_lines")


def get_config(argument: str = "default") -> ConfigDict:
    one_of(argument, ARGUMENTS, "argument")
    config = default_config(task="language_model")
    config.data.tokenizer = "bpe"
    config.decode.temperature = 0.8
    config.model.norm_epsilon_in, config.optimizer.schedule = "variance", "cosine"
    config.optimizer.b2, config.optimizer.clip_norm = 0.95, 1.0
    return _json_lines(config) if argument == "json_lines" else _phrasebook(config, argument == "characters")


def _phrasebook(config: ConfigDict, characters: bool) -> ConfigDict:
    config.data.format, config.data.separator = "files", "\n"
    config.data.validation, config.data.test = 0.05, 0.05
    config.data.tokenizer, config.data.vocab_size = ("character", 100) if characters else ("bpe", 1000)
    config.task.length = config.model.max_len = 128
    config.model.n_layers, config.model.d_model, config.model.d_ff, config.model.n_heads = 2, 128, 512, 4
    config.optimizer.learning_rate, config.optimizer.warmup_steps = 4e-3, 50
    config.train.steps, config.train.batch_size = 800, 16
    return config


def _json_lines(config: ConfigDict) -> ConfigDict:
    """Returns a small GPT with rotary positions; the validation share suits a corpus of gigabytes."""
    config.data.format, config.data.validation, config.data.vocab_size = "json_lines", 0.001, 16_000
    config.task.length = config.model.max_len = 512
    model = config.model
    model.n_layers, model.d_model, model.d_ff, model.n_heads = 6, 256, 1024, 4
    model.positions, model.norm, model.activation, model.gated = "rotary", "rms", "silu", True
    model.tied_embeddings = True
    config.optimizer.name, config.optimizer.learning_rate, config.optimizer.weight_decay = "adamw", 1e-3, 0.1
    config.optimizer.warmup_steps = 500
    config.train.steps, config.train.batch_size, config.train.evaluate_every = 20_000, 32, 2000
    return config
