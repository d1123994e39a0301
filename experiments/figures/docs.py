"""The figures of the pages in docs/."""

import csv
from collections.abc import Callable
from statistics import stdev

from experiments.figures.kept import Kept
from experiments.figures.long_runs import MULTI30K, bleu, minutes
from experiments.figures.pieces import Lines, Page, figure, table
from experiments.figures.readme import INTERFACE
from experiments.seeds.statements import HEADER, statements
from experiments.studies.breadth.result import clearly_ahead, known
from experiments.studies.length.result import solved
from fxf.machine.signals import NOTICE_SECONDS
from fxf.pages.text_tables import to_markdown
from fxf.training.checkpoint import CheckpointConfig

FORMAT = "part of a format or a definition"
LIMIT = "a limit that the code sets"
PROGRAM = "gpt2_h100-1.txt"  # of experiments/results/compile
SIZES = {
    "": "JAX for the CPU, Flax, Optax, Orbax, Grain, TensorFlow Datasets (without TensorFlow), plots, "
    "the tools of the tests",
    "PLATFORM=cuda": "also JAX's CUDA 13 plugin with cuDNN and NCCL; needs Linux and NVIDIA's driver 580 or newer",
    "PLATFORM=tpu": "also libtpu; needs a TPU VM",
    "EXTRAS=test,compile": "also libtpu and JAX's CUDA 13 plugin without CUDA, for `fxf compile`; needs no TPU or GPU",
    "EXTRAS=test,wandb": "also Weights & Biases, a [tracker](trackers.md)",
    "EXTRAS=test,bench": "also PyTorch, with CUDA libraries of its own on Linux, transformers and CTranslate2",
}


def architecture(kept: Kept) -> Page:
    return Page([], {FORMAT: ["Tokens stand at 0, 1, …"], "the year of a source": ["code and examples* (2021)"]})


def devices(kept: Kept) -> Page:
    first = kept.output(PROGRAM).split("\n\n")[1].rstrip()
    return Page(
        [Lines(first)],
        {
            "a bound that a test keeps": ["those of one device within 1e-6"],
            FORMAT: [
                "`parallel.sequence` above 1",
                "A `window` counts tokens from 0",
                "**64-bit:** what computes 64-bit numbers",
            ],
            "a multiple that the code pads to": ["to multiples of 128"],
            "a limit of the kernel": ["multiples of 8 up to 128", "blocks of up to 512 × 512 pairs"],
            INTERFACE: ["with exit code 75", "after exit code 75"],
        },
    )


def extending(kept: Kept) -> Page:
    return Page([], {FORMAT: ["elsewhere than at 0, 1, …"]})


def nothing(kept: Kept) -> Page:
    return Page([])


def reading(kept: Kept) -> Page:
    return Page([], {"an example": ['EXPECTED = {"": {"bleu": 39.7}, "small": {"bleu": 31}}']})


def runs(kept: Kept) -> Page:
    older, example = kept.older["environment"], kept.result("configs/reversal_example0/seed_0")
    rows = [
        [f"`{name}`" if name else "", text, f"{'+ ' if name else ''}{older[name]} GB"] for name, text in SIZES.items()
    ]
    return Page(
        [
            table(["`make environment` …", "installs", "size on disk"], rows, "llr"),
            f"scores all {figure(example['examples'])} pairs",
            f"`step {figure(example['steps'])}  exact_match {figure(example['exact_match'], 'g')}  examples "
            f"{figure(example['examples'])}`",
        ],
        {
            INTERFACE: [f"| {code} |" for code in (0, 1, 2, 75, 130, 141)]
            + ["one line and exit code 2", "with exit code 75", "with 130."],
            LIMIT: [
                "at most 1,024 tokens",
                "heads of width 16 in a model wider than 256",
                "at most 2 GiB",
                "for 20 minutes",
                f"takes more than {NOTICE_SECONDS:g} seconds",
                f"saves after {CheckpointConfig.minutes:g} minutes",
            ],
        },
    )


def seeds(kept: Kept) -> Page:
    rows = [dict(zip(HEADER, row, strict=True)) for row in statements()]
    return Page([Lines(to_markdown(rows, HEADER).rstrip())], {INTERFACE: ["with exit code 1"]})


def sweeps(kept: Kept) -> Page:
    return Page(
        [],
        {
            "of the command above": ["trains up to 12 points"],
            FORMAT: ["smoothing where it is not 0"],
            "the table of a paper": ["Table 8"],
        },
    )


