"""Loss, perplexity and bits per byte of any text by a trained language model, with intervals; two runs compared.

The bootstrap resamples lines (Efron 1979; Koehn 2004 for pairs). So the bits per byte of two runs can be compared
also where their tokenizers differ: both read the same lines.
"""

import logging
import math
from pathlib import Path
from typing import Any, NamedTuple
from unicodedata import normalize

import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import ndtr, stdtrit

from fxf.base.errors import UserError
from fxf.data.text import file_text, scoring_windows
from fxf.data.tokenizer import lines_of
from fxf.runs.evaluator import Evaluators
from fxf.runs.loading import load
from fxf.tasks.language_model import TOKENS_AT_ONCE, Documents, RunningText
from fxf.tasks.task import Evaluator

log = logging.getLogger(__name__)

RESAMPLES, LEVEL = 2000, 0.95
FEWEST = 6  # lines for a verdict: in fewer, even equal signs in all are no evidence at this level
LOGITS_AT_ONCE = 2**26


class TextScorer:
    """Computes the nats of each token of a text with the checkpoint that `load` reads from a run folder.

    Raises:
      UserError: as `load`; or the run is no language model with a loss in nats over all tokens.
    """

    def __init__(self, workdir: Path | str, step: int | None = None, weights: str | None = None) -> None:
        experiment, self.step, params = load(workdir, step, {"weights": weights} if weights else None)
        task = experiment.task
        self.evaluator: Evaluator = Evaluators(experiment)(params)
        if not isinstance(task, RunningText | Documents) or task.context or not self.evaluator.in_nats:
            raise UserError(f"{workdir}: only a language model that scores all tokens gives a text a probability")
        self.task, self.workdir = task, workdir

    def windows(self, tokens_N: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Returns inputs and targets, [W, T], and which targets count, so that each token of the text counts once.

        The first token counts only if the model reads a token in front of a text. A model of documents has seen that
        token only there, so its later windows begin as its rows do, with the last token of the window before.
        """
        if isinstance(self.task, RunningText):
            batch = jax.device_get(self.task.batch_of(*scoring_windows(tokens_N, self.task.window)))
        else:
            rows = self.task.rows(tokens_N)
            batch = rows.batch(np.arange(rows.n_rows))
        return batch["inputs"], batch["targets"], batch["weights"] > 0

    def logs(self, inputs_WT: np.ndarray, targets_WT: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns the log-probability of each target, and whether it is the most probable token, [W, T]."""
        at_once = min(TOKENS_AT_ONCE, LOGITS_AT_ONCE // self.task.vocab_size)
        rows = max(1, min(len(inputs_WT), at_once // inputs_WT.shape[1]))
        logs, first = [], []
        for start in range(0, len(inputs_WT), rows):
            places = np.minimum(np.arange(start, start + rows), len(inputs_WT) - 1)  # the last part is padded
            logits_RTV = jnp.asarray(self.evaluator.logits({"inputs": inputs_WT[places]}), jnp.float32)
            of_target = jnp.take_along_axis(logits_RTV, targets_WT[places][..., None], axis=-1)[..., 0]
            logs.append(np.asarray(of_target - jax.nn.logsumexp(logits_RTV, axis=-1)))
            first.append(np.asarray(logits_RTV.argmax(-1)) == targets_WT[places])
        return np.concatenate(logs)[: len(inputs_WT)], np.concatenate(first)[: len(inputs_WT)]

    def nats(self, tokens_N: np.ndarray) -> np.ndarray:
        """Returns the negative log-probability of each token of a text, [N]; a first one that has none has the mean."""
        inputs_WT, targets_WT, counts_WT = self.windows(tokens_N)
        counted = -self.logs(inputs_WT, targets_WT)[0][counts_WT].astype(np.float64)
        return np.concatenate([np.full(len(tokens_N) - len(counted), counted.mean()), counted])

    def lines(self, text: str) -> "Lines":
        """Returns the sums over each line of a text."""
        lines, tokenizer = list(lines_of(text)), self.task.tokenizer
        tokens_N, numbers_N = tokenizer.by_lines(list(map(self.task.cased, lines)))
        if len(tokens_N) < 2:
            raise UserError("--text: expected a text of at least two tokens")
        unknown_N = tokens_N == tokenizer.special.unk
        read, whole = (normalize("NFC", x).strip() for x in (tokenizer.decode(tokens_N.tolist()), "".join(lines)))
        if read != whole:
            what = "so its bits per byte compare only with those of runs that read the same"
            log.warning("warning: %s reads less than the text (%.2g <unk>), %s", self.workdir, unknown_N.mean(), what)
        counted = (np.bincount(numbers_N, each, len(lines)) for each in (self.nats(tokens_N), None, unknown_N))
        sizes = np.array([(len(line), len(line.encode())) for line in lines], np.float64)
        return Lines(*sizes.T, *counted)._replace(read=read)


class Lines(NamedTuple):
    """Sums over each of L lines of a text, [L]; `unknown` counts the tokens that stand for unknown text.

    `read` is the text that the tokens decode to.
    """

    characters: np.ndarray
    bytes: np.ndarray
    nats: np.ndarray
    tokens: np.ndarray
    unknown: np.ndarray
    read: str = ""


def text_scores(
    workdir: Path | str,
    path: Path | str,
    against: Path | str | None = None,
    step: int | None = None,
    weights: str | None = None,
) -> Any:
    """Returns the metrics of a text file: loss in nats per token, perplexity, bits per character and per byte.

    Args:
      against: the folder of another run, whose bits per byte are compared on the same lines.
      step: the step of the checkpoint of `workdir`; None for the one of its result.
      weights: its `decode.weights`; None for those of its config.

    Raises:
      UserError: as `TextScorer`; or the file cannot be read.
    """
    text = file_text(Path(path), "--text")
    scorer, other_scorer = TextScorer(workdir, step, weights), TextScorer(against) if against else None
    lines = scorer.lines(text)
    bits, loss = lines.nats / math.log(2), lines.nats.sum() / lines.tokens.sum()
    if len(bits) < FEWEST:
        log.warning("warning: --text: %s has %d lines; an interval and a verdict need %d", path, len(bits), FEWEST)
    figures = {
        "step": scorer.step,
        "loss": float(loss),
        "perplexity": math.exp(loss) if loss < 709 else math.inf,
        "bits_per_character": float(bits.sum() / lines.characters.sum()),
        **ratio("bits_per_byte", bits, lines.bytes),
        "lines": len(bits),
        "tokens": int(lines.tokens.sum()),
        "bytes": int(lines.bytes.sum()),
        "unknown_share": float(lines.unknown.sum() / lines.tokens.sum()),
    }
    if other_scorer is None:
        return figures
    others = other_scorer.lines(text)
    other = others.nats / math.log(2)
    difference = ratio("difference", bits - other, lines.bytes)
    _, low, high = difference.values()
    verdict = "better" if high < 0 else "worse" if low > 0 else "no difference found"
    if lines.read != others.read:
        verdict = "not comparable"  # text that a tokenizer drops need not be predicted
    return figures | {"against_bits_per_byte": float(other.sum() / lines.bytes.sum()), **difference, "verdict": verdict}


def ratio(name: str, sums_L: np.ndarray, sizes_L: np.ndarray) -> dict[str, float]:
    """Returns a ratio of sums, and the ends of its bootstrap interval over lines, NaN if these are too few.

    The interval's quantiles are widened to match Student's interval (Hesterberg 2015, "expanded percentile"): with few
    lines the usual ones miss the ratio twice as often as they say.
    """
    rng, n_lines = np.random.default_rng(0), len(sums_L)
    draws = (rng.integers(n_lines, size=n_lines) for _ in range(RESAMPLES))
    ratios = [sums_L[drawn_L].sum() / sizes_L[drawn_L].sum() for drawn_L in draws]
    n_free = max(n_lines - 1, 1)
    tail = ndtr(math.sqrt(n_lines / n_free) * stdtrit(n_free, (1 - LEVEL) / 2))
    low, high = np.quantile(ratios, [tail, 1 - tail]) if n_lines >= FEWEST else (math.nan, math.nan)
    return {name: float(sums_L.sum() / sizes_L.sum()), f"{name}_low": float(low), f"{name}_high": float(high)}
