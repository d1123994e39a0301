"""The command `fxf` and `python -m fxf`."""

from fxf.verbs.command import main

if __name__ == "__main__":
    main()
