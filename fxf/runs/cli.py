"""The code that the verbs share: flags, the config file, and errors as one line with exit code 2."""

import time

STARTED = time.perf_counter()

import dataclasses  # noqa: E402  STARTED comes first, because wall_seconds counts the imports.
import logging  # noqa: E402
import os  # noqa: E402
import sys  # noqa: E402
import warnings  # noqa: E402
from collections.abc import Callable, Iterator, Sequence  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any, NoReturn  # noqa: E402

from absl import flags  # noqa: E402
from absl import logging as absl_logging  # noqa: E402
from ml_collections import config_flags  # noqa: E402

from fxf.data.sentence_files import lines_of, require_uncompressed  # noqa: E402
from fxf.errors import EXIT_USER_ERROR, Interrupted, UserError, one_line, printable  # noqa: E402
from fxf.files import folder_at, read_file, to_json  # noqa: E402
from fxf.machine import signals, status, streams  # noqa: E402
from fxf.machine.devices import start_jax  # noqa: E402
from fxf.runs import command_line  # noqa: E402
from fxf.runs.config_file import line_of_file  # noqa: E402
from fxf.runs.misuse import line_of_misuse  # noqa: E402

streams.occupy()

MAX_INPUT = 2**28  # bytes of prompts
MAX_PROMPT = 2**20  # characters
MAX_MESSAGE = 1000  # characters

EXITS = """exit codes:
  0    done
  1    a run of a sweep has no result
  2    the input is wrong, the machine lacks something, or the loss is not finite: one line says what
  75   stopped by SIGTERM or SIGHUP; the same command goes on from the last step
  130  stopped by Ctrl-C, which is the same
  141  the reader of the output has gone
"""


def define_config() -> Any:
    """Defines --config=FILE[:ARGUMENT] and --config.SECTION.KEY=VALUE; the file is Python and runs as code."""
    flag = config_flags.DEFINE_config_file(
        "config",
        None,
        "config file, or the name of a config that comes with fxf, and after a colon its argument if it takes one; "
        "the file is Python and runs as code",
    )
    flags.FLAGS["config"].parser = command_line.CheckedConfigParser("config", sys.argv)
    return flag


def define_config_file() -> flags.FlagHolder[str | None]:
    """Defines --config=FILE for a script that reads a run folder."""
    return flags.DEFINE_string(
        "config",
        None,
        "the run's config file, if it registers something and is no longer at its recorded path; it is Python and "
        "runs as code",
    )


def define_json() -> flags.FlagHolder[bool]:
    return flags.DEFINE_boolean("json", False, "print the figures as one JSON object, and nothing else")


def define_workdir() -> flags.FlagHolder[str | None]:
    return flags.DEFINE_string("workdir", None, "the run folder")


def define_decode() -> Callable[[], dict[str, Any]]:
    """Defines a flag for each key of the `decode` section. Returns a function that returns the given values by key."""
    from fxf.decoding.config import DecodeConfig

    define: dict[type, Any] = {int: flags.DEFINE_integer, float: flags.DEFINE_float, bool: flags.DEFINE_boolean}
    holders = [
        define[type(field.default)](field.name, None, f"{field.metadata['doc']}; by default the run config's value")
        for field in dataclasses.fields(DecodeConfig)
    ]
    return lambda: {holder.name: holder.value for holder in holders if holder.value is not None}


def read_lines(path: str | None) -> list[str]:
    """Returns the lines of a file, or of standard input.

    Raises:
      UserError: the file cannot be read, is not UTF-8, or is too long.
    """
    if path in (None, "/dev/stdin"):
        name, content = "standard input", _standard_input()
    else:
        name, content = path, read_file(path, "--input", limit=MAX_INPUT)
    require_uncompressed(content, name)
    lines = lines_of(content) if content else []
    return [prompt_of(line, f"{name}:{number}") for number, line in enumerate(lines, 1)]


