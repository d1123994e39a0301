"""Shared parts of the verbs: flags, the config that they name, reading prompts and printing metrics.

exit codes:
  0    done
  1    a run of a sweep has no result; or a fault in the code, with a traceback
  2    the input is wrong, the machine lacks something, or the loss is not finite; one line says which
  75   stopped by SIGTERM or SIGHUP, or another process of the run was lost; the same command resumes
  130  stopped by Ctrl-C; the same command resumes
  141  the reader of the output is gone
"""

import argparse
import functools
import os
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

from fxf.base import status
from fxf.base.config import defaults, fields_of
from fxf.base.devices import start_jax
from fxf.base.errors import UserError, also_called, did_you_mean, nearest, one_line
from fxf.base.files import new_folder, read_file, to_json

CONFIG_HELP = "config file, or name of one of fxf's configs, and after a colon its argument; the file runs as code"

CHANGE = "--config.="  # --config.KEY=VALUE becomes --config.=KEY=VALUE, which is a flag to argparse
# The start of a command that runs this fxf; -P keeps Python from importing a copy in the working directory.
THIS_FXF = (sys.executable, "-P", "-m", "fxf")
EXITS = str(__doc__).partition("\n\n")[2]


class Parser(argparse.ArgumentParser):
    """A parser of one verb's flags, whose errors are UserErrors in the style of those of config keys."""

    def __init__(self, name: str, module: Any) -> None:
        """Makes the parser of a module. Its docstring is the help; `ARGUMENTS` describes the arguments, if any."""
        form = argparse.RawDescriptionHelpFormatter
        super().__init__(prog=name, description=module.__doc__, epilog=EXITS, formatter_class=form, allow_abbrev=False)
        self.arguments = getattr(module, "ARGUMENTS", "")
        if self.arguments:
            self.add_argument("arguments", nargs="*", help=self.arguments)
        module.flags(self)

    def flag(
        self, name: str, kind: Callable[[str], Any] = str, default: Any = None, doc: str = "", **options: Any
    ) -> None:
        """Adds a flag with a value of type `kind`, such as `int` or `whole(1)`."""
        text = doc.replace("%", "%%")
        self.add_argument(f"--{name}", type=kind, default=default, help=text, metavar="VALUE", **options)

    def switch(self, name: str, doc: str) -> None:
        self.add_argument(f"--{name}", action="store_true", help=doc)

    def parse(self, argv: Sequence[str]) -> argparse.Namespace:
        """Returns the values of the flags, `arguments`, and `overrides`: the keys with the text of their values.

        Raises:
          UserError: a flag is unknown or without a value, or a value is wrong, or no text.
        """
        if word := next(filter(re.compile("[\ud800-\udfff]").search, argv), ""):  # bytes that Python could not decode
            raise UserError(f"{word}: has bytes that are not {sys.getfilesystemencoding()}, the encoding here")
        end = argv.index("--") if "--" in argv else len(argv)
        words = [re.sub(r"^--config\.(?=.)", CHANGE, word) for word in argv[:end]]
        after_end = list(argv[end + 1 :])  # arguments that argparse could mistake for flags
        for word in words:  # argparse would take unknown flags with spaces for arguments
            name, equals, value = word.partition("=")
            if name not in self._option_string_actions and re.match(r"--[a-zA-Z_]", name):
                raise UserError(self._unknown(word.replace(CHANGE, "--config."), argv))
            if name in self._option_string_actions and equals and not value:
                raise UserError(f"{name}: expected a value, got ''")
        args, unknown = self.parse_known_intermixed_args(words)
        if unknown := unknown or ([] if self.arguments else after_end):
            raise UserError(self._unknown(unknown[0], argv))
        changes = [text.partition("=") for text in getattr(args, "overrides", [])]
        args.overrides = [(key, value if equals else None) for key, equals, value in changes]
        args.arguments = [*getattr(args, "arguments", []), *after_end]
        return args

    def error(self, message: str) -> NoReturn:
        """Raises argparse's error as a UserError, worded like the others."""
        message = re.sub(r"^argument (--[\w.]+): ", r"\1: ", message)
        message = re.sub(r"invalid (\w+) value: (.*)", r"expected \1, got \2", message)
        raise UserError(message.replace("expected one argument", "expected a value"))

    def _unknown(self, word: str, argv: Sequence[str]) -> str:
        """Returns what is wrong with a word, and what it may stand for, such as a key of the config of `argv`."""
        from fxf.runs import configs

        known = [name.removeprefix("--") for name in self._option_string_actions if name.startswith("--")]
        typed, _, _ = word.partition("=")
        name = typed.lstrip("+-–—").replace("-", "_")
        # The words are not parsed yet, and some are wrong, so --config is looked for among them.
        named = re.search(r"^--config[=\n]([^-].*)", "\n".join(argv), re.MULTILINE) or ["", "reversal"]
        keys = {"data": {"path": ""}} | configs.read_config(named[1], "--config").to_dict() if "config" in known else {}
        if not word.startswith("-"):
            is_config = ".py" in word or word.split(":")[0] in configs.names()
            may_be = {"workdir": Path(word, "config.json").is_file(), "config": is_config}
            meant = next((f"--{flag}={word}" for flag, fits in may_be.items() if fits and flag in known), "")
            if name.split(".")[0] in known:
                meant = "--" + word.lstrip("–—")
            elif "=" in word and (key := configs.closest_key(name, keys)):  # as Hydra has it
                meant = f"--config.{key}{word.removeprefix(typed)}"
            hint = did_you_mean(meant) or "; a value follows its flag after =, as in --KEY=VALUE"
            return f"expected only flags, got '{word}'{hint}"
        near = also_called("hints").get(name) or nearest(name.rpartition(".")[2], known)
        if keys and ("." in name or not near):  # a key without --config, or after a similar word
            meant = configs.closest_key(re.sub(r"^conf\w*[.:-]", "", name), keys)
            near = did_you_mean(meant and f"--config.{meant}") or near
        first = f"{self.arguments}, " if self.arguments else ""
        return f"{typed}: unknown flag{near} (here are {first}--{', --'.join(known)})"


