"""What every script imports first: from here on a signal ends it in one line, also while the rest is imported."""

from fxf.machine import signals

signals.listen()
