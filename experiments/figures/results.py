"""The figures of experiments/results/README.md, from the folders beside it."""

import re
from collections.abc import Callable

from experiments.figures.kept import TABLES, Kept, Program, Row
from experiments.figures.long_runs import long_runs
from experiments.figures.pieces import Conclusion, Lines, Page, Piece, figure, table

MEASURES = {  # of fxf's and MaxText's steps: the name of the figure, and its unit
    "memory of a device, GiB": ("memory", 2**30),
    "operations, TFLOP": ("flops", 1e12),
    "traffic to memory, GB": ("traffic", 1e9),
    "sent between devices, GB": ("sent", 1e9),
}
CITED = "in the papers that the text cites"
DECODERS, TRANSLATORS = ("nanogpt_cpu", "nanogpt_gpu", "gpt2_small"), ("transformer_tiny", "seed_003")
LESS_IS_BETTER = ("s", "MiB")  # units of the benchmark
BEFORE = (
    "gpt2_h100-1",
    "gpt2_h100-8_data8",
    "gpt2_h100-8_fsdp8",
    "gpt2_h100-8_tensor4_data2",
    "gpt2_v5e-2x4_remat",
    "gpt2_v5e-16x16",
    "gpt2_v5p-4x4x4",
)
COMPILED = (
    "gpt2_h100-1",
    "gpt2_h100-8_data8",
    "gpt2_h100-8_fsdp8",
    "gpt2_h100-8_tensor4_data2",
    "gpt2_v5e-2x4",
    "gpt2_v5e-2x4_remat",
    "gpt2_v5e-2x4_flash",
    "gpt2_v5e-2x4_decoding",
    "gpt2_v5e-16x16",
    "gpt2_v5e-16x16_flash",
    "gpt2_v5p-4x4x4",
    "gpt2_v5p-4x4x4_flash",
    "translation_v5e-2x4",
    "reversal_v5e-2x4",
    "llama7b_h100-64",
    "llama7b_v5p-4x4x8",
    "llama7b_v5p-4x4x8_sparse_cores",
    "llama70b_v5p-8x8x8",
    "llama70b_v5p-8x8x8_sparse_cores",
)
FLASH = {
    "v5e:2x4": ("gpt2_v5e-2x4_remat", "gpt2_v5e-2x4_flash"),
    "v5e:16x16": ("gpt2_v5e-16x16", "gpt2_v5e-16x16_flash"),
    "v5p:4x4x4": ("gpt2_v5p-4x4x4", "gpt2_v5p-4x4x4_flash"),
}
# Also compiled with flags of libtpu that gather and scatter on the SparseCores.
FLAGS = ("llama7b_v5p-4x4x8", "llama70b_v5p-8x8x8")


def beside(kept: Kept) -> list[Piece]:
    def behind(row: str, *tables: str) -> bool:
        figures = kept.bench_row(row, *tables)
        return figures["PyTorch"] > figures["fxf"]

    bench, wide, narrow = kept.bench(), kept.bench("avx512"), kept.bench("without_avx512")
    versions, machine, losses = bench["versions"], bench["machine"], kept.older["nanogpt_seeds"]["losses"]
    real, gpu, intel = kept.bench_row("sentences"), kept.bench("gpu"), kept.bench("intel")
    return [
        f"on {figure(bench['started'][:10])}, with PyTorch {figure(versions['torch'].split('+')[0])} and JAX "
        f"{figure(versions['jax'])}, on {figure(machine['cores'])} cores of an AMD EPYC with AVX-512 (its load was "
        f"{figure(machine['load_at_start'])} at the start)",
        bench_table("what", *map(kept.bench, TABLES)),
        Conclusion("fxf trains every size faster than PyTorch", not any(map(behind, (*DECODERS, *TRANSLATORS)))),
        Conclusion(
            f"CTranslate2 with a core for each batch, or with batches of {figure(200)}, translates real sentences "
            f"faster than fxf, and with batches of {figure(64)} on all cores about as fast",
            all(
                value > real["fxf"]
                for way, value in real.items()
                if way.startswith(("CTranslate2, a", "CTranslate2, 2"))
            )
            and abs(real["CTranslate2, 64 at a time, by length"] / real["fxf"] - 1) < 0.1,
        ),
        f"product of two matrices is {figure(times_as_fast(kept, 'intel'), '.2f')} times as fast as PyTorch's. PyTorch",
        Conclusion("PyTorch then trains nanoGPT's CPU size faster than fxf", behind("nanogpt_cpu", "intel")),
        Conclusion("and the two translators slower. These", not any(behind(row, "intel") for row in TRANSLATORS)),
        f"measured on {figure(intel['started'][:10])} on {figure(intel['machine']['cores'])} of its cores",
        bench_table("what, where PyTorch multiplies faster", intel),
        f"was measured on {figure(gpu['started'][:10])} on one NVIDIA H100, with JAX {figure(gpu['versions']['jax'])} "
        f"and PyTorch {figure(gpu['versions']['torch'])}",
        Conclusion("fxf trains faster than PyTorch", not behind("gpu_gpt2", "gpu")),
        Conclusion(
            "and compiled PyTorch trains faster than fxf",
            kept.bench_row("gpu_gpt2", "gpu")["PyTorch compiled"] > kept.bench_row("gpu_gpt2", "gpu")["fxf"],
        ),
        bench_table("what, on a GPU", gpu),
        f"product of two matrices is {figure(times_as_fast(kept, 'avx512'), '.2f')} times as fast as PyTorch's, and on "
        f"the one above {figure(times_as_fast(kept, 'bench'), '.2f')} times",
        f"measured on {figure(wide['started'][:10])} on {figure(wide['machine']['cores'])} such cores",
        bench_table("what, where XLA multiplies faster", wide, kept.bench("avx512_recipe")),
        f"Seeds {figure(0)} to {figure(len(losses) - 1)} of nanoGPT's recipe ended at "
        + ", ".join(figure(loss, ".3f") for loss in losses[:-1])
        + f" and {figure(losses[-1], '.3f')}",
        f"measured on {figure(narrow['started'][:10])} on {figure(narrow['machine']['cores'])} cores of an AMD EPYC "
        "without AVX-512",
        Conclusion(
            "PyTorch trains both sizes of nanoGPT and GPT-2 small faster than fxf",
            all(behind(row, "without_avx512") for row in DECODERS),
        ),
        Conclusion("and the two translators slower", not any(behind(row, "without_avx512") for row in TRANSLATORS)),
        bench_table("what, without AVX-512", narrow),
    ]


