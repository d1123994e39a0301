"""Transformers as pure functions in JAX.

    model = fxf.model("transformer_lm", vocab_size=11, n_layers=1, d_model=32, n_heads=2)
    params, losses = fxf.fit(model, batch, steps=200, learning_rate=1e-2)
    fxf.decode(model, params, [[3, 4]], max_tokens=5)
    fxf.load("runs/example0").generate(["3 1"])

The names of `__all__` are imported on first use, so that `import fxf` is fast.

Shape letters. The name of an array ends in a letter for each of its axes (`x_BTD`). Einsums and docstrings use the same
letters. A digit is an axis of that size. An axis of size 1 may broadcast.

    B  rows of a batch: sequences or prompts
    T  tokens of a row: queries
    S  tokens of a source
    C  keys that a query may see: those of a sequence, or the slots of a prompt's cache
    D  d_model
    F  d_ff
    H  heads
    G  groups of heads: heads of keys and values
    E  heads of one group: H = G · E; experts
    Q  queries of one group: E · T
    K  head_dim
    V  vocabulary
    I  input width of a linear map
    O  output width of a linear map or of a value
    L  width of the latents of latent attention
    J  width of its queries where keys are latents: L + P
    M  choices of experts: N · (experts of a token)
    N  items of a flat list: tokens of a batch or a text, examples, all prompts
    P  tokens of a prompt or a text, without special tokens
    U  new tokens of a prompt
    R  rows that a layer reads: those of a batch, or B · W in a decoding step
    W  hypotheses of a beam (its width)
    A  alternatives that a beam chooses from
"""

__version__ = "0.1.0"
__all__ = ["Model", "Run", "UserError", "__version__", "decode", "edited", "fit", "initialize"]
__all__ += ["language_model_batch", "layer_config", "load", "model", "read_config", "train", "trial"]

TYPE_CHECKING = False  # a type checker assumes True; `typing` itself takes time to import
if TYPE_CHECKING:
    from fxf.base.errors import UserError
    from fxf.layers.named import edited
    from fxf.runs.api import Run, load, train
    from fxf.runs.configs import read_config
    from fxf.runs.in_memory import Model, decode, fit, initialize, language_model_batch, layer_config, model
    from fxf.sweeps.trial import trial
else:
    _MODULES = {"UserError": "base.errors", "edited": "layers.named", "read_config": "runs.configs"}
    _MODULES["trial"] = "sweeps.trial"
    _MODULES |= dict.fromkeys(("Run", "load", "train"), "runs.api")

    def __getattr__(name):
        from importlib import import_module

        if name not in __all__:
            from fxf.base.errors import nearest

            raise AttributeError(f"module 'fxf' has no attribute '{name}'{nearest(name, __all__)}")
        return getattr(import_module(f"fxf.{_MODULES.get(name, 'runs.in_memory')}"), name)

    def __dir__():
        return sorted({*globals(), *__all__})
