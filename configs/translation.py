"""Translation: English to French from fxf's own phrase book, or your own text.

fxf train --config=translation --workdir=runs/translation
fxf train --config=translation:anki --config.data.path=fra.txt --workdir=runs/anki

argument         what                                                 expect (seed 0)
(none), fr, es   the phrase book, held-out combinations of words      fr: EXPECTED, below
six              six everyday phrases, by seed 003's recipe           all six right after 100 steps
anki             a file of English TAB French, by seed 000's recipe   data.path is manythings.org/anki's fra.txt
multi30k_de, fr  to German or French, at Transformer-Tiny's size      de: test BLEU 41.4, beam of 5, mean of 3 seeds
multi30k_deen    German to English, greedy                            test BLEU 39.3

For multi30k, data.path is the folder data/task1/tok of github.com/multi30k/dataset.
On two slow cores the default takes some minutes, `six` takes one, and `multi30k` one to two hours.
experiments/results/ has the logs of long runs.
"""

from typing import Any

from ml_collections import ConfigDict

from fxf.base.config import one_of
from fxf.runs.experiment import default_config

EXPECTED = {name: {"bleu": 99.4, "exact_match": 0.98} for name in ("", "fr")}  # seed 0

ARGUMENTS = ("fr", "es", "six", "anki", "multi30k_de", "multi30k_fr", "multi30k_deen")

# The settings of the two seeds that describe an encoder–decoder. Other keys keep their defaults.
PRESETS: dict[str, dict[str, Any]] = {
    # Seed 000. Cross-attention normalizes the encoder's output and not its queries. No norm follows a stack.
    "wolfram": {
        **{"n_layers": 6, "d_model": 128, "d_ff": 512, "n_heads": 8, "max_len": 512},
        **{"dropout": 0.1, "embedding_dropout": 0.1, "attention_dropout": 0.0, "activation": "gelu"},
        **{"block": "pre_norm", "cross_norm": "source", "final_norm": False},
        **{"norm_epsilon": 1e-4, "norm_epsilon_in": "variance"},
        **{"positions": "learned", "attention_bias": "all", "embeddings": "separate"},
    },
    # Seed 003, which has no dropout.
    "annotated": {
        **{"n_layers": 6, "d_model": 512, "d_ff": 2048, "n_heads": 8, "max_len": 20},
        **{"dropout": 0.0, "embedding_dropout": 0.0, "attention_dropout": 0.0, "activation": "relu"},
        **{"block": "post_norm", "final_norm": False, "norm_epsilon": 1e-5, "norm_epsilon_in": "variance"},
        **{"positions": "sinusoidal", "attention_bias": "none", "embeddings": "shared"},
    },
}


def get_config(argument: str = "fr") -> ConfigDict:
    one_of(argument, ARGUMENTS, "argument")
    if argument == "six":
        return _six()
    if argument == "anki":
        return _anki()
    return _multi30k(argument) if argument.startswith("multi30k") else _phrasebook(argument)


def _phrasebook(language: str) -> ConfigDict:
    config = default_config(task="translation")
    data, model = config.data, config.model
    data.target, data.vocab_size, data.batch_tokens, data.shapes, data.max_length = language, 1500, 2048, 3, 48
    model.n_layers, model.d_model, model.d_ff, model.n_heads, model.max_len = 2, 128, 256, 4, 48
    model.embeddings, model.positions, model.norm_epsilon_in = "shared", "sinusoidal", "variance"
    config.optimizer.learning_rate, config.optimizer.schedule, config.optimizer.warmup_steps = 4e-3, "cosine", 100
    config.optimizer.b2, config.optimizer.clip_norm = 0.98, 1.0
    config.train.steps, config.train.batch_size = 800, 512
    config.log.every = 50
    config.checkpoint.every = 200
    return config


def _six() -> ConfigDict:
    """Returns seed 003's recipe: all six pairs in every batch, Adam at 1e-4, 100 steps, a beam of 3, lower case."""
    config = default_config(task="translation")
    config.model.update(PRESETS["annotated"])
    config.data.name, config.data.tokenizer, config.data.max_length = "six", "word", 20
    config.data.lower_case, config.data.shapes = True, 1
    config.optimizer.learning_rate = 1e-4
    config.train.steps, config.train.batch_size = 100, 6
    config.decode.beam_width, config.decode.length_penalty = 3, 0.0
    config.log.every = 10
    return config


def _anki() -> ConfigDict:
    """Returns seed 000's model with three of its four rounds of Adam, in larger batches than its 16 sentences.

    `data.path` names the file. Text is in lower case and sometimes without punctuation; then "thank you" matches the
    file's "Thank you.".
    """
    config = default_config(task="translation")
    config.model.update(PRESETS["wolfram"])
    data = config.data
    data.name, data.columns, data.vocab_size, data.held_out, data.lower_case = "pairs", "en,fr", 8000, 0.05, True
    data.unpunctuated, data.batch_tokens = 0.1, 2048
    config.optimizer.learning_rate, config.optimizer.schedule, config.optimizer.warmup_steps = 2e-3, "cosine", 200
    config.optimizer.b2, config.optimizer.clip_norm = 0.98, 1.0
    config.train.steps, config.train.batch_size = 2800, 512
    config.checkpoint.every = 500
    return config


def _multi30k(argument: str) -> ConfigDict:
    """Returns a model of Transformer-Tiny's size (Wu et al. 2021) for Multi30k, whose files are in `data.path`.

    Positions, optimizer, rate and steps to German and French were chosen on English–German validation.
    """
    config = default_config(task="translation")
    source, target = ("de", "en") if argument == "multi30k_deen" else ("en", argument[-2:])
    config.task.tokenized = True
    data, model = config.data, config.model
    data.name, data.source, data.target = "parallel", source, target
    data.train, data.validation, data.test = "train.lc.norm.tok", "val.lc.norm.tok", "test_2016_flickr.lc.norm.tok"
    data.vocab_size, data.batch_tokens, data.shapes = 6000, 4096, 14
    model.n_layers, model.d_model, model.d_ff, model.n_heads, model.max_len = 4, 128, 256, 4, 128
    model.dropout, model.embedding_dropout, model.embeddings = 0.3, 0.3, "shared"
    model.positions, model.attention_bias, model.norm_epsilon_in = "rotary", "all", "variance"
    optimizer = config.optimizer
    optimizer.name, optimizer.learning_rate, optimizer.schedule, optimizer.warmup_steps = "muon", 1.5e-2, "cosine", 300
    optimizer.b2, optimizer.clip_norm = 0.98, 1.0
    config.train.steps, config.train.batch_size, config.train.label_smoothing = 7000, 512, 0.1
    config.train.evaluate_every = 1750
    config.checkpoint.every, config.checkpoint.keep, config.checkpoint.average = 200, 5, 5
    if argument == "multi30k_deen":
        data.batch_tokens, model.dropout, model.embedding_dropout, model.positions = 2048, 0.2, 0.2, "sinusoidal"
        optimizer.name, optimizer.learning_rate, optimizer.warmup_steps = "adam", 3e-3, 800
        config.train.steps, config.train.evaluate_every = 4500, 1000
    else:
        config.decode.beam_width = 5
    return config
