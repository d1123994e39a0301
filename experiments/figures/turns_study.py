"""The figures of the study of turns."""

from statistics import mean
from typing import Any

from experiments.figures.kept import Kept, Row
from experiments.figures.pieces import Conclusion, Page, figure, table

LENGTHS = (100, 200, 500, 1000)


def turns(kept: Kept) -> Page:
    rows, config, tried = kept.table("turns"), kept.config("studies/turns"), kept.older["turns_first_try"]
    task, longest = config.task, f"{config.task.longer + config.task.max_length:,}"

    def kind(name: str, *columns: Any) -> tuple[list[Row], list[str]]:
        keys = ("model.positions", "task.mirrored", "model.window", "task.max_length")
        each = [row for row in rows if tuple(row[key] for key in keys) == columns]
        figures = [mean(row[f"exact_match{at}"] for row in each) for at in ("", *(f"_{n}" for n in LENGTHS))]
        return each, [name, f"up to {columns[-1]}", str(len(each)), *(f"{value:.2g}" for value in figures)]

    kinds = [
        kind("turns, window of 8", "turns", "False", 8, 40),
        kind("turns, window of 8", "turns", "False", 8, 20),
        kind("mirrored, rotary, window of 2", "rotary", "True", 2, 20),
        kind("turns, no window", "turns", "False", 0, 40),
        kind("rotary, window of 8", "rotary", "False", 8, 40),
    ]
    far = [f"exact_match_{n}" for n in range(100, 1001, 100)]
    first = [row for each, _ in kinds[:3] for row in each]
    hours = sum(row["train_seconds"] + row["evaluate_seconds"] for row in rows) / 3600
    header = ["positions", "trained on", "seeds", "up to that", *(f"{n:,}" for n in LENGTHS)]
    return Page(
        [
            f"# Turns against length: reversal of {figure(longest)} symbols after training on at most "
            f"{figure(task.max_length)}",
            f"{figure(config.train.steps)} steps of {figure(config.train.batch_size)} sequences, one block of width "
            f"{figure(config.model.d_model)}, cached greedy decoding of {figure(task.examples)} held-out",
            f"without the penalty from step {figure(config.model.turns_settle_at)} on",
            f"had {figure(1)} at {figure(longest)} for four seeds and {figure(0)} for one: two heads of that one "
            f"ended with "
            f"turns of {figure(tried['turns'][0])} and {figure(tried['turns'][1])}, which scoring rounds.",
            f"{figure(len(rows))} runs, of {figure(hours, '.1f')} hours one after another.",
            f"every length from {figure(LENGTHS[0])} to {figure(longest)}:",
            table(header, [cells for _, cells in kinds], "llrrrrrr"),
            Conclusion(
                f"Each of the {figure(len(first))} runs in the first three rows reverses each of "
                f"{figure(task.examples)} sequences of every length from {figure(LENGTHS[0])} to {figure(longest)}",
                all(row[name] == 1 for row in first for name in far),
            ),
            Conclusion(
                "Turns without the window learn the lengths of training and fail beyond them",
                all(row["exact_match"] == 1 and row["exact_match_1000"] == 0 for row in kinds[3][0]),
            ),
            Conclusion("does not learn even those", all(row["exact_match"] < 0.1 for row in kinds[4][0])),
        ],
        {
            "what the mathematics begins with": ["every turn starts at 1, where positions are 1, 2, …"],
            "the test, written before the runs": [
                "Turns, trained on at most 40 of 50 symbols: exact match at least 0.99 at 500 and at 1,000 for all "
                "seeds.",
                "Turns, trained on at most 20: at least 0.95 at 100 for all seeds, and at least 0.99 at 200 for "
                "four of them.",
                "Mirrored, trained on at most 20, rotary, a window of 2: at least 0.99 at 100 and at 200 for all "
                "seeds.",
                "but no turns: lower at 1,000 than turns with the window",
                "then tried with two seeds, at 100 and 200.",
            ],
        },
    )
