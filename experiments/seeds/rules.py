"""Claims of the seeds, and the rules that decide whether fxf's results meet them."""

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

Figure = float | str


class Rule(NamedTuple):
    """A condition on a result: equal to a value, or at least or at most a number."""

    sign: Literal["=", "≥", "≤"]
    value: Figure

    def accepts(self, figure: Figure) -> bool:
        """Returns whether the result meets the condition. A non-finite number never does."""
        if self.sign == "=":
            return figure == self.value
        if isinstance(figure, str) or isinstance(self.value, str) or not math.isfinite(figure):
            return False
        return figure >= self.value if self.sign == "≥" else figure <= self.value

    def __str__(self) -> str:
        return f"{self.sign} {shown(self.value)}"


def equal(value: Figure) -> Rule:
    return Rule("=", value)


def at_least(value: float) -> Rule:
    return Rule("≥", value)


def at_most(value: float) -> Rule:
    return Rule("≤", value)


ZERO = at_most(1e-12)  # up to float64 rounding


class Claim(NamedTuple):
    """A statement of a seed that a result of fxf must meet.

    Attributes:
      name: the name of the result.
      section: the heading in the seed.
      what: what is measured.
      says: what the seed says.
      rule: the condition on the result.
      why: why the rule is not the seed's own number, if the seed is wrong or gives none.
    """

    name: str
    section: str
    what: str
    says: str
    rule: Rule
    why: str = ""


class Seed(NamedTuple):
    """The claims of a seed, and `look(folder)`, which trains and measures, and returns {"figures": by name}."""

    claims: Sequence[Claim]
    look: Callable[[Path], dict[str, Any]]

    def rows(self, figures: Mapping[str, Figure]) -> list[dict[str, str]]:
        """Returns a row for every claim; every result belongs to one claim.

        Raises:
          ValueError: a claim has no result, or a result no claim.
        """
        if odd := {claim.name for claim in self.claims} ^ set(figures):
            raise ValueError(f"figures and claims differ in {', '.join(sorted(odd))}")
        return [
            {
                **{"verdict": "holds" if claim.rule.accepts(figures[claim.name]) else "does not hold"},
                **{"what": claim.what, "the seed says": claim.says, "section": claim.section},
                **{"fxf gives": shown(figures[claim.name])},
                "accepted if": f"{claim.rule} · {claim.why}" if claim.why else str(claim.rule),
            }
            for claim in self.claims
        ]


def shown(figure: Figure) -> str:
    """Returns a result as text: integers in full, other numbers with four digits."""
    if isinstance(figure, str):
        return figure
    return f"{figure:,.0f}" if float(figure).is_integer() and abs(figure) < 1e15 else f"{figure:.4g}"
