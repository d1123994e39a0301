"""The figures of README and CONTRIBUTING."""

from collections.abc import Callable

from experiments.figures.kept import Kept, Row
from experiments.figures.long_runs import MULTI30K, bleu, of_seeds
from experiments.figures.pieces import Conclusion, Page, figure
from experiments.figures.results import shown
from experiments.studies.length.result import BOUND, highest
from experiments.studies.length.result import solved as carried
from fxf.tasks.length.problems import PROBLEMS

INTERFACE = "part of an interface"
FASTEST = "CTranslate2, a core for each batch, 64 at a time, by length"


def readme(kept: Kept) -> Page:
    de, deen = kept.seeds(MULTI30K), kept.result("multi30k_deen")
    sentences, (recipe, fast) = kept.bench_row("sentences"), kept.bench("avx512_recipe")["rows"]
    faults = kept.measured("faults")[-1]
    tiny, beam = kept.bench_row("transformer_tiny"), kept.bench_row("beam")
    gpu = kept.bench_row("gpu_gpt2", "gpu")
    generate, gpt = kept.bench_row("generate"), kept.bench_row("nanogpt_cpu")
    turns, positions = kept.table("turns"), kept.table("positions")
    solved = [
        row
        for row in turns
        if row["task.max_length"] == 40 and row["model.window"] == 8 and "turns" in row["model.positions"]
    ]
    task, other = kept.config("studies/turns").task, kept.config("studies/positions").task
    walks, length = kept.table("length"), kept.config("studies/length").task
    millions = figure(deen["parameters"] / 1e6, ".1f")
    return Page(
        [
            f"| Multi30k English–German, {millions} M parameters, beam of "
            f"{figure(kept.config('translation:multi30k_de').decode.beam_width)}, {of_seeds(de, each=False)} | BLEU "
            f"{figure(bleu(de), '.2f')} |",
            f"| Multi30k German–English, {millions} M parameters, greedy | BLEU {figure(deen['bleu'], '.2f')} |",
            f"| training, Transformer-Tiny's size | {figure(shown(tiny['fxf']))} tokens/s | PyTorch "
            f"{figure(shown(tiny['PyTorch']))}, compiled {figure(shown(tiny['PyTorch compiled']))} |",
            f"| training, nanoGPT's CPU size | {figure(shown(gpt['fxf']))} tokens/s | PyTorch "
            f"{figure(shown(gpt['PyTorch']))}, compiled {figure(shown(gpt['PyTorch compiled']))} |",
            f"| training, GPT-2 small in bfloat16, on an H100 | {figure(shown(gpu['fxf']))} tokens/s | PyTorch "
            f"{figure(shown(gpu['PyTorch']))}, compiled {figure(shown(gpu['PyTorch compiled']))} |",
            f"| beam of 5, 64 sentences at a time | {figure(shown(beam['fxf']))} sentences/s | PyTorch "
            f"{figure(shown(beam['PyTorch']))} |",
            f"| `generate` of transformers, 64 sentences at a time | {figure(shown(generate['fxf']))} sentences/s | "
            f"transformers {figure(shown(generate['transformers']))} |",
            f"| nanoGPT's recipe for a CPU, {figure(kept.config('characters:nanogpt_cpu').train.steps, ',')} steps, "
            f"where XLA multiplies faster | {seconds_and_loss(recipe, 'fxf')} | PyTorch "
            f"{seconds_and_loss(recipe, 'PyTorch')} |",
            f"| a quicker recipe, `characters:fast`, on the same machine | {seconds_and_loss(fast, 'fxf')} |",
            f"Multi30k's test set | {figure(shown(sentences['fxf']))} sentences/s | PyTorch "
            f"{figure(shown(sentences['PyTorch, 64 at a time, by length']))}, CTranslate2 "
            f"{figure(shown(sentences[FASTEST]))}, both sorted by length |",
            Conclusion(
                f"| reversal of {figure(task.longer + task.max_length, ',')} symbols after training on at most "
                f"{figure(task.max_length)}, five seeds | exact match "
                f"{figure(min(row['exact_match_1000'] for row in solved), 'g')} |",
                len(solved) == 5,
            ),
            f"[at most {figure(max(row['exact_match_20'] for row in positions), '.2g')} at {figure(20)}]"
            f"(experiments/studies/positions/README.md) after {figure(other.max_length)}, other positions",
            f"| {figure(len(carried(walks)))} of {figure(len(PROBLEMS))} problems at {figure(length.longest)} symbols "
            f"after training on at most {figure(length.max_length)}, fixed walks, five seeds of each | exact match at "
            f"least {figure(BOUND)} in four seeds or five |",
            f"| at most {figure(highest(walks, 'rotary'), '.2g')} with rotary positions, one seed |",
            f"| {figure(faults['times'])} faults: kills, damaged checkpoints, full disks | {figure(faults['resumed'])} "
            f"resumed",
        ],
        {
            "in the papers that the text cites": ["| 41.02 with 2.6 M (Wu", "| 36.52 with 9 M |"],
            "what was measured": [
                "| beam of 5, 64 sentences at a time |",
                "transformers, 64 sentences at a time |",
                "| beam of 5, 1,000 sentences of",
            ],
            INTERFACE: ["one line and exit code 2"],
            "a formula": ["1 + scale"],
        },
    )


def contributing(kept: Kept) -> Page:
    return Page([], {"a limit that a test keeps": ["README has at most 160 lines"]})


PAGES: dict[str, Callable[[Kept], Page]] = {"README.md": readme, "CONTRIBUTING.md": contributing}


def seconds_and_loss(row: Row, way: str) -> str:
    """Returns the seconds of training and the validation loss of a row of `--rows=recipe`."""
    loss = float(row["note"].split(f"{way} validation loss ")[1].split(",")[0])
    return f"{figure(row['figures'][way]['median'], '.1f')} s, validation loss {figure(loss, '.3f')}"
