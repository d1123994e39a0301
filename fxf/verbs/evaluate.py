"""Scores a trained run with the checkpoint that its result used, or that of --step.

fxf evaluate --workdir=runs/reversal
fxf evaluate --workdir=runs/translation --beam_width=5
fxf evaluate --workdir=runs/characters --text=book.txt --against=runs/fast
fxf evaluate --workdir=runs/translation --pairs=pairs.tsv --output=runs/translation/answers

With --text a language model scores that file: loss in nats per token, perplexity, bits per character, and bits per byte
with the 0.95 interval of a bootstrap over lines. --against compares the bits per byte with those of another run on the
same lines, even if the runs have different tokenizers. It prints the difference, its interval and a verdict: better,
worse, no difference found, or not comparable if one run reads less of the text, because of its vocabulary, lower case
or a tokenizer of words.
"""

from argparse import Namespace

from fxf.base.errors import UserError
from fxf.verbs.flags import Parser, add_decode, add_run, decode_of, place, print_figures, require_workdir


def flags(parser: Parser) -> None:
    add_run(parser)
    add_decode(parser)
    parser.flag("pairs", place, doc="file to score instead; each line is a prompt, a tab and a right answer")
    parser.flag("text", place, doc="text file to score instead, with a language model")
    parser.flag("against", doc="folder of another run to compare with on the text")
    parser.flag("output", doc="folder for sources.txt, hypotheses.txt and references.txt")
    parser.switch("json", "print the metrics as one JSON object, and nothing else")


def main(args: Namespace) -> None:
    from fxf.runs import run

    if args.text:
        from fxf.runs.text_scores import text_scores

        decode = decode_of(args)
        weights = decode.pop("weights", None)
        if args.pairs or args.output or decode:
            raise UserError("--text: nothing else is scored or decoded; leave --pairs, --output and decoding out")
        print_figures(text_scores(require_workdir(args), args.text, args.against, args.step, weights), args.json)
        return
    if args.against:
        raise UserError("--against: give the text to compare on by --text")
    print_figures(run.evaluate(require_workdir(args), args.step, decode_of(args), args.pairs, args.output), args.json)
