"""The telling claims of the seeds, and their errors with the figure that proves each; `make seeds` has them all."""

from experiments.claims.claim import Single
from experiments.seeds.claims import Claim
from experiments.seeds.pages import SEEDS

COMMAND = "python -m experiments.seeds --only="
TELLING = {
    "004": ("right_0", "right_1", "right_2", "notebook", "future", "by_rows"),
    "003": ("right", "loss"),
    "000": ("bleu", "distinct"),
    "002": ("map", "learned_softmax", "learned_expressive", "continued", "rope"),
    "001": ("equivariance", "positions_break_it", "new_word"),
    "contradictions": ("period_2", "period_8", "overflow", "slice", "product_mask", "linear_map", "table"),
}


def _single(seed: str, claim: Claim) -> Single:
    says = f"{claim.says}; {claim.why}" if claim.why else claim.says
    source = f"{claim.section}" if seed == "contradictions" else f"seed {seed}, {claim.section}"
    return Single(
        f"{seed}_{claim.name}",
        says,
        source,
        claim.what,
        f"{COMMAND}{seed}",
        claim.rule,
        lambda results: [results[seed]["figures"][claim.name]],
    )


CLAIMS = tuple(
    _single(seed, next(claim for claim in SEEDS[seed].claims if claim.name == name))
    for seed, names in TELLING.items()
    for name in names
)
