"""Study: do relative positions carry SCAN's commands to longer action sequences (Csordás et al. 2021)?

fxf sweep --config=studies/scan --config.data.path=length_split --workdir=runs/studies/scan --workers=1

data.path is the folder length_split of github.com/brendenlake/SCAN, which does not come with fxf.
"""

import functools
import os
from collections.abc import Callable, Iterator
from pathlib import Path

from ml_collections import ConfigDict

from fxf.base.files import digest
from fxf.data.corpus import Corpus, DataConfig, RegisteredCorpus
from fxf.data.text_files import (
    Example,
    Sides,
    good_lines,
    lines_of,
    read_text_file,
    split_by_source,
)
from fxf.runs.experiment import default_config
from fxf.sweeps.points import grid

CUTOFF = 26  # maximum actions of a command in training
FILES = ("tasks_train_length.txt", "tasks_test_length.txt")  # their own cutoff is 22
HELD_OUT = 0.03  # share of the shorter commands for validation, and as many for the test
VALIDATED = 20  # one in this many longer commands is for validation, and the others are for the test


def read(config: DataConfig) -> Corpus:
    """Returns SCAN's commands and actions, split by the number of actions, with some shorter ones held out."""
    pairs: list[Example] = []
    skipped, digests = 0, {}
    for name in FILES:
        content = read_text_file(Path(os.path.expanduser(config.path)) / name, "data.path")
        found, n_bad = good_lines(sides(content), (name, name), config.on_error == "skip")
        pairs += found
        skipped += n_bad
        digests[name] = digest(content)
    longer = [pair for pair in pairs if n_actions(pair.target) > CUTOFF]
    train, validation, test = split_by_source([pair for pair in pairs if n_actions(pair.target) <= CUTOFF], HELD_OUT)
    validation += longer[::VALIDATED]
    test += [pair for number, pair in enumerate(longer) if number % VALIDATED]
    return Corpus(train, validation, test, skipped, digests)


def sides(content: bytes) -> Iterator[Sides]:
    """Yields command and actions of each line, which is `IN: jump twice OUT: I_JUMP I_JUMP`."""
    for line in lines_of(content):
        command, found, actions = line.removeprefix(b"IN: ").partition(b" OUT: ")
        yield (command, actions) if found else "expected IN: COMMAND OUT: ACTIONS"


def n_actions(text: str) -> int:
    return len(text.split())


def right_among(counts: Callable[[int], bool], answers: list[str], references: list[list[str]]) -> float:
    """Returns the share of right answers among the commands for whose number of actions `counts` is true."""
    pairs = [(answer, texts[0]) for answer, texts in zip(answers, references, strict=True)]
    right = [answer == reference for answer, reference in pairs if counts(n_actions(reference))]
    return sum(right) / len(right)


SCAN = RegisteredCorpus(read, ("path",))
shorter = functools.partial(right_among, lambda n: n <= CUTOFF)
longer = functools.partial(right_among, lambda n: n > CUTOFF)


def get_config() -> ConfigDict:
    config = default_config("translation")
    data, model = config.data, config.model
    data.name, data.tokenizer, data.max_length, data.batch_tokens, data.shapes = "scan:SCAN", "word", 50, 2048, 3
    config.task.metrics = "scan:shorter,scan:longer"
    model.n_layers, model.d_model, model.d_ff, model.n_heads, model.max_len = 2, 64, 128, 4, 50
    model.embeddings, model.positions, model.norm_epsilon_in = "shared", "sinusoidal", "variance"
    config.optimizer.learning_rate, config.optimizer.schedule, config.optimizer.warmup_steps = 4e-3, "cosine", 100
    config.optimizer.b2, config.optimizer.clip_norm = 0.98, 1.0
    config.train.steps, config.train.batch_size = 1000, 256
    config.log.tensorboard = config.log.report = False
    return config


def sweep(add: Callable[..., None]) -> None:
    for point in grid({"model.positions": ["sinusoidal", "rotary"], "seed": range(2)}):
        add(**point)
