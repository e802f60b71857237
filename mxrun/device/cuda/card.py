"""Cards: the properties on which plans depend, from CUDA's runtime or as recorded for cuDNN."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from mxrun.base.dataclass import dataclass
from mxrun.base.device import CUDA, DeviceDescription, NumpyBodies, TaskSizes
from mxrun.codegen.processor import CARD
from mxrun.device.cuda.cudnn import library as cudnn

# Threads that run a task: a vector of 16 lanes is half a warp.
TASK_THREADS = 16
# CUDA's own alignment of what it allocates, which libraries expect of workspaces.
ALIGNMENT = 256
# Work of a task: a vector of four elements for each of its threads; of a product, about what takes
# as long as starting it. No card has measured either.
_ELEMENTS, _FLOPS = 64, 65_536


@dataclass(frozen=True)
class Card:
    """Card or MIG instance.

    name: NVIDIA's. capability: major and minor number of its instructions. processors: its
    streaming multiprocessors, each of which runs `threads_per_processor` threads. memory_bytes: all
    of its memory. properties: JSON with cuDNN's keys; empty if cuDNN is not there to ask.
    """

    name: str
    capability: tuple[int, int]
    processors: int
    threads_per_processor: int
    memory_bytes: int
    properties: str = ""

    @classmethod
    def of(cls, found: Mapping[str, Any], properties: str) -> Card:
        """Return the card with the properties that CUDA's runtime reports, by CuPy's names."""
        return cls(
            found["name"].decode(),
            (int(found["major"]), int(found["minor"])),
            int(found["multiProcessorCount"]),
            int(found["maxThreadsPerMultiProcessor"]),
            int(found["totalGlobalMem"]),
            properties,
        )

    @classmethod
    def recorded(cls, properties: str) -> Card:
        """Return the card with properties in JSON with cuDNN's keys.

        Raises ValueError for other text, KeyError for a key that is missing.
        """
        found = json.loads(properties)
        major, minor = divmod(int(found["deviceVer"]) // 10, 10)
        return cls(
            str(found["deviceName"]),
            (major, minor),
            int(found["multiProcessorCount"]),
            int(found["maxThreadsPerSM"]),
            int(found["totalGlobalMem"]),
            properties,
        )

    @property
    def instruction_set(self) -> str:
        """Name of the card's instructions."""
        return f"sm_{self.capability[0]}{self.capability[1]}"

    def too_old(self) -> str:
        """Return why the card cannot run the kernels; empty if it can."""
        major, minor = self.capability
        if 10 * major + minor >= int(CARD.name.removeprefix("sm_")):
            return ""
        return f"{self.name} is of {self.instruction_set}; kernels are for {CARD.name} and newer"

    def description(self, index: int) -> DeviceDescription:
        """Return the description of the card with number `index`.

        Its threads are as many as run tasks at a time. Another model of card may compute other
        bits, so that its name is part of the library's.
        """
        threads = self.processors * self.threads_per_processor // TASK_THREADS
        return DeviceDescription(
            family=CUDA,
            index=index,
            numpy_bodies=NumpyBodies.FLOAT32,
            threads=threads,
            instruction_set=self.instruction_set,
            library=f"{self.name}, cuDNN {cudnn.version().removeprefix('cuDNN ')}",
            card=self.properties,
            task_sizes=TaskSizes(_ELEMENTS, _FLOPS, most=threads),
            alignment=ALIGNMENT,
            is_host=False,
        )
