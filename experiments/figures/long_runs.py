"""The figures of the long runs in experiments/results/README.md."""

from statistics import mean, stdev

from experiments.figures.kept import Kept, Row
from experiments.figures.pieces import Lines, Piece, figure, table

MULTI30K = "configs/multi30k_de"  # the folder of its seeds in experiments/results


def long_runs(kept: Kept) -> list[Piece]:
    de, deen, anki, older = kept.seeds(MULTI30K), kept.result("multi30k_deen"), kept.result("anki"), kept.older
    others, config = older["translation"], kept.config("translation:multi30k_de")
    return [
        f"BLEU {figure(bleu(de), '.2f')} with a beam of {figure(config.decode.beam_width)}, {of_seeds(de)}, chrF "
        f"{figure(mean(run['chrf'] for run in de), '.2f')}; {minutes(*de)} minutes of training each, "
        f"{epochs(de[0])} epochs",
        f"BLEU {figure(deen['bleu'], '.2f')} greedy, chrF {figure(deen['chrf'], '.2f')}; {minutes(deen)} minutes of "
        f"training, {epochs(deen)} epochs",
        f"on {figure(anki['examples'], ',')} held-out sentences of Tatoeba (2019): BLEU {figure(anki['bleu'], '.2f')} "
        f"greedy, chrF {figure(anki['chrf'], '.2f')}; {minutes(anki)} minutes of training",
        f"The first two models have {figure(de[0]['parameters'], ',')} parameters.",
        f"ours have at most {figure(config.data.batch_tokens, ',')}",
        f"had {figure(others['multi30k_deen'])} (an older run",
        f"and {figure(others['anki_steps'], ',')} steps, `anki` reached BLEU {figure(others['anki'])} in "
        f"{figure(others['anki_minutes'])} minutes",
        tuning(kept),
    ]


def bleu(runs: list[Row]) -> float:
    return mean(run["bleu"] for run in runs)


def of_seeds(runs: list[Row], *, each: bool = True) -> str:
    """Returns of how many seeds a mean is; with `each` also their figures and deviation, if there are several."""
    if len(runs) == 1:
        return f"seed {figure(runs[0]['seed'])}"
    found = f"mean of {figure(len(runs))} seeds"
    if not each:
        return found
    figures = [run["bleu"] for run in runs]
    return f"{found} ({', '.join(figure(x, '.2f') for x in figures)}; deviation {figure(stdev(figures), '.2f')})"


def tuning(kept: Kept) -> Lines:
    """Returns the table of the runs by which Multi30k's settings were chosen."""
    header = ["optimizer", "rate", "positions", "BPE-dropout", "tokens a batch", "steps", "BLEU", "loss"]
    rows = [
        [
            run["optimizer.name"],
            f"{run['optimizer.learning_rate']:g}",
            run["model.positions"],
            f"{run['data.bpe_dropout']:g}",
            f"{run['data.batch_tokens']:,}",
            f"{run['train.steps']:,}",
            f"{run['bleu']:.2f}",
            f"{run['validation_loss']:.3f}",
        ]
        for run in kept.tuned(MULTI30K)
    ]
    return table(header, rows, "lrlrrrrr")


def minutes(*runs: Row) -> str:
    """Returns the minutes of training: of one run, or the least and the most of several."""
    least, most = (figure(of(run["train_seconds"] for run in runs) / 60, ".0f") for of in (min, max))
    return least if len(runs) == 1 else f"{least} to {most}"


def epochs(result: Row) -> str:
    return figure(result["steps"] / result["steps_per_epoch"], ".0f")
