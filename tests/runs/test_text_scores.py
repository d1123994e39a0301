"""Scores of texts, against sums over whole forward passes in NumPy."""

import math

import numpy as np
import pytest
from scipy.stats import norm, sem, t

from fxf.base.errors import UserError
from fxf.runs import text_scores as scores
from fxf.runs.experiment import build
from fxf.runs.text_scores import Lines, TextScorer, ratio, text_scores
from helpers import random_params
from small_runs import text_config, with_sections

LINES = "7 AND 8\n" + "".join(f"{i} and {i * i}\n" for i in range(90))
TEXT = "7 and 49\n\n3 and 9, not 27\n88 ß 7744\n"  # ß has two bytes
LENGTH = 5  # per window
RUNS = {"bos": {}, "word": {"task": {"bos": False}, "data": {"tokenizer": "word"}}}
RUNS["documents"] = {"data": {"format": "files", "separator": "\n", "tokenizer": "byte"}}
LOWER = {"lower": {"data": {"lower_case": True}}}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with a text, and instead of runs two models: of characters with <bos>, and of words without."""
    folder, programs = tmp_path_factory.mktemp("scores"), {}
    (folder / "train.txt").write_text(LINES)
    (folder / "text.txt").write_text(TEXT)

    def load(workdir, step, decode):
        changes = {"task": {"length": LENGTH}, "data": {"vocab_size": 300}}, (RUNS | LOWER).get(workdir.name, {})
        experiment = build(with_sections(text_config(folder / "train.txt"), *changes, {"decode": decode or {}}))
        return experiment.sharing(programs), 3, random_params(experiment.model.spec)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scores, "load", load)
        patch.setattr(scores, "TOKENS_AT_ONCE", 3 * LENGTH)  # the last windows do not fill a batch
        yield folder


@pytest.mark.parametrize("name", RUNS)
def test_each_token_counts_once_after_all_tokens_of_its_window(folder, name):
    scorer = TextScorer(folder / name)
    tokens = scorer.task.tokenizer.encode(TEXT)
    nats = scorer.nats(np.array(tokens))
    first = [] if scorer.task.first is None else [scorer.task.first]
    if name == "documents":  # each begins once
        tokens, first = [*first, *tokens], []
    step = LENGTH - bool(first)  # a window begins with the previous one's last token
    expected = [] if first else [0.0]
    inputs_WT = scorer.windows(np.array(tokens))[0][:3]
    while len(expected) < len(tokens):
        start = (len(expected) - 1) // step * step if expected else 0
        read = [*first, *tokens[start : len(expected)]]
        padded = np.array([read + [0] * (LENGTH - len(read))])
        logits_WTV = scorer.evaluator.logits({"inputs": np.repeat(padded, 3, axis=0)}).astype(np.float64)
        logits = logits_WTV[0, len(read) - 1]
        expected.append(np.log(np.exp(logits).sum()) - logits[tokens[len(expected)]])
    expected[0] = expected[0] or np.mean(expected[1:])  # a token without a previous one
    np.testing.assert_allclose(nats, expected[-len(nats) :], rtol=1e-5, atol=1e-5)
    best_WT = np.asarray(scorer.evaluator.logits({"inputs": inputs_WT})).argmax(-1)
    assert scorer.logs(inputs_WT, best_WT)[1].all() and not scorer.logs(inputs_WT, best_WT ^ 1)[1].any()


def test_scores_are_sums_over_lines_that_two_runs_share_whatever_their_tokens(folder, caplog):
    figures, scorer = text_scores(folder / "bos", folder / "text.txt"), TextScorer(folder / "bos")
    total = scorer.nats(np.array(scorer.task.tokenizer.encode(TEXT))).sum()
    units = ("character", TEXT), ("byte", TEXT.encode())
    expected = {f"bits_per_{unit}": total / len(whole) / math.log(2) for unit, whole in units}
    expected |= {"loss": total / len(TEXT), "perplexity": math.exp(total / len(TEXT))}
    assert {name: figures[name] for name in expected} == pytest.approx(expected)
    assert math.isnan(figures["bits_per_byte_low"]) and math.isnan(figures["bits_per_byte_high"])  # of four lines
    assert (figures["step"], figures["lines"], figures["tokens"]) == (3, 4, len(TEXT))

    other = text_scores(folder / "word", folder / "text.txt")["bits_per_byte"]
    both = text_scores(folder / "bos", folder / "text.txt", folder / "word")
    assert both["against_bits_per_byte"] == other
    assert both["difference"] == pytest.approx(figures["bits_per_byte"] - other)
    unknown = sum(character not in LINES for character in TEXT)
    assert figures["unknown_share"] == unknown / len(TEXT) > 0 and both["verdict"] == "not comparable"
    (folder / "known.txt").write_text(LINES[:300])
    for losing in ("lower", "word"):
        assert text_scores(folder / "bos", folder / "known.txt", folder / losing)["verdict"] == "not comparable"
        assert f"{losing} reads less than the text (0 <unk>), so its bits per byte compare only with" in caplog.text
    same = text_scores(folder / "bos", folder / "known.txt", folder / "bos")
    assert same["difference_low"] == same["difference_high"] == 0 and same["verdict"] == "no difference found"
    assert same["bits_per_byte_low"] < same["bits_per_byte"] < same["bits_per_byte_high"]  # of enough lines
    rounded = text_scores(folder / "bos", folder / "text.txt", folder / "bos", weights="int8")
    assert rounded["against_bits_per_byte"] == figures["bits_per_byte"] and 0 < abs(rounded["difference"]) < 0.05


def test_a_run_is_better_or_worse_only_if_the_whole_interval_is(tmp_path, monkeypatch, caplog):
    class Given:
        def __init__(self, nats, step=None, weights=None):
            self.nats, self.step = np.array(nats), step

        def lines(self, text):
            n = len(self.nats)
            return Lines(*np.ones((2, n)), self.nats, np.ones(n), np.zeros(n))

    monkeypatch.setattr(scores, "TextScorer", Given)
    (tmp_path / "text.txt").write_text(TEXT)
    none = "no difference found"
    for nats, verdict in (((1, 2) * 3, "better"), ((1, 9) * 3, none), ((5, 9) * 3, "worse"), ((1,), none)):
        assert text_scores(nats, tmp_path / "text.txt", (4,) * len(nats))["verdict"] == verdict
    assert caplog.messages == [f"warning: --text: {tmp_path}/text.txt has 1 lines; an interval and a verdict need 6"]


def test_the_interval_is_students_also_of_few_lines():
    for n_lines in (7, 80):
        nats = norm.ppf((np.arange(n_lines) + 0.5) / n_lines)
        expected = [0, *t.interval(0.95, n_lines - 1, 0, error := sem(nats))]
        # The outer quantiles of 2000 normal numbers have a standard error of 0.06, those of few lines a larger one.
        assert [*ratio("x", nats, np.ones(n_lines)).values()] == pytest.approx(expected, abs=0.2 * error)


def test_texts_and_runs_without_a_score_and_lines_of_json_are_named(folder, caplog):
    for text, line in {"7": "at least two tokens", "": "the file is empty"}.items():
        (folder / "refused.txt").write_text(text)
        with pytest.raises(UserError, match=line):
            text_scores(folder / "bos", folder / "refused.txt")
    (folder / "text.jsonl").write_text('{"text": "7 and 49, 8 and 64"}\n')
    assert text_scores(folder / "bos", folder / "text.jsonl")["bytes"] == 31
    assert f"--text: {folder}/text.jsonl looks like lines of JSON; it is read as plain text" in caplog.text
