"""The claims of CLAIMS.md about pairs of arms, and the rule that decides each from kept results.

Rules and arms were committed before the runs. The models are tiny and trained for seconds: at a paper's size, other
claims may hold.
"""

from collections.abc import Mapping, Sequence
from statistics import fmean, median, stdev
from typing import Any, Literal, NamedTuple

from experiments.claims.arms import is_bracketed
from fxf.sweeps.evidence import exact_sign

LEVEL = 0.05
Results = Mapping[str, Any]  # kept results by the name of the job that measured them


class Outcome(NamedTuple):
    """What the kept results say about a claim."""

    effect: str
    verdict: str


class Paired(NamedTuple):
    """A claim about two arms, tested on pairs of runs that have the same seed.

    The effect of a pair is how much better the first arm's metric is than the second's. The two-sided exact sign test
    says whether it is above `least` for most seeds; with 8 pairs, all 8 must be. It assumes no distribution, and says
    nothing about the mean. If effects are below `least`, the claim does not hold if both arms were tuned: a lower and a
    higher rate were both worse. Otherwise a better rate might reverse the result: it is "not bracketed".

    Attributes:
      first, second: names of arms (`experiments.claims.arms.ARMS`), or ARM/SCORING.
      figure: a metric of result.json.
      better: whether lower or higher is better.
      least: the effect must exceed this; if negative, a loss of this size is allowed.
    """

    name: str
    claim: str
    source: str
    first: str
    second: str
    figure: str = "test_loss"
    better: Literal["lower", "higher"] = "lower"
    least: float = 0.0

    @property
    def says(self) -> str:
        """The claim, with the effect that it allows or demands."""
        allowed = f"at most {-self.least:g} worse" if self.least < 0 else f"by more than {self.least:g}"
        return f"{self.claim} ({allowed})" if self.least else self.claim

    @property
    def command(self) -> str:
        return f"--only={self.name}"

    @property
    def arms(self) -> tuple[str, str]:
        """The names of the two arms, without a scoring."""
        return self.first.partition("/")[0], self.second.partition("/")[0]

    def figures(self, results: Results) -> tuple[list[float], list[float]]:
        """Returns the metric of both arms by seed; a run with a non-finite loss gets the worst value of all."""
        both = []
        for arm in (self.first, self.second):
            name, _, scoring = arm.partition("/")
            key = f"{scoring}/{self.figure}" if scoring else self.figure
            both.append([None if "error" in run else run[key] for run in results[name]["runs"]])
        known = [value for arm in both for value in arm if value is not None]
        worst = max(known) if self.better == "lower" else min(known)
        one, other = ([worst if value is None else value for value in arm] for arm in both)
        return one, other

    def outcome(self, results: Results) -> Outcome:
        sign = 1 if self.better == "higher" else -1
        effects = [sign * (a - b) for a, b in zip(*self.figures(results), strict=True)]
        above, below = (sum(x > self.least for x in effects), sum(x < self.least for x in effects))
        verdict = "undecided"
        if exact_sign(above, below) <= LEVEL:
            tuned = all(is_bracketed(results[arm]) for arm in self.arms)
            refuted = "does not hold" if tuned else "undecided: not bracketed"
            verdict = ("holds" if tuned else "holds at one rate") if above > below else refuted
        figure = "BLEU" if self.figure == "bleu" else self.figure.replace("_", " ")
        shown = f"{figure} {median(effects):.2g} ({min(effects):.2g} to {max(effects):.2g})"
        diverged = sum("error" in run for arm in self.arms for run in results[arm]["runs"])
        return Outcome(shown + f"; {diverged} runs diverged" * bool(diverged), verdict)


def spread(figures: Sequence[float]) -> str:
    """Returns mean ± standard deviation."""
    return f"{fmean(figures):.4g} ± {stdev(figures):.2g}" if len(figures) > 1 else f"{figures[0]:.4g}"


DEBATED = (
    Paired("swiglu", "SwiGLU is better than ReLU with as many weights (89,391 and 89,263)",
           "Shazeer 2020, arXiv 2002.05202", "swiglu", "base"),
    Paired("gelu", "GELU is better than ReLU", "Hendrycks and Gimpel 2016, arXiv 1606.08415", "gelu", "base"),
    Paired("rms", "RMS norm is as good as layer norm", "Zhang and Sennrich 2019, arXiv 1910.07467",
           "rms", "base", least=-0.01),
    Paired("one_kv_head", "one head of keys and values loses little", "Shazeer 2019, arXiv 1911.02150",
           "one_kv_head", "base", least=-0.02),
    Paired("no_biases", "a model without biases loses nothing", "Chowdhery et al. 2022, arXiv 2204.02311",
           "no_biases", "base", least=-0.01),
    Paired("rotary", "rotary positions are better than sinusoids", "Su et al. 2021, arXiv 2104.09864",
           "rotary", "base"),
    Paired("no_positions", "a model without positions is not far behind sinusoids",
           "Haviv et al. 2022, arXiv 2203.16634", "no_positions", "base_one_rate", least=-0.05),
    Paired("alibi", "with ALiBi, windows 4 times as long as in training have no higher loss",
           "Press et al. 2021, arXiv 2108.12409", "alibi/long", "alibi", least=-0.01),
    Paired("alibi_sinusoids", "on windows 4 times as long, ALiBi is better than sinusoids",
           "Press et al. 2021, arXiv 2108.12409", "alibi/long", "sinusoidal/long"),
    Paired("post_norm", "eight post-norm blocks need a warm-up", "Xiong et al. 2020, arXiv 2002.04745",
           "post_norm_warmup", "post_norm", least=0.05),
    Paired("pre_norm", "eight pre-norm blocks need none", "Xiong et al. 2020, arXiv 2002.04745",
           "pre_norm", "pre_norm_warmup", least=-0.05),
    Paired("qk_norm", "with query–key norm, ten times the best rate raises the loss less",
           "Wortsman et al. 2023, arXiv 2309.14322", "qk_norm", "base", "harm"),
    Paired("muon", "Muon is better than Adam", "Liu et al. 2025, arXiv 2502.16982", "muon", "base"),
    Paired("tied", "tied embeddings are better than separate ones, both times √d",
           "Press and Wolf 2017, arXiv 1608.05859", "tied", "separate"),
    Paired("smoothed_loss", "label smoothing raises the loss", "Vaswani et al. 2017, arXiv 1706.03762",
           "translation", "smoothed", figure="validation_loss"),
    Paired("smoothed_bleu", "label smoothing does not lower BLEU", "Vaswani et al. 2017, arXiv 1706.03762",
            "smoothed", "translation", "bleu", "higher", -0.5),
    Paired("beam", "a beam of 5 has higher BLEU than greedy decoding", "Sutskever et al. 2014, arXiv 1409.3215",
            "translation/beam", "translation", "bleu", "higher"),
    Paired("recall", "softmax attention reverses 10 symbols where linear attention cannot",
            "Arora et al. 2023, arXiv 2312.04927", "softmax", "linear", "exact_match", "higher", 0.2),
    Paired("expressive", "expressive attention learns delayed sums that softmax attention does not",
            "Gros 2024, arXiv 2407.18601", "expressive_sums", "softmax_sums", "exact_match", "higher"),
)  # fmt: skip
