"""What races, and the ingredients of `characters:fast`."""

from typing import NamedTuple


class Trial(NamedTuple):
    """A change of `characters:fast`: in words, and the keys of the other config."""

    words: str
    changes: list[str]


ENTRIES = {"characters:nanogpt_cpu": 1.88, "characters:fast": 1.88, "characters:fast_160": 1.60}  # and their targets
# Each ingredient alone is taken back to what nanoGPT has; AdamW with three rates, because its best is another.
TRIALS = {
    **{
        f"adamw_{rate}": Trial(
            f"AdamW with a rate of {rate} for Muon", ["optimizer.name=adamw", f"optimizer.learning_rate={rate}"]
        )
        for rate in ("2e-3", "4e-3", "8e-3")
    },
    "learned": Trial("positions that begin as small random numbers", ["model.positions=learned"]),
    "gelu": Trial("GELU for ReLU", ["model.activation=gelu"]),
    "tied": Trial("one table for embedding and readout", ["model.tied_embeddings=true", "model.init=gpt2"]),
    "no_bos": Trial("windows without `<bos>`", ["task.bos=false"]),
    "final_rate": Trial("a last rate of a tenth of the highest", ["optimizer.final_learning_rate=1.5e-3"]),
    "batch_12": Trial("half the batch, and twice the steps", ["train.batch_size=12", "train.steps=700"]),
    "four_layers": Trial("four layers, of twice the hidden width", ["model.n_layers=4", "model.d_ff=512"]),
}
