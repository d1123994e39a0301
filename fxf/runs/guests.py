"""Config files, and the modules that a config names by path (`my_file:sigmoid`): executed, recorded, found again.

A config file is Python and runs as code. Its folder is searched for modules from then on, so a config may name what
the file itself, or a module beside it, defines. A run records the files that its config names, with their digests.
"""

import contextlib
import importlib
import logging
import modulefinder
import os
import re
import sys
from collections.abc import Iterator, Mapping, Set
from importlib.machinery import PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any

from fxf.base.config import PATH, Choices, differences, flatten
from fxf.base.errors import UserError, errors_of, shown
from fxf.base.files import file_digest, is_remote, read_file

log = logging.getLogger(__name__)

GUESTS = "guests"  # the key of config.json
_executed: dict[Path, tuple[bytes, ModuleType]] = {}  # text and module of each file
# For each module that a recorded config names: the folder in which imports find it, and the digests of its files.
_recorded: dict[ModuleType, tuple[Path, dict[str, str]]] = {}


def load(path: str | Path) -> ModuleType:
    """Executes a Python file, unless this process has executed the same text already, and returns its module.

    The module has the name of the file, so that a config can name what it defines, if no other module has that name.

    Raises:
      UserError: the file cannot be read, is not Python, or raises an exception.
    """
    path = Path(os.path.abspath(path))
    text = read_file(shown(path), "--config")
    search(path.parent)
    if path not in _executed or _executed[path][0] != text or _is_stale(_executed[path][1]):
        file_of_name = getattr(sys.modules.get(path.stem), "__file__", "")
        is_free = path.stem not in sys.modules or file_of_name in map(str, [path, *_executed])
        module = ModuleType(path.stem if is_free else f"config file {path}")
        module.__file__ = str(path)
        sys.modules[module.__name__] = module  # dataclasses look there for it
        try:
            Choices.closed = True
            with errors_of(path):
                exec(compile(text, str(path), "exec", dont_inherit=True), vars(module))
        except BaseException:
            del sys.modules[module.__name__]
            raise
        finally:
            Choices.closed = False
        _executed[path] = text, module
    _, module = _executed[path]
    sys.modules[module.__name__] = module
    return module


def search(folder: Path) -> None:
    """Makes imports search the folder first, and also the working directory, last unless Python has it already.

    So that they are imported anew, it forgets modules of the folders of other executed files, of folders with changed
    files, and of the working directory if the folder has modules of these names.
    """
    found = (module for module in _recorded if sys.modules.get(module.__name__) is module)
    stale = {os.path.dirname(str(module.__file__)) for module in found if _is_stale(module)}
    here, others = os.getcwd(), {str(path.parent) for path in _executed} - {str(folder)}
    if stale or sys.path[:1] != [str(folder)]:
        _forget(others | stale)
    _forget({here} - {str(folder)}, {path.stem for path in folder.glob("*.py")})
    sys.path += [] if {"", here} & set(sys.path) else [here]
    places = sorted(sys.path, key=(others - {here}).__contains__)  # those of other files last
    sys.path[:] = [str(folder), *(place for place in places if place != str(folder))]


def _forget(folders: set[str], names: Set[str] = sys.modules.keys()) -> None:
    """Makes Python import modules with these names in these folders again."""
    below = tuple(f"{folder}{os.sep}" for folder in folders)
    for name in names & sys.modules.keys() if folders else ():
        # `__dict__`, because some modules import whatever attribute is read.
        file = getattr(sys.modules[name], "__dict__", {}).get("__file__") or ""
        if file.startswith(below) and os.path.dirname(file) in folders and name != "__main__":
            del sys.modules[name]


@contextlib.contextmanager
def restoring_imports() -> Iterator[None]:
    """Returns a context for executing other files, after which the modules that were imported before are back."""
    places, modules = [*sys.path], {**sys.modules}
    _forget({str(path.parent) for path in _executed})
    yield
    sys.path[:] = places
    sys.modules.update(modules)


