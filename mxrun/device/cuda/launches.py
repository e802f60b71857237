"""Launches → calls on a card: kernels with fixed parameters, and plans of cuDNN."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from mxrun.base.dataclass import dataclass
from mxrun.base.dtype import FLOAT32
from mxrun.base.errors import InternalError
from mxrun.codegen.arguments import Arguments, require_row_major, slot_of
from mxrun.codegen.jit import require_arguments
from mxrun.device.cuda.cudnn.descriptor import Descriptor
from mxrun.device.cuda.cudnn.launch import PlanLaunch, execute, variant_pack
from mxrun.device.cuda.cudnn.plan import loaded
from mxrun.device.cuda.memory import CudaMemory, address_of
from mxrun.device.cuda.modules import Modules
from mxrun.device.cuda.queue import Queue
from mxrun.operator.launch import Handle, LoopLaunch

Array = npt.NDArray[Any]
# CuPy passes NumPy's numbers with their size, but makes a float64 of a Python float.
Word: TypeAlias = "np.int64 | np.float32"
# Kind of a table's entries.
_ENTRY = "int64"


class Constants:
    """Arrays of constants and tables on a card, copied there when a program is bound."""

    def __init__(self, queue: Queue) -> None:
        self._queue = queue
        self._arrays: dict[int, tuple[Array, CudaMemory]] = {}
        self._tables: list[CudaMemory] = []

    def array(self, array: Array) -> int:
        """Return the address of an array's copy, one for all its uses."""
        if id(array) not in self._arrays:
            require_row_major(array)
            self._arrays[id(array)] = array, self._copied(array)
        return self._arrays[id(array)][1].address

    def table(self, entries: tuple[int, ...]) -> int:
        """Return the address of a table's slots."""
        self._tables.append(self._copied(np.array(entries, np.int64)))
        return self._tables[-1].address

    def _copied(self, array: Array) -> CudaMemory:
        queue, memory = self._queue, CudaMemory.zeroed(self._queue, array.nbytes)
        queue.write(memory.address, array)
        return memory


@dataclass(frozen=True)
class KernelCall:
    """Launch of a kernel with fixed parameters."""

    function: Any
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    parameters: tuple[Word, ...]

    def start(self, queue: Queue) -> None:
        """Launch the kernel on the queue's stream."""
        self.function(self.grid, self.block, self.parameters, stream=queue.stream)


def kernel_call(
    launch: LoopLaunch, iterations: tuple[int, ...], modules: Modules, constants: Constants
) -> KernelCall:
    """Return the launch of a loop's kernel in the given iterations of the enclosing loops.

    Raises TypeError if the arguments are not those that the function declares.
    """
    require_arguments(launch.function, launch.arguments)
    kernel, given = launch.function.gpu_kernel, launch.arguments
    words = _Words(iterations, constants)
    if isinstance(given, Arguments):
        values = [getattr(given, name) for name in type(given).kinds()]
    else:
        values = [*given]
    *kinds, _ = kernel.parameters
    if len(kinds) != len(values):
        raise InternalError(f"{kernel.symbol} takes {len(kinds)} parameters, not {len(values)}")
    parameters = tuple(words.of(value, kind) for value, kind in zip(values, kinds, strict=True))
    blocks = -(-launch.tasks // kernel.tasks_per_block)
    return KernelCall(
        modules.function(kernel),
        (blocks, 1, 1),
        (kernel.threads, 1, 1),
        (*parameters, np.int64(launch.tasks)),
    )


@dataclass(frozen=True)
class PlanCall:
    """Run of a plan of cuDNN on the addresses of a variant pack."""

    plan: Descriptor
    pack: Descriptor

    @classmethod
    def of(cls, launch: PlanLaunch, iterations: tuple[int, ...], card: int) -> PlanCall:
        """Return the run on a card, by number, in the given iterations of the enclosing loops.

        Raises InternalError for a tensor that is less aligned than the plan takes it to be.
        """
        places = {role: address_of(each, iterations) for role, each in launch.places.items()}
        for role, each in launch.plan.graph.tensors.items():
            if not each.is_virtual and places[role] % each.alignment:
                raise InternalError(f"{launch.plan.engine} needs {each} at another address")
        scratch = launch.scratch
        workspace = 0 if scratch is None else address_of(scratch, iterations)
        return cls(loaded(launch.plan, card), variant_pack(places, workspace))

    def start(self, queue: Queue) -> None:
        """Enqueue the plan on the queue's stream."""
        with queue.lock:
            execute(self.plan, self.pack, queue.cudnn)


@dataclass(frozen=True)
class _Words:
    """Parameters of a kernel: addresses on the card, and numbers."""

    iterations: tuple[int, ...]
    constants: Constants

    def of(self, value: Any, kind: str) -> Any:
        """Return the parameter for an argument of some kind."""
        if isinstance(value, Handle):
            return np.int64(address_of(value, self.iterations))
        if isinstance(value, np.ndarray):
            return np.int64(self.constants.array(value))
        if isinstance(value, tuple):
            entries = tuple(int(self.of(each, _ENTRY)) for each in value)
            return np.int64(self.constants.table(entries))
        return np.float32(value) if kind == FLOAT32 else np.int64(slot_of(value))
