"""What the overview of the studies says of those that compare kinds, each kind at its best learning rate."""

from experiments.figures.kept import Kept
from experiments.figures.pieces import Conclusion, Piece, figure
from experiments.studies.blocks import result as blocks
from experiments.studies.characters import result as characters
from experiments.studies.expressive import result as expressive


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
        f"With {figure(deep)} blocks, exact match changes by {figure(gains['post_norm'], '.2f')} through a warm-up for "
        f"post-norm blocks and by {figure(gains['pre_norm'], '.2f')} for pre-norm blocks",
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


def overview(kept: Kept) -> list[Piece]:
    """Returns the answers of all these studies."""
    return [*of_expressive(kept), *of_blocks(kept), *of_characters(kept)]
