"""A metric: the length of all answers over that of the right ones, both in characters."""

from fxf.runs.experiment import default_config


def length_ratio(answers, references):
    return sum(map(len, answers)) / sum(len(texts[0]) for texts in references)


def get_config():
    config = default_config("reversal")
    config.task.metrics = "metric:length_ratio"
    return config
