"""A trial at several sizes of the model: does the effect last?"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fxf.base.errors import UserError
from fxf.sweeps.plan import Arm, Budget, Rules, changed, make_plan
from fxf.sweeps.trial import Told, carry_out
from fxf.sweeps.verdict import Verdict, write_page

FACTORS = {"half": 0.5, "as given": 1.0, "double": 2.0}
SCALED = ("n_layers", "d_model", "d_ff")  # keys of the model; heads stay as many


def try_scales(
    first: Arm, other: Arm | None, workdir: Path, rules: Rules, budget: Budget = Budget(), told: Told = lambda _: None
) -> dict[str, Verdict]:
    """Returns the verdict of a trial at each size, by the size's name; the page shows them one below the other.

    Raises:
      UserError: as `make_plan` and `carry_out`; the plans of all sizes are made before the first run.
    """
    plans = {}
    for name, factor in FACTORS.items():
        folder = workdir / name.replace(" ", "_")
        try:
            arms = scaled(first, factor), other and scaled(other, factor)
            plans[name] = folder, make_plan(*arms, folder, rules)
        except UserError as error:
            raise UserError(f"--scales: {name}: {error}") from None
    found = {}
    for name, (folder, plan) in plans.items():
        found[name] = carry_out(plan, folder, budget, lambda text, name=name: told(f"{name}: {text}"))  # type: ignore[misc]
        write_page(f"{workdir.name} at {len(FACTORS)} sizes", {n: (v, plans[n][0]) for n, v in found.items()}, workdir)
    return found


def scaled(arm: Arm, factor: float) -> Arm:
    """Returns the arm with a model of another depth and width."""
    model: Mapping[str, Any] = arm.config["model"]
    sizes = {f"model.{key}": max(1, int(model[key] * factor)) for key in SCALED if model.get(key)}
    return changed(arm, sizes) if factor != 1 else arm
