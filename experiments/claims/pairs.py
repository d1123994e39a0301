"""The claims of CLAIMS.md, and the rule that decides each from kept figures.

The rules of pairs were committed before the runs. Their models are tiny and trained for seconds, so a claim that does
not hold here may hold at the paper's size, and the other way round.
"""

from collections.abc import Mapping, Sequence
from statistics import fmean, stdev
from typing import Any, Literal, NamedTuple

from fxf.trials.evidence import evidence, interval

Results = Mapping[str, Any]  # kept figures by the name of the job that measured them


class Outcome(NamedTuple):
    """What the kept figures say of a claim."""

    measured: str
    verdict: str


class Paired(NamedTuple):
    """A claim about two arms, tested on pairs of runs that have the same seed.

    The effect of a pair is by how much the first arm's figure is better than the second's. `fxf.trials.evidence` decides
    whether it is more or less than `least`: in the mean from 32 pairs on, and with fewer in most seeds.

    Attributes:
      first, second: names of arms (`experiments.claims.arms.ARMS`), or ARM/SCORING of one.
      figure: of result.json.
      better: whether a lower or a higher figure is better.
      least: what the mean effect must exceed; a negative number is a loss that counts as none.
    """

    name: str
    says: str
    source: str
    first: str
    second: str
    figure: str = "test_loss"
    better: Literal["lower", "higher"] = "lower"
    least: float = 0.0

    @property
    def rule(self) -> str:
        """Returns the rule in words."""
        if self.least < 0:
            return f"{self.figure} of {self.first} at most {-self.least:g} worse than of {self.second}"
        by = f" by more than {self.least:g}" if self.least else ""
        return f"{self.figure} of {self.first} {self.better} than of {self.second}{by}"

    def figures(self, results: Results) -> tuple[list[float], list[float]]:
        """Returns the figures of both arms by seed; a run whose loss was not finite has the worst figure of all."""
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
        one, other = self.figures(results)
        sign = 1 if self.better == "higher" else -1
        effects = [sign * (a - b) for a, b in zip(one, other, strict=True)]
        found = evidence([(self.least, effect) for effect in effects])
        way = found.mean or found.signs
        verdict = {1: "holds", -1: "does not hold"}.get(way, f"undecided at {len(effects)} seeds")
        interval_of_mean = "{:.3g} to {:.3g}".format(*interval(effects)) if len(effects) > 1 else "any size"
        diverged = sum(
            "error" in run for arm in (self.first, self.second) for run in results[arm.split("/")[0]]["runs"]
        )
        note = f"; {diverged} runs diverged" if diverged else ""
        return Outcome(
            f"{spread(one)} and {spread(other)}; effect {fmean(effects):.3g} ({interval_of_mean}){note}", verdict
        )


def spread(figures: Sequence[float]) -> str:
    """Returns mean ± standard deviation."""
    return f"{fmean(figures):.4g} ± {stdev(figures):.2g}" if len(figures) > 1 else f"{figures[0]:.4g}"


DEBATED = (
    Paired("swiglu", "a gated feed-forward layer is better than ReLU with as many weights",
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
    Paired("no_positions", "a causal model without positions is not far behind one with them",
           "Haviv et al. 2022, arXiv 2203.16634", "no_positions", "base", least=-0.05),
    Paired("alibi", "with ALiBi, the loss on windows 4 times as long as in training is no higher",
           "Press et al. 2021, arXiv 2108.12409", "alibi/long", "alibi", least=-0.01),
    Paired("alibi_sinusoids", "on windows longer than in training, ALiBi is better than sinusoids",
           "Press et al. 2021, arXiv 2108.12409", "alibi/long", "sinusoidal/long"),
    Paired("post_norm", "eight post-norm blocks need a warm-up", "Xiong et al. 2020, arXiv 2002.04745",
           "post_norm_warmup", "post_norm", least=0.05),
    Paired("pre_norm", "eight pre-norm blocks need none", "Xiong et al. 2020, arXiv 2002.04745",
           "pre_norm", "pre_norm_warmup", least=-0.05),
    Paired("qk_norm", "with query–key norm, a rate ten times as high harms less",
           "Wortsman et al. 2023, arXiv 2309.14322", "fast_rate_qk_norm", "fast_rate"),
    Paired("muon", "Muon is better than Adam, each at the rate of a recipe of ours",
           "Liu et al. 2025, arXiv 2502.16982", "muon", "base"),
    Paired("tied", "tied embeddings are better than separate ones", "Press and Wolf 2017, arXiv 1608.05859",
           "tied", "separate"),
    Paired("smoothed_loss", "label smoothing raises the loss", "Vaswani et al. 2017, arXiv 1706.03762",
           "translation", "smoothed", figure="validation_loss"),
    Paired("smoothed_bleu", "label smoothing does not lower BLEU", "Vaswani et al. 2017, arXiv 1706.03762",
            "smoothed", "translation", "bleu", "higher", -0.5),
    Paired("beam", "a beam of 5 has higher BLEU than greedy decoding", "Sutskever et al. 2014, arXiv 1409.3215",
            "translation/beam", "translation", "bleu", "higher"),
    Paired("recall", "softmax attention recalls what linear attention cannot; here, to reverse 10 symbols",
            "Arora et al. 2023, arXiv 2312.04927", "softmax", "linear", "exact_match", "higher", 0.2),
    Paired("expressive", "expressive attention learns delayed sums that softmax attention does not",
            "Gros 2024, arXiv 2407.18601", "expressive_sums", "softmax_sums", "exact_match", "higher"),
)  # fmt: skip

BEFORE = "ours, before it was measured"
OURS = (
    Paired("turns_characters", "turns lose little to rotary positions on characters", BEFORE, "turns", "rotary",
           least=-0.01),
    Paired("walks_characters", "walks lose little to rotary positions on characters", BEFORE, "walks", "rotary",
           least=-0.01),
)  # fmt: skip
