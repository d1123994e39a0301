"""Lists the config keys, all or those named, as Markdown tables: default, values, meaning.

fxf keys
fxf keys model optimizer
fxf keys learning_rate
fxf keys train --config=reversal

With --config, only the keys of this config are listed, with its values in place of the defaults.
"""

from argparse import Namespace

from fxf.base.errors import UserError, nearest
from fxf.verbs.flags import Parser, add_config, config_and_origin

ARGUMENTS = "sections and keys; by default all"


def flags(parser: Parser) -> None:
    add_config(parser)


def main(args: Namespace) -> None:
    from fxf.runs import keys

    tables = keys.of_config(config_and_origin(args)[0]) if args.config else keys.sections()
    sections = {*keys.sections()}  # `data` is a section, and also a key of `parallel`
    chosen, known = dict[str, list[keys.Key]](), set[str]()
    for path, rows in tables.items():
        for key in rows:
            names = {path, f"{path}.{key.name}", *({key.name} - sections)}
            known |= names
            if not args.arguments or names & {*args.arguments}:
                chosen.setdefault(path, []).append(key)
    for name in args.arguments:
        if name not in known:
            raise UserError(f"{name}: no section and no key{nearest(name, known)} (here are {', '.join(tables)})")
    print(keys.as_markdown(chosen))
