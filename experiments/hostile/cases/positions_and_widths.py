"""Positions, mirrored tasks and widths."""

from experiments.hostile.case import Case, accepted, case, refused

# fmt: off

EVEN = "--config.model.d_model=8"  # so that heads have an even width
WALKS, TURNS = (f"{EVEN} --config.model.positions={kind}" for kind in ("walks", "turns"))
MIRRORED = "--config.task.mirrored=true"
BEAM = "--config.decode.beam_width=3"
TEXTS = "--config.data.format=files --config.data.path=parallel --config.data.validation=0.2 --config.data.test=0.2"


def model(name: str, flags: str, *parts: str, run: str = "reversal") -> Case:
    return case(name, f"train @{run} --workdir=new {flags}", refused(*parts))


def trains(name: str, flags: str, run: str = "reversal", said: str = "seconds") -> Case:
    return case(name, f"train @{run} --workdir=new {flags}", accepted(said))


CASES = [
    model("mirrored, but nothing reads positions", f"{MIRRORED} --config.model.positions=none", "task.mirrored"),
    model("mirrored, but walks make positions", f"{MIRRORED} {WALKS}", "task.mirrored", "walks"),
    model("mirrored, but turns make positions", f"{MIRRORED} {TURNS}", "task.mirrored", "turns"),
    model("mirrored, but training draws", f"{MIRRORED} --config.model.position_range=20", "task.mirrored"),
    model("mirrored, of another task", MIRRORED, "task.mirrored", run="series"),
    trains("mirrored, with a window alone", f"{MIRRORED} --config.model.positions=none --config.model.window=2"),
    trains("mirrored, stretched, with a beam", f"{MIRRORED} {EVEN} --config.model.positions=rotary {BEAM}"
           " --config.model.position_stretch=3"),
    trains("mirrored, in a table, with a beam", f"{MIRRORED} --config.model.positions=learned {BEAM}"),
    *(model(f"{n} walks", f"{WALKS} --config.model.n_walks={n}", "n_walks") for n in ("0", "-1", "1.5", "nan", "1e9")),
    trains("more walks than there can be", f"{WALKS} --config.model.n_walks=2000000000 {BEAM}"),
    trains("one walk, for all heads", f"{WALKS} --config.model.n_walks=1 --config.model.window=2 {BEAM}"),
    model("walks without their kind", "--config.model.n_walks=7", "n_walks"),
    model("walks of turns", f"{TURNS} --config.model.n_walks=7", "n_walks"),
    model("walks, heads of odd width", "--config.model.positions=walks", "even"),
    model("walks, grouped heads", f"{WALKS} --config.model.n_kv_heads=1", "n_kv_heads"),
    model("walks in a range", f"{WALKS} --config.model.position_range=99", "position_range"),
    model("turns, stretched", f"{TURNS} --config.model.position_stretch=2", "position_stretch"),
    model("walks, with a gap", f"{WALKS} --config.model.position_gap=2", "position_gap"),
    model("walks of linear attention", f"{WALKS} --config.model.attention=linear", "attention|positions"),
    model("walks of flash", f"{WALKS} --config.model.attention_implementation=flash --config.model.window=2", "flash"),
    model("turns that settle before the start", f"{TURNS} --config.model.turns_settle_at=-1", "turns_settle_at"),
    model("turns that settle without turns", "--config.model.turns_settle_at=3", "turns_settle_at"),
    model("walks in documents", f"{WALKS} {TEXTS}", "task.document_mask", run="characters"),
    model("turns in documents", f"{TURNS} {TEXTS}", "task.document_mask", run="characters"),
    trains("walks over documents", f"{WALKS} {TEXTS} --config.task.document_mask=false", "characters"),
    trains("walks of an encoder and a decoder", f"{WALKS} {BEAM} --config.model.window=3", "six"),
    trains("turns of an encoder and a decoder", f"{TURNS} {BEAM}", "six"),
    trains("walks of a model of blanks", WALKS, "masking"),
    model("positions of a bilayer", "--config.model.positions=walks", "model.positions", run="primer"),
    model("a base without a width of heads", f"{EVEN} --config.model.base_width=4", "base_width", "head_dim"),
    *(
        model(f"a base of {n}", f"{EVEN} --config.model.head_dim=4 --config.model.base_width={n}", "base_width|d_ff")
        for n in ("-1", "3", "0.5", "nan", "99999999999")
    ),
    model("a base of a model without", "--config.model.base_width=4", "base_width", run="map"),
    *(
        model(
            f"a base with {name}",
            f"{EVEN} --config.model.d_ff=8 --config.model.head_dim=4 --config.model.base_width=4"
            f" --config.optimizer.name={name}",
            "optimizer.",
        )
        for name in ("sgd", "lamb", "adafactor")
    ),
    trains(
        "a base wider than the model",
        f"{EVEN} --config.model.d_ff=8 --config.model.head_dim=4 --config.model.base_width=16",
    ),
]