def tasks(kept: Kept) -> Page:
    config, result = kept.config("reversal").task, kept.result("configs/reversal")
    small, half, whole = kept.measured("documents")
    millions = [figure(row["documents"] / 1e6, ".1f") for row in (half, whole)]
    preparing = [figure(row["MB in all, preparing"]) for row in (half, whole)]
    first, until = (
        [figure(row[f"{column}, prepared"]) for row in (half, whole)]
        for column in ("s to the first step", "MB until it")
    )
    names = ("steps", "seed", "parameters", "exact_match", "examples", "exact_match_longer", "examples_longer")
    line = "  ".join(f"{name} {figure(result[name], 'g' if name.startswith('exact') else '')}" for name in names)
    longest, series = config.max_length, kept.config("length").task
    return Page(
        [
            f"sequences of {figure(config.min_length)} to {figure(longest)} symbols out of "
            f"{figure(config.n_tokens)}, in a minute",
            f"task reversal  {line}  train_loss {figure(result['train_loss'], '.6g')}",
            f"over {figure(result['examples'], ',')} sequences that never counted",
            f"for lengths {figure(longest + 1)} to {figure(longest + config.longer)}, which",
            f"on strings of at most {figure(series.max_length)} symbols",
            f"for positions it solves {figure(len(solved(kept.table('length'))))} of them at "
            f"{figure(kept.config('studies/length').task.longest)} symbols",
            f"they are ahead of every kind of a published table in "
            f"{figure(len(clearly_ahead(known(kept.table('breadth')))))}, if",
            f"{figure(half['gigabytes'])} and {figure(whole['gigabytes'])} GB of JSON lines "
            f"({' and '.join(millions)} million documents) "
            f"held at most {' and '.join(preparing)} MB of anonymous memory while they were prepared",
            f"first step after {' and '.join(first)} s, and held at most {' and '.join(until)} MB until then",
            f"as with {figure(small['gigabytes'])} GB ({figure(small['MB until it, prepared'])} MB)",
        ],
        {
            FORMAT: ["x[t+delay+1]", "x[t+1]", "as 16 or 32 bits each", "if `unknown_share` is 0"],
            LIMIT: ["learned from 16 MiB", "at most 16 MiB", "continues 16 letters or more"],
            "of the config's sweep": ["delays from 1 to 5 and bases from 2 to 16"],
        },
    )


def translation(kept: Kept) -> Page:
    result, de = kept.result("configs/translation"), kept.seeds(MULTI30K)
    return Page(
        [
            f"phrasebook that comes with fxf ({figure(result['training_pairs'], ',')} sentences made by a grammar)",
            f"ends with BLEU (here {figure(result['bleu'], '.1f')}) and the share of exact translations "
            f"({figure(result['exact_match'], '.2f')}) on {figure(result['examples'], ',')} sentences",
            f"reaches BLEU {figure(bleu(de), '.1f')} on Multi30k's test set after {minutes(*de)} minutes of "
            "training on one CPU core",
        ],
        {
            "of the papers that a test goes back to": ["below 0.05 the difference"],
            "an example": ["the first 1,000 pairs"],
        },
    )


def measured_spread(kept: Kept) -> float:
    """Returns the deviation of the differences of the null trials' pairs, whose seeds are 0 and 1, 2 and 3, …"""
    rows = csv.DictReader(kept.verdicts("reversal.csv").splitlines())
    loss = {int(row["seed"]): float(row["train_loss"]) for row in rows}
    return stdev(loss[seed + 1] - loss[seed] for seed in loss if seed % 2 == 0 and seed + 1 in loss)


def trials(kept: Kept) -> Page:
    measured, together = kept.verdicts("table.json"), kept.verdicts("together.json")
    example, change = kept.verdicts("example/verdict.json"), measured["effect_of_the_change"]
    alone = [run["cpu"] for run in together["alone"]]
    return Page(
        [
            Lines("\n".join(f"    {line}" for line in example["lines"])),
            Lines(kept.verdicts("table.md").rstrip()),
            f"which lowers the test loss by {figure(-change['effect'], '.4f')} nats (standard error "
            f"{figure(change['standard_error'], '.4f')},",
            f"{figure(together['together']['runs'])} runs of `reversal:example0` by one `fxf try --null` took "
            f"{figure(together['together']['cpu'], '.1f')} seconds of the processors, and `fxf train` "
            f"{figure(sum(alone) / len(alone), '.1f')} for each run (the mean of {figure(len(alone))}): a ratio of "
            f"{figure(together['ratio'])}.",
            f"The spread of the differences is {figure(measured_spread(kept), '.2f')}.",
        ],
        {
            "an example": ["(smaller than 0.02)"],
            INTERFACE: ["The exit code is 0"],
            "the definition of the test": [
                "leaves out 0",
                "k = 1 + n",
                "E = (1 + n m² / (m² + k s²))^(n/2)",
                "p = the smallest 1/E so far",
                "falls to 0.05 is at most 0.05",
                "the prior N(0, 1)",
                "At least 5 pairs are needed for an answer at level 0.05",
                "A share of at most 0.05 is promised",
            ],
            "what the program changes": ["with 0.2 nats taken", "a 5 % higher learning rate"],
            "what a simulation in a test keeps": [
                "within 24 pairs; twice as large, within 10; three times as large, within 7"
            ],
        },
    )


PAGES: dict[str, Callable[[Kept], Page]] = {
    "docs/architecture.md": architecture,
    "docs/devices.md": devices,
    "docs/extending.md": extending,
    "docs/finetune.md": nothing,
    "docs/probing.md": nothing,
    "docs/python.md": nothing,
    "docs/reading.md": reading,
    "docs/runs.md": runs,
    "docs/seeds.md": seeds,
    "docs/sweeps.md": sweeps,
    "docs/tasks.md": tasks,
    "docs/trackers.md": nothing,
    "docs/translation.md": translation,
    "docs/trials.md": trials,
}
