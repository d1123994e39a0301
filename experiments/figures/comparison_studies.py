"""What the overview of the studies says of those that compare kinds, each kind at its best learning rate."""

from experiments.figures.kept import Kept
from experiments.figures.pieces import Conclusion, Piece, figure
from experiments.studies.blocks import result as blocks
from experiments.studies.characters import result as characters
from experiments.studies.expressive import result as expressive
from experiments.studies.positions import result as positions


def of_expressive(kept: Kept) -> list[Piece]:
    rows = kept.table("expressive")
    found = expressive.cells(rows)
    alone = {kind: len(expressive.alone(found, kind)) for kind in expressive.KINDS}
    n_low, n_parity = expressive.stuck(rows)
    return [
        f"It alone solves {figure(alone['expressive'])} of {figure(len(expressive.margins(found)))} combinations of "
        f"base and positions, softmax attention alone {figure(alone['softmax'])}; "
        f"of {figure(n_low)} runs of even bases that fail, {figure(n_parity)} know the parity alone",
    ]


def of_blocks(kept: Kept) -> list[Piece]:
    found = blocks.cells(kept.table("blocks"))
    deep = blocks.depths(found)[-1]
    gains = {kind: blocks.gain(found, deep, kind) for kind in blocks.KINDS}
    return [
        f"With {figure(deep)} blocks, post-norm ones fail with a warm-up and without, and pre-norm ones gain "
        f"{figure(gains['pre_norm'], '.2f')} of exact match by it",
        Conclusion("post-norm ones fail", not any(blocks.learns(found, deep, "post_norm"))),
    ]


def of_characters(kept: Kept) -> list[Piece]:
    found = characters.cells(kept.table("characters"))
    return [
        Conclusion(
            f"Rotary: {figure(characters.lead(found, 'rotary'), '.3f')} bits per character fewer than the best kind "
            f"that is added to embeddings; ALiBi has {figure(characters.lead(found, 'alibi'), '.3f')} fewer",
            next(iter(found)) == "rotary" and characters.lead(found, "alibi") > 0,
        ),
    ]


def of_positions(kept: Kept) -> list[Piece]:
    found = positions.cells(kept.table("positions"))
    far = positions.farthest(positions.learned(positions.plain(found)))
    random_kinds_that_learned = positions.learned({**positions.drawn(found), **positions.stretched(found)})
    by_range, by_stretch = (positions.gains(found, of(found)) for of in (positions.drawn, positions.stretched))
    return [
        f"The plain kinds that learn it have {figure(far, '.2g')} at twice the length; at one and a half, positions "
        f"from a range gain at most {figure(max(by_range), '.2g')} and stretched ones "
        f"{figure(max(by_stretch), '.2g')}",
        Conclusion("None of these four kinds has learned the training lengths", not random_kinds_that_learned),
    ]


def overview(kept: Kept) -> list[Piece]:
    """Returns the answers of all these studies."""
    return [*of_expressive(kept), *of_blocks(kept), *of_characters(kept), *of_positions(kept)]