def lines_of_standard_input() -> Iterator[bytes]:
    """Yields the lines of standard input as they come, until nobody reads standard output any more.

    Raises:
      UserError: standard input is closed or cannot be read, or a line is too long.
    """
    if sys.stdin is None:
        raise UserError("standard input: it is closed")
    try:
        while not streams.lost_output() and (line := sys.stdin.buffer.readline(MAX_INPUT)):
            if len(line) == MAX_INPUT:
                raise UserError(f"standard input: expected lines of less than {MAX_INPUT} bytes")
            yield line
    except OSError as error:
        raise UserError(f"standard input: {error.strerror or error}") from None


def prompt_of(content: bytes, where: str) -> str:
    """Returns the prompt in a line of a file. Raises a UserError, which begins with `where`, if it is not valid."""
    try:
        prompt = content.decode("utf-8")
    except UnicodeDecodeError:
        raise UserError(f"{where}: not UTF-8") from None
    if len(prompt) > MAX_PROMPT:
        raise UserError(f"{where}: expected at most {MAX_PROMPT} characters, got {len(prompt)}")
    return prompt


def _standard_input() -> bytes:
    """Returns the content of standard input. Raises a UserError if it is closed, too long or cannot be read."""
    if sys.stdin is None:
        raise UserError("standard input: it is closed; give prompts as arguments or by --input")
    content = bytearray()
    try:
        with status.hidden():
            while chunk := sys.stdin.buffer.read(2**20):
                content += chunk
                if len(content) > MAX_INPUT:
                    raise UserError(f"standard input: expected at most {MAX_INPUT} bytes")
    except OSError as error:
        raise UserError(f"standard input: {error.strerror or error}") from None
    return bytes(content)


def run(main: Callable[[list[str]], None]) -> None:
    """Parses the command line and calls `main(positional arguments)`; a UserError ends in one line and exit code 2."""
    streams.tolerate()
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_OneLine("%(message)s"))
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
    absl_logging.set_verbosity(absl_logging.FATAL)  # Orbax logs the damage that it also raises
    logging.getLogger("asyncio").setLevel(logging.CRITICAL)  # of several errors in a checkpoint Orbax raises the first
    warnings.filterwarnings("ignore", module="orbax")
    sys.unraisablehook = _unraisable
    try:
        _require_working_directory()
        module = sys.modules[main.__module__]
        modules = (__name__, sys.argv[0] if module.__name__ == "__main__" else module.__name__)
        if _asks_for_help(sys.argv):
            _print_help(module.__doc__, modules)
        else:
            arguments = command_line.parse(sys.argv, modules)[1:]
            if getattr(module, "NEEDS_JAX", True):
                start_jax()
            main(arguments)
    except UserError as error:
        _end(str(error))
    except Interrupted as stop:
        signals.print_last_line(str(stop))
        sys.exit(signals.exit_code())
    except BaseException as error:
        if why := why_not_ours(error):
            _end(why)
        raise
    streams.end_if_lost()


def _require_working_directory() -> None:
    try:
        os.getcwd()
    except OSError as error:
        raise UserError(f"the working directory is gone ({error.strerror}); change to one that is there") from None


def _end(line: str) -> NoReturn:
    signals.print_last_line(f"error: {shortened(one_line(line))}")
    sys.exit(EXIT_USER_ERROR)


def why_not_ours(error: BaseException) -> str:
    """Returns the line for an error that is not a bug of this code, or an empty string."""
    if line := line_of_file(error):
        return line
    kind, text = type(error).__name__, command_line.text_of(error)
    if isinstance(error, MemoryError) or (kind == "JaxRuntimeError" and text.startswith("RESOURCE_EXHAUSTED")):
        less = "a smaller train.batch_size, model or decode.beam_width, or more train.microbatches, may help"
        return f"out of memory: {text or 'of the host'}; {less}"
    if kind == "PanicException":  # from a library in Rust; it is not an Exception
        return f"a library failed: {text}"
    return line_of_misuse(error)


def shortened(line: str) -> str:
    """Returns the line, without its middle if it is too long to read, for example because it quotes a long prompt."""
    half = MAX_MESSAGE // 2
    return line if len(line) <= MAX_MESSAGE else f"{line[:half]} … {line[-half:]}"


