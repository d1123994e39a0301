"""Claims about strings longer than those of training, held to kept results of our studies."""

from collections.abc import Sequence
from typing import Any

from experiments.claims.claim import Single
from experiments.kept import Row
from experiments.seeds.claims import at_least
from experiments.studies.beside_quoted import of_first_test
from experiments.studies.breadth import result as breadth
from experiments.studies.drawn import result as drawn
from experiments.studies.length import result as length
from experiments.studies.ranking import result as ranking

STUDIES = "experiments/studies"
SWEEP = "fxf sweep --config=studies/"


def of_rows(rows: Sequence[Row], figure: str, **keys: Any) -> list[float]:
    """Returns a column of the rows of a table that have these values; `__` in a name stands for a point."""
    return [row[figure] for row in rows if all(row[name.replace("__", ".")] == value for name, value in keys.items())]


CLAIMS = (
    Single(
        name="cho",
        says="positions that the task gives carry reversal to 50 times the length",
        source="Cho et al. 2024, arXiv 2405.20671",
        what="exact match at 1,000 after at most 20, mean over seeds",
        command=f"{SWEEP}turns",
        accepts=at_least(0.99),
        figures=lambda kept: of_rows(kept.table("turns"), "exact_match_1000", task__mirrored="True"),
        folder=f"{STUDIES}/turns",
    ),
    Single(
        name="turns_1000",
        says="positions by turns carry reversal from 40 to 1,000 symbols",
        source="ours",
        what="exact match at 1,000, mean over seeds",
        command=f"{SWEEP}turns",
        accepts=at_least(0.99),
        figures=lambda kept: of_rows(
            kept.table("turns"), "exact_match_1000", model__positions="turns", model__window=8, task__max_length=40
        ),
        folder=f"{STUDIES}/turns",
    ),
    Single(
        name="walks",
        says="fixed walks along the tokens solve more than mirrored strings at 12 times the length, with one setting",
        source="ours",
        what="problems of eight that four of five seeds solve at 500 symbols after at most 40",
        command=f"{SWEEP}length",
        accepts=at_least(len(length.CLAIMED)),
        figures=lambda kept: [len(length.solved(kept.table("length")))],
        folder=f"{STUDIES}/length",
    ),
    Single(
        name="breadth",
        says="walks are ahead of eleven kinds of positions by the score of Ruoss et al., whose table is quoted from "
        "memory and unchecked",
        source="ours",
        what="problems of fifteen in which the best seed is at least a point above every quoted kind",
        command=f"{SWEEP}breadth",
        accepts=at_least(breadth.AHEAD),
        figures=lambda kept: [len(breadth.clearly_ahead(breadth.known(kept.table("breadth"))))],
        folder=f"{STUDIES}/breadth",
    ),
    Single(
        name="ranking",
        says="ALiBi, sinusoids and no positions rank as in Ruoss et al., quoted from memory; here after 600 steps",
        source="Ruoss et al. 2023, arXiv 2305.16843",
        what="problems of five whose ranking is reproduced",
        command=f"{SWEEP}ranking",
        accepts=at_least(ranking.NEEDED),
        figures=lambda kept: [len(ranking.reproduced(of_first_test(breadth.known(kept.table("ranking")))))],
        folder=f"{STUDIES}/ranking",
    ),
    Single(
        name="ranking_of_all",
        says="on some of all fifteen problems they rank so; claimed after the result of the row above was seen",
        source="Ruoss et al. 2023, arXiv 2305.16843",
        what="problems of fifteen whose ranking is reproduced",
        command=f"{SWEEP}ranking",
        accepts=at_least(ranking.NEEDED),
        figures=lambda kept: [len(ranking.reproduced(breadth.known(kept.table("ranking"))))],
        folder=f"{STUDIES}/ranking",
    ),
    Single(
        name="drawn",
        says="rotary positions drawn from a range are ahead of plain ones and of sinusoids as in Ruoss et al., quoted "
        "from memory; here by 5 points or more after 1,500 steps",
        source="Ruoss et al. 2023, arXiv 2305.16843",
        what="problems of five whose ranking is reproduced",
        command=f"{SWEEP}drawn",
        accepts=at_least(drawn.NEEDED),
        figures=lambda kept: [len(drawn.reproduced(of_first_test(breadth.known(kept.table("drawn")))))],
        folder=f"{STUDIES}/drawn",
    ),
    Single(
        name="drawn_of_all",
        says="on all eight problems where the table has them far ahead they rank so; claimed after the result of the "
        "row above was seen",
        source="Ruoss et al. 2023, arXiv 2305.16843",
        what="problems of eight whose ranking is reproduced",
        command=f"{SWEEP}drawn",
        accepts=at_least(drawn.NEEDED),
        figures=lambda kept: [len(drawn.reproduced(breadth.known(kept.table("drawn"))))],
        decided=lambda kept: drawn.is_decided(breadth.known(kept.table("drawn"))),
        folder=f"{STUDIES}/drawn",
    ),
)