def record(config: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the modules from which a config names something by its path.

    Each has its file, and the digests of that and of what it imports from its own folder.

    Raises:
      UserError: one of these files has changed since the process imported it.
    """
    keys = ((key, value) for key, value in flatten(config) if isinstance(value, str))
    texts = [value for key, value in keys if not key.startswith("decode.")]  # they are texts of answers
    words = {word.strip() for text in texts for word in re.split(r"[,;+*@()]", text)}
    found = {}
    for name in sorted({word.partition(":")[0] for word in words if PATH.fullmatch(word)}):
        try:
            module = importlib.import_module(name)
        except ModuleNotFoundError:
            continue  # reading the key that names it reports that
        if file := getattr(module, "__file__", None):
            found[name] = {"path": file, "sha256": _digests(name, Path(file))}
            _, before = _recorded.setdefault(module, (_root(name, Path(file)), found[name]["sha256"]))
            if changed := differences(before, found[name]["sha256"]):
                raise UserError(f"{file}: changed since it was imported: {changed}; put it back, or read the config")
    return found


def _is_stale(module: ModuleType) -> bool:
    """Returns whether a file of a module has changed, or is gone, since a config was recorded that names the module."""
    root, before = _recorded.get(module, (Path(), {}))
    return any(not (root / file).is_file() or file_digest(root / file) != found for file, found in before.items())


def _root(name: str, path: Path) -> Path:
    """Returns the folder in which imports find a module, which may be in a package."""
    return path.parents[name.count(".") + (path.name == "__init__.py")]


class _Finder(modulefinder.ModuleFinder):
    """Finds what a module imports, also in folders without `__init__.py`, at which its base class raises."""

    def import_module(self, partname: str, fqname: str, parent: Any) -> Any:
        spec = PathFinder.find_spec(partname, parent.__path__ if parent else self.path)
        if spec is None or spec.loader or fqname in self.excludes:
            return super().import_module(partname, fqname, parent)
        module: Any = self.add_module(fqname)
        module.__path__ = list(spec.submodule_search_locations or ())
        return module


def _digests(name: str, path: Path) -> dict[str, str]:
    finder, root = _Finder([str(_root(name, path))]), _root(name, path)
    if root == path.parent:
        finder.run_script(str(path))  # it reads the file, and does not run it
    else:  # of what a package imports, only its own files count
        finder.excludes = [each.stem for each in root.iterdir() if each.stem != name.partition(".")[0]]
        finder.import_hook(name)
    found = {Path(file) for each in finder.modules.values() if (file := getattr(each, "__file__", None))}
    return {str(file.relative_to(root)): file_digest(file) for file in sorted({path, *found})}


def digests(config: Mapping[str, Any], workdir: Path) -> dict[str, str]:
    """Returns the digests of all files of `record(config)`.

    Raises:
      UserError: a file lies in the run folder, whose code is never executed.
    """
    found: dict[str, str] = {}
    for guest in record(config).values():
        _require_outside(workdir, Path(guest["path"]))
        found |= guest["sha256"]
    return found


def restore(workdir: Path, recorded: Mapping[str, Any]) -> None:
    """Executes the files of a run's `record` again, so that its config can be built.

    A file that is no longer where it was is looked for in the working directory. A name in `__main__` is looked for in
    that of this process.

    Raises:
      UserError: as `load`; or a file is missing or lies in the run folder.
    """
    for name, guest in recorded.items():
        if name == "__main__":  # executing a script would train again
            continue
        was = Path(guest["path"])
        path = was if was.is_file() else Path.cwd() / was.relative_to(_root(name, was))
        _require_outside(workdir, path)
        if not path.is_file():
            what = f"{was}, a file that the run's config names, is missing"
            raise UserError(f"{workdir}: {what}; put it there, or into the working directory")
        if _root(name, path) == path.parent:
            load(path)
        else:
            search(_root(name, path))
        if differing := differences(guest["sha256"], _digests(name, path)):
            log.warning("warning: %s: %s changed since the run began: %s", workdir, path, differing)


def _require_outside(workdir: Path, path: Path) -> None:
    if not is_remote(workdir) and workdir.resolve() in path.resolve().parents:
        raise UserError(f"{workdir}: {path} lies in the run folder, whose code is never executed")
