"""Shows arrays inside a trained model that reads a text: attention, activations, logit lens.

fxf probe --workdir=runs/reversal "3 1 5"
fxf probe --workdir=runs/reversal --name=block_1/attention/weights --head=0 "3 1 5"
fxf probe --workdir=runs/reversal --lens "3 1 5"

The model reads a prompt and its own answer, or a second argument in place of the answer. Without --name, it lists the
names of the arrays.
"""

from argparse import Namespace

from fxf.base.errors import UserError
from fxf.verbs.flags import Parser, add_run, require_workdir, whole

ARGUMENTS = "a prompt, and the answer to read after it"


def flags(parser: Parser) -> None:
    add_run(parser)
    parser.flag("name", doc="array to show; by default all are listed")
    parser.flag("head", whole(0), doc="head of attention weights to show; by default all")
    parser.switch("lens", "show the most probable next token after each block")


def main(args: Namespace) -> None:
    from fxf.reports.tables import aligned
    from fxf.runs import probe, run

    texts = args.arguments
    if not 1 <= len(texts) <= 2:
        raise UserError(f"expected a prompt and at most one answer, got {len(texts)} arguments")
    if args.head is not None and not args.name:
        raise UserError("--head: only --name reads it")
    if args.lens and args.name:
        raise UserError("--lens: shows the tokens after all blocks; leave out --name")
    experiment, _, params = run.load(require_workdir(args), args.step)
    reading = probe.read(experiment, params, *texts)
    if args.lens or not args.name:
        arrays = [(name, probe.shape_text(value)) for name, value in reading.arrays.items()]
        print("\n".join(aligned(reading.lens() if args.lens else arrays)))
    else:
        print(probe.as_text(reading.matrices(args.name, args.head), args.name))
