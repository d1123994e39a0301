"""`fxf export` as a script of the checkout."""

from fxf.verbs.command import main

if __name__ == "__main__":
    main("export")
