"""The telling claims of the seeds, and their errors with the figure that proves each; `make seeds` has them all."""

from experiments.claims.claim import Single
from experiments.seeds.claims import Claim
from experiments.seeds.pages import SEEDS
from experiments.seeds.statements import FOUND, Contradiction

COMMAND = "python -m experiments.seeds --only="
TELLING = {
    "004": ("right_0", "right_1", "right_2", "notebook", "future", "by_rows"),
    "003": ("right", "loss"),
    "000": ("bleu", "distinct"),
    "002": ("map", "learned_softmax", "learned_expressive", "continued", "rope"),
    "001": ("equivariance", "positions_break_it", "new_word"),
}
ERRORS = ("period_2", "period_8", "overflow", "slice", "product_mask", "linear_map", "table", "future")


def _claim(seed: str, claim: Claim) -> Single:
    source = f"seed {seed}, {claim.section}"
    return _single(seed, claim.name, f"{claim.what}: {claim.says}", source, claim)


def _error(found: Contradiction) -> Single:
    (claim,) = [claim for claim in SEEDS["contradictions"].claims if claim.name == found.name]
    says = f"Of “{found.one}” and “{found.other}” fxf follows: {found.fxf}"
    return _single("contradictions", found.name, says, f"seed {found.seed}, {found.section}", claim)


def _single(job: str, name: str, says: str, source: str, claim: Claim) -> Single:
    return Single(
        f"{job}_{name}",
        says,
        source,
        claim.what,
        f"{COMMAND}{job}",
        claim.rule,
        lambda results: [results[job]["figures"][name]],
        why=claim.why,
    )


CLAIMS = tuple(
    _claim(seed, next(claim for claim in SEEDS[seed].claims if claim.name == name))
    for seed, names in TELLING.items()
    for name in names
)
CONTRADICTIONS = tuple(_error(found) for found in FOUND if found.name in ERRORS)
