"""The systems of the five seeds by number, and the statements that contradict each other."""

from experiments.seeds import contradictions, seed_000, seed_001, seed_002, seed_003, seed_004
from experiments.seeds.rules import Seed

SEEDS = {
    "004": Seed(seed_004.CLAIMS, seed_004.look),
    "003": Seed(seed_003.CLAIMS, seed_003.look),
    "000": Seed(seed_000.CLAIMS, seed_000.look),
    "002": Seed(seed_002.CLAIMS, seed_002.look),
    "001": Seed(seed_001.CLAIMS, seed_001.look),
    "contradictions": Seed(contradictions.CLAIMS, contradictions.look),
}
