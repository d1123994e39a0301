"""A corpus: numbers, and the same with their digits reversed."""

from fxf.base.files import digest
from fxf.data.corpus import Corpus, Example, RegisteredCorpus
from fxf.runs.experiment import default_config


def numbers(config):
    examples = [Example(f"{n}", f"{n}"[::-1], f"numbers:{n}") for n in range(100, 160)]
    return Corpus(examples[20:], examples[:10], examples[10:20], 0, {"numbers": digest(repr(examples).encode())})


NUMBERS = RegisteredCorpus(numbers)


def get_config():
    config = default_config("translation")
    config.data.name = "corpus:NUMBERS"
    return config
