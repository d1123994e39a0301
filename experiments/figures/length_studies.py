"""The figures of the studies of length: positions and turns."""

from statistics import mean
from typing import Any

from experiments.figures.kept import Kept, Row
from experiments.figures.pieces import Conclusion, Page, figure, table
from experiments.figures.study_rows import CITED, share, training

LENGTHS = (100, 200, 500, 1000)


def positions(kept: Kept) -> Page:
    rows, config = kept.table("positions"), kept.config("studies/positions")
    drawn = [row for row in rows if row["model.position_range"]]
    stretched = [row for row in rows if row["model.position_stretch"] > 1]
    plain = [row for row in rows if row not in drawn and row not in stretched]

    def name(row: Row) -> str:
        more = f", range {row['model.position_range']}" if row in drawn else ""
        return (
            row["model.positions"] + more + (f", stretch {row['model.position_stretch']:g}" if row in stretched else "")
        )

    lengths = (30, 40, 50, 60)
    cells = [[name(row), *(share(row[f"exact_match{at}"]) for at in ("", *(f"_{n}" for n in lengths)))] for row in rows]
    task = config.task
    return Page(
        [
            f"from sequences of at most {figure(task.max_length)} symbols to longer ones",
            f"{figure(len(rows))} runs, one seed: three blocks of width {figure(config.model.d_model)}, "
            f"{training(config)} "
            f"sequences of at most {figure(task.max_length)} symbols out of {figure(task.n_tokens)}.",
            f"`range 1024` draws positions from {figure(drawn[0]['model.position_range'], ',')} in increasing order",
            f"so that {figure(config.model.max_len)} of them fit",
            f"a factor from 1 to {figure(stretched[0]['model.position_stretch'], 'g')} (`model.position_stretch`)",
            f"Exact match on {figure(task.examples, ',')} held-out sequences of at most {figure(task.max_length)} "
            f"symbols, "
            f"and of exactly {figure(30)}, {figure(40)}, {figure(50)} and {figure(60)}:",
            table(["positions", f"up to {task.max_length}", *map(str, lengths)], cells, "lrrrrr"),
            Conclusion(
                f"Every kind is at 0 at length {figure(2 * task.max_length)}, twice the training length",
                max(row["exact_match_40"] for row in rows) == 0,
            ),
            Conclusion(f"are at 0 at length {figure(30)} already", max(row["exact_match_30"] for row in plain) == 0),
            Conclusion(
                "Only stretched positions generalize at all",
                all(row["exact_match_30"] == 0 for row in drawn) and max(r["exact_match_30"] for r in stretched) > 0,
            ),
            Conclusion("these runs are at about a half", all(0.3 < row["exact_match"] < 0.7 for row in drawn)),
        ],
        {
            CITED: ["gain 12 points on average"],
            "a key of the config's sweep": ["with tokens 8 apart", "a factor from 1 to"],
            "what a conclusion counts as none": ["is at 0 at length", "are at 0 at length"],
        },
    )


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
            f"{figure(len(rows))} runs.",
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