def times_as_fast(kept: Kept, table: str) -> float:
    """Returns how many times as fast as PyTorch's XLA's product of two matrices is."""
    products = kept.bench_row("products", table)
    return products["XLA"] / products["PyTorch"]


def bench_table(what: str, *tables: Row) -> Lines:
    """Returns the rows of `make bench`'s tables that were measured, each from the first table that has it."""
    rows: dict[str, Row] = {}
    for row in (row for bench in tables for row in bench["rows"] if "error" not in row):
        rows.setdefault(row["what"], row)
    cells = [bench_cells(row) for row in rows.values()]
    return table([what, "fxf", "beside it, and how many times as good fxf is"], cells, "lr")


def bench_cells(row: Row) -> list[str]:
    """Returns a row of the benchmark: the median of the first way, fxf's, then each other with the ratio to it."""
    (way, ours), *others = row["figures"].items()
    first = ours["median"]
    ratios = [each["median"] / first if row["unit"] in LESS_IS_BETTER else first / each["median"] for _, each in others]
    told = [f"{name} {shown(each['median'])} ({ratio:.2f})" for (name, each), ratio in zip(others, ratios, strict=True)]
    note = f" ({row['note']})" if row["note"] else ""
    of = "" if way == "fxf" else f" ({way})"
    return [f"{row['what']}, {row['unit']}{note}", shown(first) + of, ", ".join(told)]


