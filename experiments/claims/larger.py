"""Claims that take longer than a laptop has, held to kept results: published figures, and our studies."""

from experiments.claims import comparisons, longer
from experiments.claims.claim import Single
from experiments.claims.longer import STUDIES, SWEEP
from experiments.kept import MULTI30K, Kept
from experiments.seeds.claims import at_least, at_most, equal
from experiments.studies.forecast import result as forecast
from experiments.studies.qk_norm import result as qk_norm
from experiments.studies.recall import result as recall
from experiments.studies.scan import result as scan
from experiments.studies.width import result as width

RESULTS = "experiments/results"
TRAIN = "fxf train --config="


def best_rates(kept: Kept, kind: str) -> list[float]:
    """Returns the best learning rate of each width, the narrowest first, with or without `model.base_width`."""
    return [width.best_rate(by_rate) for by_rate in width.losses(kept.table("width"), kind).values()]


def sensitivities(kept: Kept) -> list[tuple[float, float]]:
    """Returns the sensitivity to the learning rate without and with a norm of queries and keys, of each width."""
    rows = [{**row, "model.qk_norm": row["model.qk_norm"] == "True"} for row in kept.table("qk_norm")]
    without, normed = (qk_norm.losses(rows, norm).values() for norm in (False, True))
    return [(qk_norm.sensitivity(a), qk_norm.sensitivity(b)) for a, b in zip(without, normed, strict=True)]


