"""Config files: Python that returns a config and may register a task, a model, a kind of attention and so on.

A process executes a file, and the modules beside it that it imports, once. If a config file registers something, its
run records the file's path and digests, and the file is executed again before the run is built again.
"""

import ast
import contextlib
import hashlib
import importlib.util
import logging
import os
import sys
from collections.abc import Iterator, Mapping
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from fxf.config import differences, flatten
from fxf.errors import UserError, errors_of, line_in, shown
from fxf.files import is_remote, read_file
from fxf.runs import registries

log = logging.getLogger(__name__)

ITSELF = "config file"  # replaces its name among the digests of a run, so a renamed file is the same file
REGISTERED_BY = "registered_by"  # the key of config.json


class ConfigFile(NamedTuple):
    """A file that was executed, or a module beside it.

    Attributes:
      path: its absolute path.
      module: the executed module.
      digests: SHA-256 of the file and of the modules in its folder that it imports, by their names there.
      registering: the digests of those files that register something, and of the modules that these import.
      registered: the kind and the name of each entry that they register.
    """

    path: Path
    module: ModuleType
    digests: dict[str, str]
    registering: dict[str, str]
    registered: frozenset[tuple[str, str]]

    def call(self, name: str, *arguments: Any) -> Any:
        """Calls the function `name` of the file.

        Raises:
          UserError: there is no such function, it raises an exception, or it registers something.
        """
        function = getattr(self.module, name, None)
        if not callable(function):
            raise UserError(f"{shown(self.path)}: no function {name}")
        with (
            _importing_from(self.path.parent),
            registries.registrations(self.path, set(), within=name),
            errors_of(self.path),
        ):
            return function(*arguments)

    def origin(self) -> dict[str, Any]:
        """Returns the file's record for config.json, which is empty if the file registers nothing."""
        if not self.registered:
            return {}
        names = sorted(f"{kind} '{name}'" for kind, name in self.registered)
        return {REGISTERED_BY: {"path": str(self.path), "registers": names, "sha256": self.recorded_digests()}}

    def expected(self, argument: str) -> dict[str, float]:
        """Returns the figures that the file's EXPECTED says of an argument, "" for none; it may say nothing.

        Raises:
          UserError: EXPECTED is not figures by argument.
        """
        of_arguments = getattr(self.module, "EXPECTED", {})
        found = of_arguments.get(argument, {}) if isinstance(of_arguments, dict) else None
        if not isinstance(found, dict) or not all(type(value) in (int, float) for value in found.values()):
            raise UserError(f"{shown(self.path)}: EXPECTED: expected figures by argument, as {{'': {{'bleu': 39.7}}}}")
        return found

    def recorded_digests(self) -> dict[str, str]:
        """Returns the digests of the files that register something. The name of the file itself is replaced."""
        return {ITSELF if name == self.path.name else name: sha for name, sha in self.registering.items()}


_executed: dict[Path, ConfigFile] = {}  # the last one loaded stands last


def load(path: str | Path) -> ConfigFile:
    """Executes a config file, unless this process has executed the same content already.

    Raises:
      UserError: the file cannot be read, is not Python, raises an exception, or registers a name that is taken.
    """
    path = Path(os.path.abspath(path))
    with _importing_from(path.parent):
        found = _execute(path, path.parent)
    _executed[path] = _executed.pop(path)
    return found


def origin_of(config: Mapping[str, Any]) -> dict[str, Any]:
    """Returns what config.json says of the config file, executed in this process, that registers what a config names.

    If several files register all of it, it is the one that was loaded last.

    Raises:
      UserError: several files register what it names, and none of them imports the others.
    """
    words = {word.strip() for _, value in flatten(config) if isinstance(value, str) for word in value.split(",")}
    named = {(kind, name) for kind, name in registries.owners if name in words}
    if not named:
        return {}
    for file in reversed(_executed.values()):
        if named <= file.registered:
            return {"config_file": str(file.path), "overrides": {}, **file.origin()}
    names = ", ".join(sorted(f"{kind} '{name}'" for kind, name in named))
    raise UserError(f"config: names {names}, which no one config file registers; write one that imports the others")


def load_of_run(workdir: Path, recorded: Mapping[str, Any] | None, given: str | Path | None) -> None:
    """Executes the config file of the run in `workdir`, which registers parts of the run.

    Args:
      recorded: the file's record in config.json, or None if it registers nothing.
      given: the file to execute instead, if not None.

    Raises:
      UserError: as `load`; or the recorded file is missing or lies in the run folder.
    """
    if given is None:
        if recorded is None:
            return
        given = Path(recorded["path"])
        require_outside(workdir, given)
        if not given.is_file():
            file = f"the run's config file {given}, which registers {', '.join(recorded['registers'])}"
            raise UserError(f"{workdir}: {file}, is missing; name its new path by --config=FILE")
    found = load(given)
    if recorded is not None and (differing := differences(recorded["sha256"], found.recorded_digests())):
        log.warning("warning: %s: %s changed since the run began: %s", workdir, given, differing)


