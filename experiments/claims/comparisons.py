"""Claims of the studies that compare kinds of a part of a model, each kind at its best learning rate."""

from collections.abc import Callable

from experiments.claims.claim import Single
from experiments.kept import Kept
from experiments.seeds.claims import at_least, at_most
from experiments.studies.blocks import result as blocks
from experiments.studies.characters import result as characters
from experiments.studies.expressive import result as expressive
from experiments.studies.positions import result as positions

STUDIES, SWEEP = "experiments/studies", "fxf sweep --config=studies/"


def of_expressive(kept: Kept) -> expressive.Cells:
    return expressive.cells(kept.table("expressive"))


EXPRESSIVE = (
    Single(
        name="gros",
        says="expressive attention solves delayed sums that softmax attention does not, each at its best rate",
        source="Gros 2024, arXiv 2407.18601",
        what="combinations of base and positions, of 9, that it alone solves with both seeds",
        command=f"{SWEEP}expressive",
        accepts=at_least(1),
        figures=lambda kept: [len(expressive.alone(of_expressive(kept), "expressive"))],
        folder=f"{STUDIES}/expressive",
    ),
    Single(
        name="gros_margin",
        says="expressive attention does at least as well as softmax attention on delayed sums",
        source="Gros 2024, arXiv 2407.18601",
        what="lowest margin of exact match at the best of three rates, of 9 combinations of base and positions",
        command=f"{SWEEP}expressive",
        accepts=at_least(-expressive.ALIKE),
        figures=lambda kept: [min(expressive.margins(of_expressive(kept)).values())],
        folder=f"{STUDIES}/expressive",
    ),
    Single(
        name="parity",
        says="a model that fails on delayed sums of an even base has mostly learned their parity alone",
        source="ours",
        what="share of the runs below 0.5 whose training loss is within 0.05 of ln (base / 2)",
        command=f"{SWEEP}expressive",
        accepts=at_least(0.5),
        figures=lambda kept: [
            expressive.stuck(kept.table("expressive"))[1] / expressive.stuck(kept.table("expressive"))[0]
        ],
        folder=f"{STUDIES}/expressive",
    ),
)


def of_blocks(kept: Kept) -> blocks.Cells:
    return blocks.cells(kept.table("blocks"))


BLOCKS = (
    Single(
        name="deep_post_norm",
        says="twelve post-norm blocks need a warm-up, each at the best of three rates",
        source="Xiong et al. 2020, arXiv 2002.04745",
        what="exact match of reversal with a warm-up less that without",
        command=f"{SWEEP}blocks",
        accepts=at_least(blocks.NEEDED),
        figures=lambda kept: [blocks.gain(of_blocks(kept), 12, "post_norm")],
        folder=f"{STUDIES}/blocks",
    ),
    Single(
        name="deep_pre_norm",
        says="twelve pre-norm blocks need no warm-up, each at the best of three rates",
        source="Xiong et al. 2020, arXiv 2002.04745",
        what="exact match of reversal with a warm-up less that without",
        command=f"{SWEEP}blocks",
        accepts=at_most(blocks.ALIKE),
        figures=lambda kept: [blocks.gain(of_blocks(kept), 12, "pre_norm")],
        folder=f"{STUDIES}/blocks",
    ),
    Single(
        name="idea",
        says="the “inspirational idea” is a block that learns as the definition's does, each at its best rate",
        source="seed 004",
        what="exact match of the idea less that of the definition, the lower of 2 and 12 blocks",
        command=f"{SWEEP}blocks",
        accepts=at_least(-blocks.BEHIND),
        figures=lambda kept: [min(blocks.idea_less_definition(of_blocks(kept)))],
        folder=f"{STUDIES}/blocks",
    ),
)


def lead(kind: str) -> Callable[[Kept], list[float]]:
    """Returns the figures of a claim: by how many bits a kind is better than the best that is added."""
    return lambda kept: [characters.lead(characters.cells(kept.table("characters")), kind)]


CHARACTERS = tuple(
    Single(
        name=f"characters_{kind}",
        says=f"{name} positions are better for characters than all that are added to embeddings, at their best rates",
        source=source,
        what="bits per character of the best added kind less those of it",
        command=f"{SWEEP}characters --config.data.path=input.txt",
        accepts=at_least(characters.APART),
        figures=lead(kind),
        folder=f"{STUDIES}/characters",
    )
    for kind, name, source in (
        ("rotary", "rotary", "Su et al. 2021, arXiv 2104.09864"),
        ("alibi", "ALiBi", "Press et al. 2022, arXiv 2108.12409"),
    )
)


def of_positions(kept: Kept) -> dict[positions.Key, positions.Cell]:
    return positions.cells(kept.table("positions"))


POSITIONS = (
    Single(
        name="kazemnejad",
        says="no usual encoding that has learned the training lengths extrapolates to twice them; here 10 and 20",
        source="Kazemnejad et al. 2023, arXiv 2305.19466",
        what="largest exact match at length 20, mean of two seeds, of the kinds with at least 0.9 in training lengths",
        command=f"{SWEEP}positions",
        accepts=at_most(positions.NONE),
        figures=lambda kept: [positions.farthest(positions.learned(positions.plain(of_positions(kept))))],
        folder=f"{STUDIES}/positions",
    ),
    Single(
        name="ruoss",
        says="random positions gain 12 points of length generalization on average",
        source="Ruoss et al. 2023, arXiv 2305.16843",
        what="gain of exact match at length 15 after at most 10, mean over two kinds",
        command=f"{SWEEP}positions",
        accepts=at_least(positions.GAIN),
        figures=lambda kept: positions.gains(of_positions(kept), positions.drawn(of_positions(kept))),
        folder=f"{STUDIES}/positions",
        why=f"undecided unless both kinds have at least {positions.LEARNED} in training lengths",
        decided=lambda kept: len(positions.learned(positions.drawn(of_positions(kept)))) == 2,
    ),
    Single(
        name="stretched",
        says="positions stretched in training carry reversal to 1.5 times the length further than the same as they are",
        source="ours",
        what="gain of exact match at length 15 after at most 10, the lower of two kinds",
        command=f"{SWEEP}positions",
        accepts=at_least(positions.MORE),
        figures=lambda kept: [min(positions.gains(of_positions(kept), positions.stretched(of_positions(kept))))],
        folder=f"{STUDIES}/positions",
        why=f"undecided unless both kinds have at least {positions.LEARNED} in training lengths",
        decided=lambda kept: len(positions.learned(positions.stretched(of_positions(kept)))) == 2,
    ),
)

CLAIMS = (
    *EXPRESSIVE,
    *BLOCKS,
    *CHARACTERS,
    *POSITIONS,
)
