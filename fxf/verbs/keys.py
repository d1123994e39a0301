"""Lists the config keys of all or of some sections, as Markdown tables: default, values, meaning.

fxf keys
fxf keys model optimizer
fxf keys train --config=reversal

With --config, only the keys of this config are listed, and its values in place of the defaults.
"""

from argparse import Namespace

from fxf.base.errors import UserError, nearest
from fxf.verbs.flags import Parser, add_config, config_and_origin

ARGUMENTS = "sections; by default all"


def flags(parser: Parser) -> None:
    add_config(parser)


def main(args: Namespace) -> None:
    from fxf.runs import keys

    tables = keys.of_config(config_and_origin(args)[0]) if args.config else keys.sections()
    for name in args.arguments:
        if name not in tables:
            raise UserError(f"{name}: no section{nearest(name, tables)} (here are {', '.join(tables)})")
    chosen = {name: tables[name] for name in args.arguments or tables}
    print(keys.as_markdown(chosen))