CLAIMS = (
    Single(
        name="multi30k_de",
        says="Transformer-Tiny reaches BLEU 41.02 on Multi30k English–German (with 2.57 M weights)",
        source="Wu et al. 2021, arXiv 2105.14462",
        what="BLEU with 2.09 M weights",
        command=f"{TRAIN}translation:multi30k_de --config.data.path=multi30k/tok --config.seed=SEED",
        accepts=at_least(41.02),
        figures=lambda kept: [run["bleu"] for run in kept.seeds(MULTI30K)],
        folder=f"{RESULTS}/{MULTI30K}/seed_0",
    ),
    Single(
        name="multi30k_deen",
        says="a model of 9 M weights reaches BLEU 36.52 German–English, greedy",
        source="bentrevett/pytorch-seq2seq",
        what="BLEU of one seed with 2.09 M weights",
        command=f"{TRAIN}translation:multi30k_deen --config.data.path=multi30k/tok",
        accepts=at_least(36.52),
        figures=lambda kept: [kept.result("multi30k_deen")["bleu"]],
        folder=f"{RESULTS}/multi30k_deen",
    ),
    Single(
        name="nanogpt_cpu",
        says="nanoGPT's CPU recipe reaches validation loss 1.8857 on tinyshakespeare",
        source="nanoGPT, run as it stands",
        what="validation loss",
        command=f"{TRAIN}characters:nanogpt_cpu --config.data.path=input.txt",
        accepts=at_most(1.8857 + 0.02),
        why="nanoGPT's figure and the span of seeds, 0.02",
        figures=lambda kept: [kept.result("configs/characters_nanogpt_cpu")["validation_loss"]],
        folder=f"{RESULTS}/configs/characters_nanogpt_cpu",
    ),
    Single(
        name="uva",
        says="one block reverses 16 of 10 symbols in 100 %; here a decoder, 1 to 25 of 50",
        source="UvA deep-learning tutorial 6",
        what="exact match of 10,000",
        command=f"{TRAIN}reversal",
        accepts=at_least(0.999),
        figures=lambda kept: [kept.result("configs/reversal")["exact_match"]],
        folder=f"{RESULTS}/configs/reversal",
    ),
    *longer.CLAIMS,
    Single(
        name="mup",
        says="with μP the best learning rate does not depend on the width, here 64 to 512",
        source="Yang et al. 2022, arXiv 2203.03466",
        what="largest best rate over the smallest",
        command=f"{SWEEP}width",
        accepts=at_most(width.BOUND),
        figures=lambda kept: [width.spread(best_rates(kept, "with"))],
        folder=f"{STUDIES}/width",
    ),
    Single(
        name="no_mup",
        says="without μP the best learning rate falls with the width, here 64 to 512",
        source="Yang et al. 2022, arXiv 2203.03466",
        what="best rate of width 64 over that of 512",
        command=f"{SWEEP}width",
        accepts=at_least(2),
        figures=lambda kept: [best_rates(kept, "without")[0] / best_rates(kept, "without")[-1]],
        folder=f"{STUDIES}/width",
    ),
    Single(
        name="forecast",
        says="a law of loss by compute with a floor, fitted to small runs, forecasts one of 38 times the compute",
        source="Hoffmann et al. 2022, arXiv 2203.15556",
        what="error of the forecast loss, as a share of the measured one",
        command=f"{SWEEP}forecast --config.data.path=sentences.txt",
        accepts=at_most(forecast.BOUND),
        figures=lambda kept: [abs(forecast.errors(kept.table("forecast"))["with a floor"])],
        folder=f"{STUDIES}/forecast",
    ),
    Single(
        name="qk_norm_rates",
        says="with query–key norm the loss depends less on the learning rate",
        source="Wortsman et al. 2023, arXiv 2309.14322",
        what="sensitivity with the norm over that without, largest of two widths",
        command=f"{SWEEP}qk_norm",
        accepts=at_most(1),
        figures=lambda kept: [max(normed / without for without, normed in sensitivities(kept))],
        folder=f"{STUDIES}/qk_norm",
    ),
    Single(
        name="recall_softmax",
        says="softmax attention recalls 2 and 8 pairs at widths 32 and 64, here within 1,000 steps",
        source="Arora et al. 2023, arXiv 2312.04927",
        what="lowest mean share recalled, at the best of two rates",
        command=f"{SWEEP}recall",
        accepts=at_least(recall.SOLVED),
        figures=lambda kept: [recall.lowest_share(recall.cells(kept.table("recall")))],
        folder=f"{STUDIES}/recall",
    ),
    Single(
        name="recall_linear",
        says="with linear attention, 8 pairs need more width than 2",
        source="Arora et al. 2023, arXiv 2312.04927",
        what="1 if the smallest width that recalls 0.99 is larger for 8 pairs, or none does and one does for 2",
        command=f"{SWEEP}recall",
        accepts=equal(1),
        figures=lambda kept: [
            int(recall.grows([recall.smallest(recall.cells(kept.table("recall")), "linear", n) for n in (2, 8)]))
        ],
        folder=f"{STUDIES}/recall",
    ),
    Single(
        name="scan",
        says="relative positions carry SCAN's commands to longer action sequences; here rotary ones against sinusoids",
        source="Csordás et al. 2021, arXiv 2108.12284",
        what="gain of exact match on commands of more than 26 actions",
        command=f"{SWEEP}scan --config.data.path=length_split",
        accepts=at_least(scan.GAIN),
        figures=lambda kept: scan.gains(kept.table("scan")),
        folder=f"{STUDIES}/scan",
    ),
    *comparisons.CLAIMS,
    Single(
        name="bench_nanogpt",
        says="training is faster than PyTorch's, compiled, at nanoGPT's CPU size",
        source="ours, before it was measured here",
        what="tokens/s, fxf's over PyTorch's",
        command="make bench",
        accepts=at_least(1),
        figures=lambda kept: [kept.bench_row("nanogpt_cpu")["fxf"] / kept.bench_row("nanogpt_cpu")["PyTorch compiled"]],
        folder=f"{RESULTS}/bench",
    ),
    Single(
        name="bench_tiny",
        says="training is faster than PyTorch's, compiled, at Transformer-Tiny's size",
        source="ours, before it was measured here",
        what="tokens/s, fxf's over PyTorch's",
        command="make bench",
        accepts=at_least(1),
        figures=lambda kept: [
            kept.bench_row("transformer_tiny")["fxf"] / kept.bench_row("transformer_tiny")["PyTorch compiled"]
        ],
        folder=f"{RESULTS}/bench",
    ),
    Single(
        name="bench_beam",
        says="a beam of 5 is faster than a batched search in PyTorch",
        source="ours",
        what="sentences/s, fxf's over PyTorch's",
        command="make bench",
        accepts=at_least(1),
        figures=lambda kept: [
            kept.bench_row("beam", "translation")["fxf"] / kept.bench_row("beam", "translation")["PyTorch"]
        ],
        folder=f"{RESULTS}/bench",
    ),
)
