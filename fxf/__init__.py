"""Transformers as pure functions in JAX.

    model = fxf.model("transformer_lm", vocab_size=11, n_layers=1, d_model=32, n_heads=2)
    params, losses = fxf.fit(model, batch, steps=200, learning_rate=1e-2)
    fxf.decode(model, params, [[3, 4]], max_tokens=5)
    fxf.load("runs/example0").generate(["3 1"])

The names of `__all__` are imported when they are first used, so that `import fxf` costs nothing.

Shape letters, used as suffixes of array names and in einsums throughout the package:
B batch, T time, C cache capacity (keys), D d_model, H heads, K head_dim, F d_ff, V vocabulary, L layers.
"""

__version__ = "0.1.0"
__all__ = [
    "Model",
    "Run",
    "UserError",
    "__version__",
    "decode",
    "fit",
    "initialize",
    "language_model_batch",
    "layer_config",
    "load",
    "model",
    "read_config",
    "train",
]

TYPE_CHECKING = False  # as a type checker does not read it; `typing` itself takes time to import
if TYPE_CHECKING:
    from fxf.errors import UserError
    from fxf.face.in_memory import decode, fit, initialize, language_model_batch, layer_config, model
    from fxf.face.runs import Run, load, read_config, train
    from fxf.models.model import Model
else:
    _PLACES = {
        "fxf.errors": ("UserError",),
        "fxf.face.in_memory": ("decode", "fit", "initialize", "language_model_batch", "layer_config", "model"),
        "fxf.face.runs": ("Run", "load", "read_config", "train"),
        "fxf.models.model": ("Model",),
    }

    def __getattr__(name):
        from importlib import import_module

        for place, names in _PLACES.items():
            if name in names:
                return getattr(import_module(place), name)
        raise AttributeError(f"module 'fxf' has no attribute '{name}'")

    def __dir__():
        return sorted({*globals(), *__all__})
