"""A character language model of a text: fxf's own phrase book, or any file.

fxf train --config=characters --workdir=runs/characters
fxf train --config=characters:nanogpt_cpu --config.data.path=input.txt --workdir=runs/cpu

argument      what                                           expect (seed 0)
(none)        the phrase book's English, or data.path        EXPECTED, below
nanogpt_cpu   nanoGPT's recipe for a CPU, 2,000 steps        tinyshakespeare: validation_loss 1.90
nanogpt_gpu   nanoGPT's recipe for a GPU, 5,000 steps        tinyshakespeare: nanoGPT reports 1.4697
fast          350 steps with Muon, a third of the weights    tinyshakespeare: validation_loss 1.86
fast_160      1,000 steps with longer windows, three layers  tinyshakespeare: validation_loss 1.58
gpt2          GPT-2's 124M and cuDNN's attention             the size of a row of `make bench`, on a GPU
primer        seed 002's bilayer on one-hot letters          Goethe's Faust: accuracy 0.37

For all but the default, data.path is tinyshakespeare's input.txt, or another text.
"""

from ml_collections import ConfigDict

from fxf.base.config import one_of
from fxf.runs.experiment import default_config

EXPECTED = {"": {"test_loss": 0.68, "bits_per_character": 0.99}}  # seed 0

ARGUMENTS = ("default", "nanogpt_cpu", "nanogpt_gpu", "fast", "fast_160", "gpt2", "primer")


def get_config(argument: str = "default") -> ConfigDict:
    one_of(argument, ARGUMENTS, "argument")
    if argument == "primer":
        return _primer()
    config = default_config(task="language_model")
    config.decode.temperature = 0.8
    if argument.startswith("nanogpt"):
        return _nanogpt(config, argument == "nanogpt_gpu")
    return {"default": _default, "fast": _fast, "fast_160": _fast_160, "gpt2": _gpt2}[argument](config)


def _nanogpt(config: ConfigDict, gpu: bool) -> ConfigDict:
    """Returns nanoGPT's settings: its README's for a CPU, its config/train_shakespeare_char.py's for a GPU.

    Source: github.com/karpathy/nanoGPT. Unlike there, norms and feed-forward layers have biases, half a percent of the
    weights for a CPU, and weight decay leaves embeddings out.
    """
    model, optimizer = config.model, config.optimizer
    model.n_layers, model.d_model, model.n_heads = (6, 384, 6) if gpu else (4, 128, 4)
    model.d_ff = 4 * model.d_model
    model.positions, model.activation, model.attention_bias = "learned", "gelu", "none"
    model.norm_epsilon, model.norm_epsilon_in = 1e-5, "variance"
    model.tied_embeddings, model.init = True, "gpt2"
    config.task.bos, config.task.length = False, 256 if gpu else 64
    model.max_len = config.task.length
    config.train.steps, config.train.batch_size = (5000, 64) if gpu else (2000, 12)
    if gpu:
        model.dropout = model.embedding_dropout = model.attention_dropout = 0.2
    optimizer.name, optimizer.schedule = "adamw", "cosine"
    optimizer.learning_rate, optimizer.final_learning_rate, optimizer.warmup_steps = 1e-3, 1e-4, 100
    optimizer.b2, optimizer.weight_decay, optimizer.clip_norm = 0.99, 0.1, 1.0
    config.train.evaluate_every = 250
    config.checkpoint.best = "-validation_loss"
    return config


def _fast(config: ConfigDict) -> ConfigDict:
    """Returns nanoGPT's CPU recipe with half its blocks and d_ff, twice its batch, <bos>, trained sinusoids, Muon."""
    config = _nanogpt(config, gpu=False)
    config.task.bos = True
    config.model.n_layers, config.model.d_ff = 2, 256
    config.model.positions, config.model.activation = "sinusoidal_trained", "relu"
    config.model.tied_embeddings, config.model.init = False, "default"
    config.optimizer.name, config.optimizer.learning_rate, config.optimizer.final_learning_rate = "muon", 1.5e-2, 0.0
    config.optimizer.b2, config.optimizer.warmup_steps = 0.95, 20
    config.train.steps, config.train.batch_size, config.train.evaluate_every = 350, 24, 0
    config.checkpoint.best = ""
    return config


def _fast_160(config: ConfigDict) -> ConfigDict:
    """Returns the recipe of `fast` with one layer more, longer windows and more steps: experiments/race/README.md."""
    config = _fast(config)
    config.model.n_layers, config.model.d_ff = 3, 384
    config.task.length = config.model.max_len = 128
    config.train.steps = 1000
    return config


def _gpt2(config: ConfigDict) -> ConfigDict:
    """Returns the smallest GPT-2 (Radford et al. 2019) with nanoGPT's optimizer; 124M weights for its 50,257 tokens."""
    model, optimizer = config.model, config.optimizer
    model.n_layers, model.d_model, model.d_ff, model.n_heads = 12, 768, 3072, 12
    model.positions, model.activation, model.attention_bias = "learned", "gelu_tanh", "all"
    model.norm_epsilon, model.norm_epsilon_in = 1e-5, "variance"
    model.tied_embeddings, model.init = True, "gpt2"
    model.dtype, model.attention_implementation = "bfloat16", "flash"
    config.task.length = model.max_len = 1024
    optimizer.name, optimizer.schedule = "adamw", "cosine"
    optimizer.learning_rate, optimizer.final_learning_rate, optimizer.warmup_steps = 6e-4, 6e-5, 2000
    optimizer.b2, optimizer.weight_decay, optimizer.clip_norm = 0.95, 0.1, 1.0
    config.train.steps, config.train.batch_size = 600_000, 32
    return config


def _primer() -> ConfigDict:
    """Returns seed 002's "micro transfomer": one bilayer predicts the next letter from 16 one-hot letters.

    It uses Adam and batches of 64, and decodes greedily. The seed's gradient descent (2e-2, batches of 20) learns far
    less in as many steps.
    """
    config = default_config(task="language_model", model="primer.bilayer:BILAYER")
    config.task.length, config.task.score = 17, "last"
    config.model.n_layers, config.model.max_len = 1, 17
    config.optimizer.learning_rate, config.optimizer.schedule = 3e-3, "cosine"
    config.train.steps, config.train.batch_size = 2000, 64
    return config


def _default(config: ConfigDict) -> ConfigDict:
    config.data.test = 0.05
    config.task.length = config.model.max_len = 128
    config.model.n_layers, config.model.d_model, config.model.d_ff, config.model.n_heads = 2, 128, 512, 4
    config.model.norm_epsilon_in = "variance"
    config.optimizer.learning_rate, config.optimizer.schedule, config.optimizer.warmup_steps = 4e-3, "cosine", 50
    config.optimizer.b2, config.optimizer.clip_norm = 0.95, 1.0
    config.train.steps, config.train.batch_size = 800, 16
    return config
