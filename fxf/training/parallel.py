"""The `parallel` section: how training uses the devices."""

import dataclasses
import re
from typing import Literal

from fxf.base.config import key
from fxf.base.errors import UserError


@dataclasses.dataclass(frozen=True)
class ParallelConfig:
    """The `parallel` section: how training uses the devices.

    Up to rounding, results do not depend on it, except under `pmap`: dropout draws other bits, and a loss that compares
    rows sees those of one device.
    """

    kind: Literal["jit", "pmap"] = key("jit", "jit: one program over a mesh; pmap: each device holds all weights")
    data: int = key(0, "parts of a batch's rows, each with all weights; 0: as many as devices allow", minimum=0)
    fsdp: int = key(1, "parts of a batch's rows, and of weights and optimizer state", minimum=1)
    expert: int = key(1, "parts of a batch's rows, and of the experts of a mixture with their weights", minimum=1)
    sequence: int = key(1, "parts of each sequence in training; attention fetches what its part sees", minimum=1)
    tensor: int = key(1, "parts of heads, hidden units and vocabulary, and of their weights", minimum=1)
    slices: int = key(0, "groups of devices with slow links between, which only data uses; 0: TPU slices", minimum=0)
    gradient_sums: Literal["float32", "model"] = key(
        "float32", "type in which devices sum the gradients of blocks; model: model.dtype, float32 for experts"
    )
    processes: int = key(1, "processes that train together; 0: those that a launcher or TPU pod started", minimum=0)
    coordinator: str = key("", "host:port of the first process, if processes is above 1")
    process: int = key(0, "index of this process, if processes is above 1", minimum=0)

    def __post_init__(self) -> None:
        if self.processes > 1 and not re.fullmatch(r".+:\d+", self.coordinator):
            raise UserError(f"parallel.coordinator: expected host:port of the first process, got {self.coordinator!r}")
        if self.processes <= 1 and self.coordinator:
            raise UserError("parallel.coordinator: only read if parallel.processes is above 1")
        if self.process >= max(self.processes, 1):
            what = f"expected less than parallel.processes {self.processes}, got {self.process}"
            raise UserError(f"parallel.process: {what}")
        if self.kind == "pmap" and (self.processes != 1 or self.fsdp * self.expert * self.sequence * self.tensor > 1):
            raise UserError("parallel.kind: 'pmap' takes one process, whose devices each hold all weights; use 'jit'")
