"""The package's source: imports only go down, files and functions are short, shape letters have one meaning.

The legend of the letters is in the docstring of `fxf/__init__.py`.
"""

import ast
import functools
import re

import fxf
from small_runs import ROOT

FILES = sorted((ROOT / "fxf").rglob("*.py"))
ARCHITECTURE = (ROOT / "docs/architecture.md").read_text()
ON_TOP = {path.stem for path in (ROOT / "fxf").glob("*.py")} - {"__init__"}
# In the order of docs/architecture.md, the lowest first.
FOLDERS = re.findall(r"^    fxf/(\w+)/ ", ARCHITECTURE, re.MULTILINE)


def module(path):
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


MODULES = {module(path): path for path in FILES}


@functools.cache
def nodes_of(path):
    """Returns the nodes of a file's code."""
    return list(ast.walk(ast.parse(path.read_text())))


def imported(path):
    """Yields the modules of the package that a file imports, anywhere in it."""
    for node in nodes_of(path):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in MODULES)
        if isinstance(node, ast.ImportFrom) and node.module in MODULES:
            for alias in node.names:
                name = f"{node.module}.{alias.name}"
                yield name if name in MODULES else node.module


def height(name):
    folder = name.split(".")[1] if name.count(".") else ""
    return 1 + FOLDERS.index(folder) if folder in FOLDERS else 0


def test_the_layout_lists_every_folder_and_every_module_on_top():
    folders = {path.name for path in (ROOT / "fxf").iterdir() if (path / "__init__.py").exists()}
    assert len(FOLDERS) == len(set(FOLDERS)) and set(FOLDERS) == folders
    assert all(re.search(rf"^    fxf/.*\b{name}\.py", ARCHITECTURE, re.MULTILINE) for name in ON_TOP)


def test_the_files_of_the_reading_paths_exist():
    stops = re.findall(r"^\d\. `([\w/]+\.py)` `([\w.]+)`: ", ARCHITECTURE, re.MULTILINE)
    assert len(stops) == len(re.findall(r"^\d\. ", ARCHITECTURE, re.MULTILINE)) > 20
    for file, name in stops:
        for part in name.split("."):
            assert re.search(rf"^ *(def|class) {part}\b", (ROOT / file).read_text(), re.MULTILINE), (file, name)


def test_the_diagram_has_every_folder_and_arrows_for_all_imports():
    picture = (ROOT / "docs/house.svg").read_text()
    boxes = re.findall(r'<rect.* x="(\d+)" y="(\d+)" width="(\d+)" height="(\d+)".*?<text[^>]*>(\w+)<', picture)
    places = {name: tuple(map(int, place)) for *place, name in boxes}
    assert set(places) == set(FOLDERS)

    def at(x, y):
        boxes = places.items()
        return next(n for n, (left, top, wide, high) in boxes if 0 <= x - left <= wide and 0 <= y - top <= high)

    below = {name: set() for name in places}
    for path in re.findall(r'd="M(\S* [^"]*)" marker', picture):
        x, y, *_, end = map(int, re.findall(r"\d+", path))
        below[at(x, y)].add(at(int(path.split()[-2]) if "C" in path else x, end + 2))
    for name in FOLDERS:  # the lowest first
        below[name] |= {lower for near in below[name] for lower in below[near]}
    for name, path in MODULES.items():
        rooms = {each.split(".")[1] for each in (name, *imported(path)) if each.count(".")} & set(FOLDERS)
        mine = name.split(".")[1] if name.count(".") else ""
        assert mine not in FOLDERS or rooms <= {mine, *below[mine]}, name


def test_no_module_imports_from_a_higher_folder():
    """Only the API, the command and fxf.testing may import from anywhere."""
    allowed = {"fxf", "fxf.__main__", "fxf.testing"}
    up = [(a, b) for a, path in MODULES.items() for b in imported(path) if height(b) > height(a) and a not in allowed]
    assert up == []


def test_no_import_goes_in_a_circle():
    edges = {name: set(imported(path)) - {name} for name, path in MODULES.items()}
    while leaves := [name for name, found in edges.items() if not found & edges.keys()]:
        for name in leaves:
            del edges[name]
    assert edges == {}


def functions(path):
    """Yields each function of a file, with the number of its parameters, without `self`.

    Keyword-only parameters of the public API do not count.
    """
    of_face = path.stem in ("api", "in_memory")
    for node in nodes_of(path):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            arguments = node.args.posonlyargs + node.args.args
            named = [a.arg for a in arguments] + ([] if of_face else [a.arg for a in node.args.kwonlyargs])
            yield node, len([name for name in named if name not in ("self", "cls")])


def test_no_function_is_longer_than_60_lines_or_has_more_than_8_parameters():
    found = [(path, node.name, node.end_lineno - node.lineno + 1, n) for path in FILES for node, n in functions(path)]
    assert [(path, name, lines, n) for path, name, lines, n in found if lines > 60 or n > 8] == []


def test_no_file_is_longer_than_300_lines():
    assert [path for path in FILES if len(path.read_text().splitlines()) > 300] == []


LEGEND = dict(re.findall(r"^    ([A-Z])  (.+)$", fxf.__doc__, re.MULTILINE))


@functools.cache
def suffix(name):
    """Returns the letters and digits of an array's name, or "" for another name."""
    found = re.match(r"_?[a-z]\w*?_([A-Z0-9]*[A-Z][A-Z0-9]*)$", name)
    return found[1] if found else ""


def files():
    """Returns the nodes of the code of each file that has shape letters."""
    return {path: nodes_of(path) for path in (*FILES, *(ROOT / "configs/primer").rglob("*.py"))}


def names_in(nodes):
    for node in nodes:
        if isinstance(node, ast.Name | ast.arg | ast.Attribute | ast.keyword):
            yield getattr(node, {ast.Name: "id", ast.Attribute: "attr"}.get(type(node), "arg")) or ""


def einsums_in(nodes):
    """Yields the letters of each operand of an einsum, and the operand's name if it has one."""
    for node in nodes:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "einsum":
            letters, *operands = node.args
            assert re.match("[A-Z]+(,[A-Z]+)*->[A-Z]*$", getattr(letters, "value", "")), ast.unparse(node)
            inputs, output = letters.value.split("->")
            for part, operand in zip(inputs.split(","), operands, strict=True):
                yield part, operand.id if isinstance(operand, ast.Name) else ""
            yield output, ""


def letters_in(nodes):
    """Returns the letters of the names and the einsums in code."""
    names = {letter for name in names_in(nodes) for letter in suffix(name) if letter.isalpha()}
    return names | {letter for letters, _ in einsums_in(nodes) for letter in letters}


def test_every_shape_letter_of_a_name_or_an_einsum_is_in_the_legend():
    found = {path: letters_in(nodes) - LEGEND.keys() for path, nodes in files().items()}
    assert {str(path): letters for path, letters in found.items() if letters} == {}
