"""Names and forms of keys on the command line."""

from typing import Any

from experiments.hostile.case import Case, case, refused

# fmt: off

def keys(name: str, flags: str, *parts: str, run: str = "reversal", **options: Any) -> Case:
    return case(name, f"train @{run} --workdir=new {flags}", refused(*parts), **options)


CASES = [
    keys("dashes forgotten", "config.model.n_layers=4", "config.model.n_layers=4"),
    keys("a letter forgotten", "--config.model.n_layer=3", "model.n_layer", "n_layers"),
    keys("a letter of the section forgotten", "--config.modle.n_layers=3", "modle", "model"),
    keys("the section forgotten", "--config.n_layers=3", "n_layers", "model.n_layers"),
    keys("capitals", "--config.model.N_LAYERS=3", "N_LAYERS", "n_layers"),
    keys("a hyphen", "--config.model.n-layers=3", "n-layers", "n_layers"),
    keys("a key of a key", "--config.model.n_layers.x=3", "n_layers"),
    keys("a method's name", "--config.model.items=3", "items"),
    keys("an attribute's name", "--config.__class__=3", "__class__"),
    keys("a section that this task lacks", "--config.data.path=text.txt", "data"),
    keys("a section for a value", "--config.model=3", "model"),
    keys("nothing for a value", "--config.model.n_layers=", "n_layers"),
    keys("no value", "--config.seed", "seed"),
    keys("a key of another optimizer", "--config.optimizer.momentum=0.9", "optimizer.momentum"),
    keys(
        "a key of another schedule", "--config.optimizer.schedule=constant --config.optimizer.final_learning_rate=0.1",
        "final_learning_rate",
    ),
    keys("a key of another model", "--config.model.segments=2", "segments"),
    keys("the same key twice", "--config.seed=1 --config.seed=2", "config.seed"),
    keys("the run folder twice", "--workdir=other", "--workdir"),
    keys("a key with a line end", "'--config.model.a\nb=3'", "a\\nb"),
]
