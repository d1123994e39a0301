"""A run as the commands train it: when it has ended, its page gets what is inside the model."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax

from fxf.runs.programs import Kept


def complete(config: Mapping[str, Any], workdir: Path, kept: Kept | None = None) -> None:
    """Writes the page of a run that has ended, unless that is done or `log.report` is off."""
    from fxf.views import inside  # an import that the first step need not wait for

    if config["log"]["report"] and jax.process_count() == 1 and not inside.is_of_the_result(workdir):
        print(inside.write(workdir, kept=kept), file=sys.stderr)