class _OneLine(logging.Formatter):
    """A formatter that writes each record of the log as one line, even if names in it have line ends."""

    def format(self, record: logging.LogRecord) -> str:
        return one_line(super().format(record))


def _unraisable(what: Any) -> None:
    """Prints nothing about errors in work that was ended early.

    One kind is a write that was under way when a save met a full disk: Orbax no longer waits for it. The other is an
    evaluation that was abandoned inside a callback and still goes on.
    """
    if str(what.exc_value) != "Event loop is closed" and what.exc_type is not signals.Abandoned:
        sys.__unraisablehook__(what)


def _asks_for_help(argv: list[str]) -> bool:
    return not {"--help", "-help", "--helpfull", "-h"}.isdisjoint(argv[1:])


def _print_help(text: str | None, modules: Sequence[str]) -> None:
    print(text or "")  # Python has dropped it with -OO
    for module in modules:
        print(flags.FLAGS.module_help(module))
    print(f"\n{EXITS}", end="")


def refuse_arguments(arguments: list[str]) -> None:
    """Raises a UserError if there are arguments besides flags."""
    for argument in arguments:
        flag = f"--{argument}" if argument.split("=")[0].split(".")[0] in flags.FLAGS else _as_workdir(argument)
        raise UserError(f"expected only flags, got '{argument}'" + (f"; did you mean '{flag}'?" if flag else ""))


def _as_workdir(argument: str) -> str:
    """Returns the flag that names a run folder, if the argument is the path of one and the verb has the flag."""
    is_run = "workdir" in flags.FLAGS and os.path.isfile(os.path.join(argument, "config.json"))
    return f"--workdir={argument}" if is_run else ""


def config_and_origin(flag: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns the config that the flags name, and its origin: file, overrides, and what the file registers."""
    if not flag.present or not config_flags.get_config_filename(flags.FLAGS["config"]):
        raise UserError(command_line.MISSING)
    config_file = config_flags.get_config_filename(flags.FLAGS["config"])
    overrides = config_flags.get_override_values(flags.FLAGS["config"])
    return flag.value.to_dict(), command_line.origin_of(config_file, overrides)


def require_workdir(flag: Any) -> Path:
    """Returns the run folder, on a disk or in a bucket (gs://…)."""
    if not flag.value:
        raise UserError("--workdir: missing; for example --workdir=runs/reversal")
    workdir = folder_at(flag.value, "--workdir")
    if workdir.exists() and not workdir.is_dir():
        raise UserError(f"--workdir: {flag.value} is a file; expected a run folder, or a new path for one")
    return workdir


def answer_lines(
    answers: Sequence[Sequence[tuple[str, float | None, bool]]], n_best: int | None, as_json: bool
) -> Iterator[str]:
    """Yields one line for each answer's best text, or for each of `n_best` hypotheses, with prompt number and score.

    Args:
      answers: the hypotheses of each prompt, the best first: text, score, and whether it was cut off.
    """
    for number, hypotheses in enumerate(answers, 1):
        for text, score, cut_off in hypotheses[: n_best or 1]:
            if as_json:
                scored = {"score": score} if n_best else {}
                yield to_json({"prompt": number, **scored, "text": text, "cut_off": cut_off})
            else:
                yield f"{number}\t{score:.4f}\t{printable(text)}" if n_best else printable(text)


def print_figures(figures: dict[str, Any], as_json: bool = False) -> None:
    """Prints figures as a JSON object, else as a table on a terminal, and as one line of `name value` elsewhere."""
    if as_json:
        print(to_json(figures))
        return
    texts = {
        name: one_line(f"{value:g}" if isinstance(value, float) else str(value)) for name, value in figures.items()
    }
    if sys.stdout.isatty():
        width = max(map(len, texts), default=0)
        print("".join(f"{name:<{width}}  {text}\n" for name, text in texts.items()), end="")
    else:
        print("  ".join(f"{name} {text}" for name, text in texts.items()))
