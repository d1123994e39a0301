"""The first import of every script: from here on a signal ends the script in one line, even during other imports."""

from fxf.machine import signals

signals.listen()