def place(text: str) -> str:
    """The type of a flag that names a file on a disk. A shell does not expand the ~ in --text=~/book.txt."""
    if "://" in text:
        raise argparse.ArgumentTypeError(f"{text}: expected a path on a disk")
    return os.path.expanduser(text)


def whole(minimum: int, maximum: int | None = None) -> Callable[[str], int]:
    """Returns the type of a flag whose value is an int from `minimum` to `maximum`."""

    def kind(text: str) -> int:
        if (value := int(text)) < minimum:
            raise argparse.ArgumentTypeError(f"expected at least {minimum}, got {value}")
        if maximum is not None and value > maximum:
            raise argparse.ArgumentTypeError(f"expected at most {maximum}, got {value}")
        return value

    kind.__name__ = "int"
    return kind


def add_config(parser: Parser) -> None:
    """Adds --config=NAME and --config.KEY=VALUE."""
    parser.flag("config", place, doc=CONFIG_HELP)
    doc = "a key of the config, such as --config.train.steps=300"
    parser.add_argument("--config.", action="append", default=[], dest="overrides", metavar="KEY=VALUE", help=doc)


def add_run(parser: Parser) -> None:
    """Adds the flags that choose a checkpoint of a run."""
    parser.flag("workdir", doc="the run folder")
    parser.flag("step", int, doc="the step of the checkpoint; by default the one that the run's result used")


def add_decode(parser: Parser) -> None:
    """Adds a flag for each key of the `decode` section."""
    start_jax()  # before the package of the models imports it
    from fxf.models.decode_config import DecodeConfig
    from fxf.runs.configs import parsed

    known = fields_of(DecodeConfig)
    for name, default in defaults(DecodeConfig).items():
        kind = functools.partial(parsed, kind=type(default))
        kind.__name__ = type(default).__name__  # type: ignore[attr-defined]
        parser.flag(name, kind, doc=f"{known[name].limits['doc']}; by default the run config's value")


def decode_of(args: argparse.Namespace) -> dict[str, Any]:
    """Returns the keys of the `decode` section that the flags set."""
    from fxf.models.decode_config import DecodeConfig

    return {name: value for name in defaults(DecodeConfig) if (value := getattr(args, name)) is not None}


def config_and_origin(args: argparse.Namespace) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns the config of the flags, and its origin: file and overrides."""
    from fxf.runs import configs

    if not args.config:
        raise UserError("--config: missing; for example --config=reversal")
    config, overrides = configs.with_changes(configs.read_config(args.config, "--config"), args.overrides, "--config.")
    return config.to_dict(), configs.origin_of(args.config, overrides)


def require_workdir(args: argparse.Namespace) -> Path:
    """Returns the run folder, on a disk or in a bucket (gs://…)."""
    if not args.workdir:
        run = next((word for word in getattr(args, "arguments", ()) if Path(word, "config.json").is_file()), "")
        hint = f"did you mean '--workdir={run}'?" if run else "for example --workdir=runs/reversal"
        raise UserError(f"--workdir: missing; {hint}")
    return new_folder(args.workdir, "--workdir")


def read_lines(path: str | None) -> list[str]:
    """Reads a prompt from each line of a file or of standard input. Raises a UserError if one is not UTF-8."""
    from fxf.data.text_files import decoded, lines_of, unpacked_content

    if path in (None, "-", "/dev/stdin"):
        status.end()  # the user may type
        name, content = "standard input", sys.stdin.buffer.read() if sys.stdin else b""  # None if it is closed
    else:
        name, content = path, read_file(path, "--input")
    lines = lines_of(unpacked_content(content, name)) if content else []
    return [decoded(line, name, number) for number, line in enumerate(lines, 1)]


def print_figures(figures: dict[str, Any], as_json: bool = False) -> None:
    """Prints metrics as a JSON object, or as one line of `name value`."""
    texts = [f"{name} {value:g}" if isinstance(value, float) else f"{name} {value}" for name, value in figures.items()]
    print(to_json(figures) if as_json else one_line("  ".join(texts)))
