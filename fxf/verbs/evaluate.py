"""Scores a trained run with the checkpoint that its result used, or that of --step.

fxf evaluate --workdir=runs/reversal
fxf evaluate --workdir=runs/translation --beam_width=5
fxf evaluate --workdir=runs/translation --pairs=pairs.tsv --output=runs/translation/answers
"""

from argparse import Namespace

from fxf.verbs.flags import Parser, add_decode, add_run, decode_of, print_figures, require_workdir


def flags(parser: Parser) -> None:
    add_run(parser)
    add_decode(parser)
    parser.flag("pairs", doc="file to score instead: on each line a prompt, a tab and a right answer")
    parser.flag("output", doc="folder for sources.txt, hypotheses.txt and references.txt")
    parser.switch("json", "print the figures as one JSON object, and nothing else")


def main(args: Namespace) -> None:
    from fxf.runs import run

    options = args.step, decode_of(args), args.pairs, args.output
    print_figures(run.evaluate(require_workdir(args), *options), args.json)
