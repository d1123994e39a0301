"""Scores of texts, beside sums over whole passes in NumPy."""

import math

import jax
import numpy as np
import pytest

import fxf
from fxf.base.errors import UserError
from fxf.runs.text_scores import Lines, TextScorer, ratio, text_scores
from small_runs import KEPT, text_config, tiny_config, trained, with_sections

LINES = "".join(f"{i} and {i * i}\n" for i in range(90))
TEXT = "7 and 49\n\n3 and 9, not 27\n88 & 7744\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with a text and two runs: of characters with <bos>, and of words without."""
    folder = tmp_path_factory.mktemp("scores")
    (folder / "train.txt").write_text(LINES)
    (folder / "text.txt").write_text(TEXT)
    for name, changes in {"bos": {}, "word": {"task": {"bos": False}, "data": {"tokenizer": "word"}}}.items():
        config = text_config(folder / "train.txt", task={"length": 5}, train={"steps": 3}, log={"every": 3})
        trained(with_sections(config, {"data": {"vocab_size": 300}}, changes), folder / name, kept=KEPT)
    return folder


@pytest.mark.parametrize("name", ["bos", "word"])
def test_each_token_counts_once_after_all_tokens_of_its_window(folder, name):
    run, scorer = fxf.load(folder / name), TextScorer(folder / name)
    tokens = scorer.task.tokenizer.encode(TEXT)
    first = [] if scorer.task.first is None else [scorer.task.first]
    step = 5 - bool(first)  # a window begins with the last token of the one before
    expected = [] if first else [0.0]
    apply = jax.jit(run.model.apply)
    while len(expected) < len(tokens):
        start = (len(expected) - 1) // step * step if expected else 0
        read = [*first, *tokens[start : len(expected)]]
        padded = np.array([read + [0] * (5 - len(read))])
        logits = np.asarray(apply(run.params, {"inputs": padded}), np.float64)[0, len(read) - 1]
        expected.append(np.log(np.exp(logits).sum()) - logits[tokens[len(expected)]])
    np.testing.assert_allclose(scorer.nats(np.array(tokens)), expected, rtol=1e-5, atol=1e-5)


def test_figures_are_sums_over_the_lines(folder):
    figures = text_scores(folder / "bos", folder / "text.txt")
    scorer = TextScorer(folder / "bos")
    total = scorer.nats(np.array(scorer.task.tokenizer.encode(TEXT))).sum()
    assert figures["loss"] == pytest.approx(total / len(TEXT))
    assert figures["perplexity"] == pytest.approx(math.exp(total / len(TEXT)))
    assert figures["bits_per_byte"] == pytest.approx(total / len(TEXT.encode()) / math.log(2))
    assert figures["bits_per_byte_low"] < figures["bits_per_byte"] < figures["bits_per_byte_high"]
    assert (figures["lines"], figures["tokens"]) == (4, len(TEXT))


def test_two_runs_are_compared_by_the_same_lines_whatever_their_tokens(folder):
    alone = {name: text_scores(folder / name, folder / "text.txt")["bits_per_byte"] for name in ("bos", "word")}
    both = text_scores(folder / "bos", folder / "text.txt", folder / "word")
    assert both["against_bits_per_byte"] == alone["word"]
    assert both["difference"] == pytest.approx(alone["bos"] - alone["word"])
    same = text_scores(folder / "bos", folder / "text.txt", folder / "bos")
    assert same["difference_low"] == same["difference_high"] == 0 and same["verdict"] == "no difference found"
    rounded = text_scores(folder / "bos", folder / "text.txt", folder / "bos", weights="int8")
    assert rounded["against_bits_per_byte"] == alone["bos"]
    assert 0 < abs(rounded["difference"]) < 0.05


def test_a_run_is_better_or_worse_only_where_the_whole_interval_is(tmp_path, monkeypatch):
    class Given:
        def __init__(self, nats, step=None, weights=None):
            self.nats, self.step = np.array(nats), step

        def lines(self, text):
            return Lines(self.nats, *np.ones((3, 4)))

    monkeypatch.setattr("fxf.runs.text_scores.TextScorer", Given)
    (tmp_path / "text.txt").write_text(TEXT)
    for nats, verdict in {(1, 1, 2, 2): "better", (1, 1, 9, 9): "no difference found", (5, 5, 9, 9): "worse"}.items():
        assert text_scores(nats, tmp_path / "text.txt", (4, 4, 4, 4))["verdict"] == verdict


def test_a_fortieth_of_the_resamples_lie_beyond_each_end_of_the_interval():
    nats = np.random.default_rng(1).normal(2, 1, 80)
    error = nats.std() / math.sqrt(80)
    expected = [nats.mean() - 1.96 * error, nats.mean() + 1.96 * error]
    # The 0.025-quantile of 2000 normal numbers has a standard error of 0.06.
    _, *ends = ratio("x", nats, np.ones(80)).values()
    assert ends == pytest.approx(expected, abs=0.2 * error)


@pytest.mark.thorough
def test_the_interval_holds_the_true_ratio_in_95_of_100_samples():
    rng, held = np.random.default_rng(1), 0
    for _ in range(200):
        sizes = rng.uniform(10, 60, 80)
        ends = ratio("x", sizes * rng.normal(2, 1, 80), sizes)
        held += ends["x_low"] <= 2 <= ends["x_high"]
    assert 180 <= held <= 199  # 190 ± 3.2 standard deviations of 3.1


@pytest.mark.thorough
def test_a_run_without_probabilities_of_texts_is_refused(folder, tmp_path):
    trained(tiny_config(), tmp_path / "reversal", kept=KEPT)
    with pytest.raises(UserError, match="only a language model that scores all tokens"):
        text_scores(tmp_path / "reversal", folder / "text.txt")


def test_lines_of_json_are_scored_as_they_stand_and_a_line_says_so(folder, caplog):
    (folder / "text.jsonl").write_text('{"text": "7 and 49"}\n')
    assert text_scores(folder / "bos", folder / "text.jsonl")["bytes"] == 21
    assert "looks like lines of JSON; it is scored as it stands" in caplog.text


@pytest.mark.parametrize(("text", "line"), [("7", "at least two tokens"), ("", "the file is empty")])
def test_a_text_without_two_tokens_is_refused(folder, tmp_path, text, line):
    (tmp_path / "short.txt").write_text(text)
    with pytest.raises(UserError, match=line):
        text_scores(folder / "bos", tmp_path / "short.txt")
