"""Continues prompts with a trained run: one line out for each prompt, in order.

python experiments/generate.py --workdir=runs/reversal "3 1 4 1 5" "9 2 6"
python experiments/generate.py --workdir=runs/reversal < prompts.txt
"""

import sys

from absl import flags

from fxf import cli

WORKDIR = cli.define_workdir()
STEP = flags.DEFINE_integer("step", None, "checkpoint to use")
TEMPERATURE = flags.DEFINE_float("temperature", 0.0, "divides the logits before sampling; 0 is greedy")
TOP_K = flags.DEFINE_integer("top_k", 0, "sample among the k most probable tokens; 0 for all")
TOP_P = flags.DEFINE_float("top_p", 1.0, "sample among the fewest tokens that hold this share of the probability")
MAX_TOKENS = flags.DEFINE_integer("max_tokens", 0, "tokens to generate at most; 0 for as many as positions allow", 0)
SEED = flags.DEFINE_integer("seed", 0, "seed of the sampling", 0, 2**32 - 1)


def main(prompts: list[str]) -> None:
    from fxf import experiment
    from fxf.decoding.sampling import Sampling

    workdir = cli.require_workdir(WORKDIR)
    sampling = Sampling(TEMPERATURE.value, TOP_K.value, TOP_P.value)
    prompts = prompts or [line.rstrip("\n") for line in sys.stdin]
    for line in experiment.generate(
        workdir, prompts, sampling, max_tokens=MAX_TOKENS.value, seed=SEED.value, step=STEP.value
    ):
        print(line)


if __name__ == "__main__":
    cli.run(main)
