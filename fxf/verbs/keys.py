"""Lists the config keys of all or of some sections: default, values, meaning.

fxf keys
fxf keys model optimizer
fxf keys train --config=reversal

With --config, only the keys of this config are listed, and its values in place of the defaults.
"""

from absl import flags

from fxf.errors import UserError
from fxf.runs import cli

CONFIG = cli.define_config()
MARKDOWN = flags.DEFINE_boolean("markdown", False, "print Markdown tables")


def main(names: list[str]) -> None:
    from fxf.reports import keys

    tables = keys.sections(names)
    if CONFIG.value is not None:
        tables = keys.of_config(tables, cli.config_and_origin(CONFIG)[0])
        for name in names:
            if name not in tables:
                raise UserError(f"{name}: no section of this config")
    print((keys.as_markdown if MARKDOWN.value else keys.as_text)(tables))