def shown(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def faults(kept: Kept) -> list[Piece]:
    met = kept.measured("faults")
    return [table([*met[0]], [[str(cell) for cell in row.values()] for row in met], "lrrrr")]


def compiled(kept: Kept) -> list[Piece]:
    turns = sorted(turns_of(kept, f"before/{name}") for name in BEFORE)
    needed = float(re.findall(r"HLO temporaries \((\S+)G\)", kept.output("gpt2_v5e-2x4.txt"))[0])
    rows = [
        [f"`{name}.txt`", f"{program.what}, {program.where}", *costs(program)]
        for name in COMPILED
        for program in kept.programs(f"{name}.txt")
    ]
    return [
        table(["file", "program", "bytes a device", "traffic", "roofline, bound by", "share of peak"], rows, "llrrrr"),
        before(kept),
        with_flash(kept),
        with_flags(kept),
        *beside_maxtext(kept),
        f"it needs {figure(needed, '.1f')} GB",
        f"({figure(turns[0])} to {figure(turns[-1], ',')} iterations of its loop)",
        f"Now the loop has {figure(turns_of(kept, COMPILED[0]))} iterations",
        f"flash attention, and compiled in {figure(seconds_of(kept, COMPILED[-1]) / 60, '.0f')} minutes",
    ]


def turns_of(kept: Kept, name: str) -> int:
    """Returns how many turns the loop of the loss has."""
    return int(re.findall(r"^    _forward .* x (\d+)  ", kept.output(f"{name}.txt"), re.MULTILINE)[0])


def seconds_of(kept: Kept, name: str) -> float:
    """Returns the time that compiling took."""
    return float(re.findall(r"^# .*; (\d+) s$", kept.output(f"{name}.txt"), re.MULTILINE)[0])


def costs(program: Program) -> list[str]:
    if not program.memory:
        return ["does not fit", "", "", ""]
    roofline = f"{program.roofline}, {program.bound}"
    return [program.memory, program.traffic, roofline, f"{program.share} %"]


def training(kept: Kept, name: str) -> Program:
    return kept.programs(f"{name}.txt")[0]


def before(kept: Kept) -> Lines:
    rows = []
    for name in BEFORE:
        old, new = training(kept, f"before/{name}"), training(kept, name)
        pairs = ((old.traffic, new.traffic), (old.roofline, new.roofline), (f"{old.share} %", f"{new.share} %"))
        rows.append([f"`{name}.txt`", *(cell for pair in pairs for cell in pair)])
    header = ["traffic before", "traffic", "roofline before", "roofline", "share of peak before", "share of peak"]
    return table(["file", *header], rows, "lrrrrrr")


def with_flash(kept: Kept) -> Lines:
    rows = []
    for where, names in FLASH.items():
        one, other = (training(kept, name) for name in names)
        figures = ("memory", "traffic", "roofline", "share")
        pairs = [(getattr(one, each), getattr(other, each)) for each in figures]
        units = ["", "", "", " %"]
        cells = [f"{_number(a)} → {b}{unit}" for (a, b), unit in zip(pairs, units, strict=True)]
        rows.append([where, *(f"`{name}.txt`" for name in names), *cells])
    header = ["topology", "file with XLA's attention", "with flash attention", "bytes a device", "traffic", "roofline"]
    return table([*header, "share of peak"], rows, "lllrrrr")


def beside_maxtext(kept: Kept) -> list[Piece]:
    """Returns the table of fxf's and MaxText's steps, and what follows from it."""
    found = kept.maxtext
    cells, ratios = [], []
    for row in found["rows"]:
        ours, theirs = row["fxf"], row["MaxText"]
        pairs = [(ours[name] / unit, theirs[name] / unit) for name, unit in MEASURES.values()]
        ratios += [a / b for a, b in pairs]
        shown_pairs = [f"{a:.3g} / {b:.3g} ({a / b:.2f})" for a, b in pairs]
        cells.append([f"{row['kept']} (`{row['remat']}`, `{row['remat_policy']}`)", *shown_pairs])
    return [
        table(["kept of the forward pass", *MEASURES], cells, "lrrrr"),
        f"MaxText {figure(found['versions']['maxtext'])}, JAX {figure(found['versions']['jax'])} and libtpu "
        f"{figure(found['versions']['libtpu'])}",
        Conclusion(f"Here fxf's figures are at most {figure(max(ratios), '.2f')} of MaxText's", max(ratios) <= 1.05),
    ]


def with_flags(kept: Kept) -> Lines:
    rows = []
    for name in FLAGS:
        files = (name, f"{name}_sparse_cores")
        pairs = [
            [shown(_sent(kept, each)) for each in files],
            [shown(_sent(kept, each, "all-reduce")) for each in files],
            [shown(_time_of_links(kept, each)) for each in files],
        ]
        cells = [f"{a} → {b} {unit}" for (a, b), unit in zip(pairs, ("GB", "GB", "ms"), strict=True)]
        rows.append([*(f"`{each}.txt`" for each in files), *cells, training(kept, files[1]).roofline])
    header = ["sent by a device", "of that by sums", "time of the links", "roofline"]
    return table(["file", "with the flags", *header], rows, "llrrrr")


def _sent(kept: Kept, name: str, kind: str = r"\S+") -> float:
    """Returns the gigabytes that a device sends in a step, or in its collectives of a kind."""
    units = {"TB": 1000.0, "GB": 1.0, "MB": 1e-3, "kB": 1e-6, "B": 1e-9}
    found = re.findall(rf"^    [\d,]+ {kind}  .*  (\S+) (\S+) sent", kept.output(f"{name}.txt"), re.MULTILINE)
    return sum(float(amount) * units[unit] for amount, unit in found)


def _time_of_links(kept: Kept, name: str) -> float:
    """Returns the milliseconds that the links between chips take at their peak."""
    return float(re.findall(r"ICI (\S+) ms", kept.output(f"{name}.txt"))[0])


def _number(text: str) -> str:
    return text.split(" ")[0]


def page(kept: Kept) -> Page:
    pieces = [*long_runs(kept), *beside(kept), *faults(kept), *compiled(kept)]
    return Page(
        pieces,
        {
            CITED: [
                "Published results are 41.02 for English–German with 2,568,192 parameters",
                "8,000 updates of about 8,192 tokens",
                "and 36.52 for German–English, greedy, with 9 million",
            ],
            "a name of the data": ["test (Multi30k: 2016)", "Tatoeba (2019)", "test set of 2016"],
            "what was measured": ["In the rows of 64 sentences every answer has 24 tokens", "the 1,000 sentences of"],
            "a size of what was compiled": [
                "GPT-2 has 124M weights, bfloat16, 32 sequences of 1,024 tokens a device, and its vocabulary of 50,257",
                "The 7B and 70B models",
                "the 70B model",
                "sequences of 4,096 tokens",
            ],
        },
    )


PAGES: dict[str, Callable[[Kept], Page]] = {"experiments/results/README.md": page}
