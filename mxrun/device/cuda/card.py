"""Cards: the properties on which plans depend, from CuPy or from a recorded JSON file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mxrun.base.device import CUDA, DeviceDescription, NumpyBodies

# Threads that run a task: a vector of 16 lanes is half a warp.
TASK_THREADS = 16
# Of the first cards on which all kernels run.
_LEAST_CAPABILITY = (8, 0)


@dataclass(frozen=True)
class Card:
    """Card or MIG instance.

    name: NVIDIA's. capability: major and minor number of its instructions. processors: its
    streaming multiprocessors, each of which runs `threads_per_processor` threads. memory_bytes: all
    of its memory.
    """

    name: str
    capability: tuple[int, int]
    processors: int
    threads_per_processor: int
    memory_bytes: int

    @classmethod
    def of(cls, properties: Mapping[str, Any]) -> Card:
        """Return the card with the properties that CUDA's runtime reports, by CuPy's names."""
        name = properties["name"]
        return cls(
            name.decode() if isinstance(name, bytes) else str(name),
            (int(properties["major"]), int(properties["minor"])),
            int(properties["multiProcessorCount"]),
            int(properties["maxThreadsPerMultiProcessor"]),
            int(properties["totalGlobalMem"]),
        )

    @property
    def instruction_set(self) -> str:
        """Name of the card's instructions."""
        return f"sm_{self.capability[0]}{self.capability[1]}"

    def too_old(self) -> str:
        """Return why the card cannot run the kernels; empty if it can."""
        if self.capability >= _LEAST_CAPABILITY:
            return ""
        major, minor = _LEAST_CAPABILITY
        return (
            f"{self.name} is of {self.instruction_set}; kernels are for sm_{major}{minor} and newer"
        )

    def description(self, index: int) -> DeviceDescription:
        """Return the description of the card with number `index`.

        Its threads are as many as run tasks at a time. Another model of card may compute other
        bits, so that its name is part of the library's.
        """
        return DeviceDescription(
            CUDA,
            index,
            NumpyBodies.FLOAT32,
            self.processors * self.threads_per_processor // TASK_THREADS,
            self.instruction_set,
            self.name,
        )
