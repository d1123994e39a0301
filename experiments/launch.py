"""`fxf launch` as a script of the checkout."""

from fxf.__main__ import main

if __name__ == "__main__":
    main("launch")
