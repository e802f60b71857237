"""Frozen description of a device, for which kernels are prepared."""

from __future__ import annotations

from enum import Enum

from mxrun.base.dataclass import dataclass
from mxrun.base.tensor import ALIGNMENT

# Calls of a library into which a product is cut at most, and the work that each must have: a call
# takes half a microsecond, and each reads all weights.
_CALLS = ((8, 2_500_000), (32, 50_000_000))

CPU, REFERENCE = "cpu", "reference"
# Family of the kernels of NVIDIA's cards, and the kind by which configs select them.
CUDA, GPU = "cuda", "gpu"
# Pattern of the names by which configs select kinds of devices.
KIND_NAME = "[A-Za-z][A-Za-z0-9_-]{0,99}"


class NumpyBodies(Enum):
    """How a device runs operators' NumPy bodies.

    NONE: not at all. FLOAT32: in float32, also where the network is in bfloat16, because rounding
    around them is slower. ROUNDED: as other kernels, with results rounded to the tensor's type.
    """

    NONE = "none"
    FLOAT32 = "float32"
    ROUNDED = "rounded"


@dataclass(frozen=True)
class Cut:
    """Number of tasks into which work is cut, and of threads that work on them at most."""

    tasks: int
    threads: int


@dataclass(frozen=True)
class TaskSizes:
    """Work of one task of a loop, and the number of tasks at most.

    The figures of CPUs are those below which another thread costs more than it gains: waking it
    takes 1 to 2 us, and its results are then in another core's cache. Two cores of 110 GFLOP/s
    against one: a product of 1.05 MFLOP is 1.5 to 1.6 times as fast, of 0.5 MFLOP 1.2 to 1.4, of
    0.16 MFLOP slower; complete steps with products of 1 to 2 MFLOP are 4 to 10 % faster than with
    one thread for them. An update of 16,384 elements is 0.8 times as fast, of 24,576 1.1, of 32,768
    1.6. 32 tasks are enough for sixteen threads, of which a few are late.
    """

    elements: int = 16_384
    flops: int = 500_000
    most: int = 32


@dataclass(frozen=True)
class DeviceDescription:
    """Everything about a device that a kernel, and hence a plan and its results, may depend on.

    family: kernels that run on it, those with `@implement(..., devices=(family,))`. index: number
    among the devices of its kind. numpy_bodies: how NumPy bodies run. threads: how many may
    compute, on a card how many tasks at a time; scratch space of a kernel depends on them, but no
    result. instruction_set: name of the processor's instructions; empty if no kernel depends on
    them. library: name and version of the kernel library, `none` where it is missing, and the kind
    of processor for which loops are generated; empty if kernels need neither. card: properties of a
    GPU as JSON with cuDNN's keys, from which cuDNN makes plans; empty for other devices.
    task_sizes: into what loops are cut. alignment: bytes at multiples of which blocks begin.
    is_host: whether its threads are the host's.
    """

    family: str
    index: int = 0
    numpy_bodies: NumpyBodies = NumpyBodies.NONE
    threads: int = 1
    instruction_set: str = ""
    library: str = ""
    card: str = ""
    task_sizes: TaskSizes = TaskSizes()
    alignment: int = ALIGNMENT
    is_host: bool = True

    def cut_for_elements(self, elements: int) -> Cut:
        """Return the cut of an elementwise pass over `elements`."""
        tasks = self.tasks_for_elements(elements)
        return Cut(tasks, self.workers(tasks))

    def cut_for_flops(self, flops: int) -> Cut:
        """Return the cut of a product of `flops` operations by a library."""
        calls = (2, self.task_sizes.flops), *_CALLS
        tasks = self.most_tasks(max(min(flops // least, most) for most, least in calls))
        return Cut(tasks, self.workers(tasks))

    @property
    def host_threads(self) -> int:
        """How many threads of the host compute."""
        return self.threads if self.is_host else 1

    def tasks_for_elements(self, elements: int) -> int:
        """Return into how many tasks an elementwise pass over `elements` is cut."""
        return self.most_tasks(elements // self.task_sizes.elements)

    def tasks_for_flops(self, flops: int) -> int:
        """Return into how many tasks a product of `flops` operations is cut."""
        return self.most_tasks(flops // self.task_sizes.flops)

    def most_tasks(self, worthwhile: int) -> int:
        """Return the largest number of tasks up to `worthwhile`, a power of two.

        The usual numbers of threads share these equally.
        """
        most = self.task_sizes.most
        return 1 << min(max(worthwhile, 1).bit_length() - 1, most.bit_length() - 1)

    def workers(self, tasks: int) -> int:
        """Return how many threads at most work on a loop of `tasks`."""
        return min(self.threads, tasks)


# A CPU with one thread, for plans whose device does not matter.
ONE_THREAD = DeviceDescription(CPU, numpy_bodies=NumpyBodies.FLOAT32)
