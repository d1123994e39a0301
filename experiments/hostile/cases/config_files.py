"""Users' config files."""

from experiments.hostile.case import Case, case, refused, refused_at_last
from experiments.hostile.fixtures import BINARY, POINTS
from experiments.hostile.steps import fifo, link, write

# fmt: off

def config_file(name: str, text: str | bytes, *parts: str) -> Case:
    return case(
               f"a config file: {name}", "train --config=mine.py --workdir=new", refused(*parts),
               write("mine.py", text),
           )


def get_config(*lines: str) -> str:
    """Returns the text of a config file that changes the tiny config."""
    body = "".join(f"    {line}\n" for line in lines)
    return (
        f"{POINTS.split('def get_config')[0]}\ndef get_config():\n    config = _tiny()\n{body}    return config\n"
        + ("\n\ndef _tiny():\n    with open('tiny.json') as file:\n        return ConfigDict(json.load(file))\n")
    )


DEAF = """import dataclasses
from typing import Literal

from fxf.models import MODELS, RegisteredModel
from fxf.models.transformer_lm import TransformerLMConfig, transformer_lm


@dataclasses.dataclass(frozen=True)
class DeafConfig(TransformerLMConfig):
    name: Literal["deaf"] = "deaf"


def deaf(config, vocab_size):
    return transformer_lm(config, vocab_size)._replace(prefill=None, step=None)


MODELS["deaf"] = RegisteredModel(DeafConfig, deaf, in_place_of="transformer_lm")
"""
REPLACED = """from fxf.models import MODELS

MODELS["transformer_lm"] = MODELS["bilayer"]
"""

ACTIVATION = "from fxf.layers.feed_forward import ACTIVATIONS\n\nACTIVATIONS[{name!r}] = abs\n"
BATCH = """import dataclasses

import jax.numpy as jnp
import numpy as np

from fxf.tasks import TASKS
from fxf.tasks.reversal import Reversal, ReversalConfig


@dataclasses.dataclass(frozen=True)
class MineConfig(ReversalConfig):
    name: str = "mine"


class Mine(Reversal):
    def batch(self, key, step):
        found = super().batch(key, step)
        return {{**found, "targets": {targets}}}


sections = {{**TASKS["reversal"].sections, "task": MineConfig}}
TASKS["mine"] = TASKS["reversal"]._replace(make=Mine, sections=sections)
"""


def batches(targets: str) -> str:
    return BATCH.format(targets=targets) + get_config("config.task.name = 'mine'")


CASES = [
    config_file("a batch of NumPy's draws", batches("np.random.randint(1, 3, found['targets'].shape)"), "jax.random"),
    case(
        "a config file: a later batch with a token that is none", "train --config=mine.py --workdir=new",
        refused_at_last("batch of step 4", "1000"),
        write("mine.py", batches("jnp.where(step == 3, 1000, found['targets'])")), writes="^new",
    ),
    config_file("a name registered twice", 2 * ACTIVATION.format(name="mine") + get_config(), "mine", "twice"),
    *(
        config_file(f"a name that no config can hold: {name!r}", ACTIVATION.format(name=name) + get_config(), "a name")
        for name in ("", "a,b", "a\nb")
    ),
    config_file("an exception that is none", "class Stop(BaseException):\n    pass\n\n\nraise Stop('x\\ny')\n",
                "mine.py:5", "Stop"),
    config_file("a frozen config", get_config("from ml_collections import FrozenConfigDict",
                                              "config = FrozenConfigDict(config)"), "mine.py", "FrozenConfigDict"),
    case(
        "a config file: an endless sweep", "sweep --config=mine.py --workdir=new", refused("mine.py", "points"),
        write("mine.py", POINTS.replace("for seed in range(2):", "while seed := 1:")),
    ),
    config_file("a model that cannot generate", DEAF + get_config("config.model.name = 'deaf'"), "generat"),
    config_file("a model in the place of one of fxf's", REPLACED + get_config(), "mine.py", "transformer_lm"),
    config_file("a section lost", get_config("del config.model"), "model"),
    config_file("a section that is none", get_config("config.modle = ConfigDict()"), "modle", "model"),
    config_file(
        "a list for a number",
        get_config("del config.train['steps']", "config.train.steps = (6,)"),
        "steps",
    ),
    config_file("a seed of none", get_config("del config['seed']", "config.seed = None"), "seed"),
    config_file(
        "a placeholder",
        get_config(
            "from ml_collections import config_dict", "del config.seed", "config.seed = config_dict.placeholder(int)",
        ),
        "seed",
    ),
    config_file(
        "true for a number", get_config("del config.train['steps']", "config.train.steps = True"), "train.steps",
    ),
    config_file("a dict", "def get_config():\n    return {'seed': 0}\n", "ConfigDict"),
    config_file("nothing returned", "def get_config():\n    pass\n", "ConfigDict"),
    config_file("no function", "x = 1\n", "get_config"),
    config_file("a number for the function", "get_config = 3\n", "mine.py"),
    config_file("two arguments wanted", "def get_config(a, b):\n    pass\n", "mine.py"),
    config_file("empty", "", "get_config"),
    config_file("binary", BINARY, "mine.py"),
    config_file("UTF-16", get_config().encode("utf-16"), "mine.py"),
    config_file("NUL bytes", "x = 1\0\n", "mine.py"),
    config_file("a syntax error", "def get_config(:\n", "mine.py:1", "SyntaxError"),
    config_file("a wrong name", get_config("config.model.layers = 3"), "model.layers", "n_layers"),
    config_file("an exception", get_config("raise ValueError('so\\nnot')"), "mine.py", "ValueError", "so not|so\\nnot"),
    config_file(
        "an exception of its own imports", "import nothing_of_the_kind\n" + get_config(), "mine.py:1",
        "nothing_of_the_kind",
    ),
    config_file("endless recursion", "def get_config():\n    return get_config()\n", "mine.py:2", "RecursionError"),
    config_file("it exits with 0", get_config("raise SystemExit(0)"), "mine.py"),
    config_file("it exits with 1", get_config("import sys", "sys.exit('bye')"), "mine.py"),
    case("a config file: a folder", "train --config=configs --workdir=new", refused("configs")),
    case("a config file: a pipe", "train --config=mine.py --workdir=new", refused("mine.py"), fifo("mine.py")),
    case(
        "a config file: a loop of links", "train --config=mine.py --workdir=new", refused("mine.py"),
        link("mine.py", "mine.py"),
    ),
    case("a config file: missing", "train --config=configs/reversl.py --workdir=new", refused("configs/reversal.py")),
    case(
        "a config file: an argument for one that takes none", "train --config=configs/masking.py:large --workdir=new",
        refused("configs/masking.py"),
    ),
    case(
        "a config file: an empty argument", "train --config=configs/reversal.py: --workdir=new",
        refused("configs/reversal.py"),
    ),
    case(
        "a config file: an argument misspelt", "train --config=configs/reversal.py:exmaple0 --workdir=new",
        refused("exmaple0", "example0"),
    ),
    case("a config file: given twice", "train --config=tiny.py --config=points.py --workdir=new", refused("--config")),
]
