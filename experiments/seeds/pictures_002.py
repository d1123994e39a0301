"""The pictures of seed 002: a boolean map, three kinds of attention, and the character model."""

import jax
import numpy as np

from experiments.seeds.trained import Part, Trained, heat_map, maps, table, text
from fxf.reports import probe


def boolean_table(found: Trained) -> Part:
    """Returns the map with the most even targets as the seed prints it: the activities of each token."""
    mappings = found.task.mappings
    outputs_BTD = np.asarray(jax.jit(found.run.model.apply)(found.run.params, mappings))
    number = np.abs(mappings["targets"].sum((1, 2))).argmin()
    outputs = outputs_BTD[number]
    cells = []
    for i in range(outputs.shape[1]):
        for name, values in (
            ("input", mappings["inputs"][number]),
            ("target", mappings["targets"][number]),
            ("output", outputs),
        ):
            cells.append([f"{name} x{i + 1}", *(f"{value:.4f}" for value in values[:, i])])
    return table(
        "A boolean map", ["", *(f"token {t + 1}" for t in range(len(outputs)))], cells, "True is 0.9, false −0.9."
    )


def kinds(runs: dict[str, Trained]) -> Part:
    """Returns the weights of the first head of each kind of attention, while it reads one series."""
    pictures = []
    for kind, found in runs.items():
        batch = found.task.to_batch("3 4", "7 1 8 9 7 6 3")
        shown = probe.matrices(found.run.experiment, found.intermediates(batch), "block_0/attention/weights", batch)
        title, labels = f"{kind}: {found.result['exact_match']:.1%} right", (shown.row_labels, shown.column_labels)
        pictures.append(heat_map(title, 100 * shown.values[0], *labels, ("query", "key"), " %"))
    return maps("Softmax, expressive and linear attention", *pictures, text="The first of eight heads.")


def letters(found: Trained, first: list[int]) -> list[Part]:
    """Returns the text that the character model writes, and its attention matrix as numbers and as a picture."""
    prompt = found.task.tokenizer.decode(first)
    (answer,) = found.run.generate([prompt], max_tokens=80)
    batch = found.task.to_batch(prompt, "")
    shown = probe.matrices(found.run.experiment, found.intermediates(batch), "block_0/weights", batch)
    labels = [probe.visible(label) for label in shown.row_labels]
    picture = heat_map("attention of the only head", 100 * shown.values[0], labels, labels, ("query", "key"), " %")
    visible = shown._replace(row_labels=labels, column_labels=labels)
    return [
        text("A character model: 16 letters, and 80 that it writes", answer),
        maps("Its attention matrix", picture, text="Only the newest letter, the last row, counts in training."),
        text("The same in percent, as the seed prints it", probe.as_text(visible, "")),
    ]