def digests_of(origin: Mapping[str, Any], workdir: Path) -> dict[str, str]:
    """Returns the digests of a run's config file; {} if it registers nothing.

    Raises:
      UserError: the file lies in the run folder, from which no other verb would execute it.
    """
    if REGISTERED_BY not in origin:
        return {}
    require_outside(workdir, Path(origin[REGISTERED_BY]["path"]))
    return origin[REGISTERED_BY]["sha256"]


def require_outside(workdir: Path, path: Path) -> None:
    """Raises a UserError if a config file lies in the run folder, from which no code is executed."""
    if is_remote(workdir):
        return
    folders = {Path(os.path.abspath(workdir)), workdir.resolve()}
    if folders & {*Path(os.path.abspath(path)).parents, *path.resolve().parents}:
        raise UserError(f"{workdir}: the run's config file {path} lies in the run folder, whose code is never executed")


def line_of_file(error: BaseException) -> str:
    """Returns the line for an exception that passed through a function of an executed file, else nothing."""
    for path in _executed if isinstance(error, Exception) else ():
        if line_in(error, path):
            try:
                with errors_of(path):
                    raise error
            except UserError as found:
                return str(found)
    return ""


def executed() -> dict[Path, ConfigFile]:
    """Returns the files that this process has executed, by path."""
    return dict(_executed)


def _execute(path: Path, folder: Path, name: str = "", importers: tuple[Path, ...] = ()) -> ConfigFile:
    """Executes the modules in `folder` that a file imports, and then the file, each at most once.

    Args:
      name: the module's name, or nothing for the config file itself.
      importers: the files that are waiting for this one.
    """
    files = sorted(path.parent.rglob("*.py")) if path.name == "__init__.py" and name else [path]
    texts = {file: _text(file) for file in files}
    imported = [_beside(folder, each) for file in files for each in _imported_names(file, texts[file])]
    parts = [
        _execute(source, folder, each, (*importers, path))
        for each, source in dict.fromkeys(found for found in imported if found)
        if source not in (*importers, path)
    ]
    digests = {str(file.relative_to(folder)): hashlib.sha256(text).hexdigest() for file, text in texts.items()}
    digests |= {key: sha for part in parts for key, sha in part.digests.items()}
    registering = {key: sha for part in parts for key, sha in part.registering.items()}
    inherited = frozenset(each for part in parts for each in part.registered)
    name = name or f"config file {path}"
    known, there = _executed.get(path), sys.modules.get(name)
    if known is None and there is not None and there.__file__ == str(path):
        return ConfigFile(path, there, digests, registering, inherited)  # imported by the program itself
    if known is None or known.digests != digests:
        if known and known.registered - inherited:
            raise UserError(f"{shown(path)}: changed since this process executed it; start another process")
        with registries.registrations(path, {*digests.values()}) as own, errors_of(path):
            module = _run(name, path, texts[path])
            registries.require_each_once(module, ast.parse(texts[path]))
        known = ConfigFile(path, module, digests, digests if own else registering, inherited | own)
        _executed[path] = known
    sys.modules[name] = known.module
    return known


def _text(path: Path) -> bytes:
    text = read_file(shown(path), "--config")
    if b"\0" in text:
        raise UserError(f"{shown(path)}: expected Python source, found a null byte")
    return text


def _imported_names(path: Path, text: bytes) -> Iterator[str]:
    """Yields the top-level names of the modules that a Python file imports, anywhere in it."""
    with errors_of(path):
        tree = ast.parse(text, str(path))
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
            yield node.module.split(".")[0]


def _beside(folder: Path, name: str) -> tuple[str, Path] | None:
    """Returns the name and the file of the module that `import name` finds in the folder, or None."""
    there = getattr(sys.modules.get(name), "__file__", None)
    for path in (folder / name / "__init__.py", folder / f"{name}.py"):
        ours = name not in sys.modules or (there and (there == str(path) or Path(there) in _executed))
        if ours and name != "fxf" and path.is_file():
            return name, path
    return None


def _run(name: str, path: Path, text: bytes) -> ModuleType:
    """Executes the text of a module, and forgets submodules that were imported from another folder."""
    for other in [key for key in sys.modules if key == name or key.startswith(f"{name}.")]:
        del sys.modules[other]
    places = [str(path.parent)] if path.name == "__init__.py" else None
    loader = SourceFileLoader(name, str(path))
    spec = importlib.util.spec_from_file_location(name, path, loader=loader, submodule_search_locations=places)
    assert spec
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        exec(compile(text, str(path), "exec", dont_inherit=True), vars(module))
    except BaseException:
        del sys.modules[name]
        raise
    return module


@contextlib.contextmanager
def _importing_from(folder: Path) -> Iterator[None]:
    """Makes imports search the folder first, as Python does for a script."""
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        with contextlib.suppress(ValueError):
            sys.path.remove(str(folder))
