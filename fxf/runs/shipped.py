"""The configs that come with fxf, by name: `reversal`, or `reversal:example0` with an argument."""

from pathlib import Path

PACKAGE = Path(__file__).parent.parent


def folder() -> Path:
    """Returns the folder of the configs: in the package that a wheel installs, beside the package in a checkout."""
    installed = PACKAGE / "configs"
    return installed if installed.is_dir() else PACKAGE.parent / "configs"


def names() -> list[str]:
    """Returns the names of the configs, such as `reversal` and `studies/positions`."""
    files = folder().rglob("*.py")
    return sorted(path.relative_to(folder()).with_suffix("").as_posix() for path in files)


def located(config: str) -> str:
    """Returns FILE[:ARGUMENT] of NAME[:ARGUMENT], or `config` itself where it names a file or no config of fxf."""
    name, *argument = config.split(":", 1)
    if name not in names() or Path(name).is_file():
        return config
    return ":".join([str(folder() / f"{name}.py"), *argument])
