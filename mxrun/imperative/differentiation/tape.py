"""Recording of operators for differentiation: modes of threads, and recorded calls."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from mxrun.base.context import Context
from mxrun.base.errors import InternalError
from mxrun.base.tensor import Shape
from mxrun.imperative.arrays.chunk import Chunk

if TYPE_CHECKING:
    from mxrun.imperative.arrays.array import NDArrayBase
    from mxrun.imperative.calls.prepared import PreparedOperator

# Bits of the mode in which a thread calls operators.
TRAIN, RECORD = 1, 2


class ThreadMode(threading.local):
    """Mode of a thread: TRAIN while operators run in training mode, RECORD while they record."""

    value = 0


MODE = ThreadMode()
_numbers = itertools.count()


class MarkedVariable:
    """Array whose gradient `backward` computes.

    grad: where that is stored, None with the request `null`. request: `write`, `add` or `null`.
    """

    __slots__ = ("dtype", "grad", "number", "request", "shape")

    def __init__(self, shape: Shape, dtype: str, grad: NDArrayBase | None, request: str) -> None:
        self.shape, self.dtype, self.grad, self.request = shape, dtype, grad, request
        self.number = next(_numbers)


# Memory of one recorded tensor; the array that it belonged to may be gone.
SavedTensor = tuple[Chunk, int]


class RecordedCall:
    """Call of an operator whose inputs depend on marked variables.

    number: in the order of calls. inputs: the entries of the arguments, None for a constant. data,
    outputs: memory of the tensors that backward may read, None for others. extra: extra outputs of
    the kernel. is_freed: whether a backward has freed them.
    """

    __slots__ = ("data", "extra", "inputs", "is_freed", "number", "outputs", "prepared")

    def __init__(
        self,
        prepared: PreparedOperator,
        inputs: tuple[Entry | None, ...],
        data: tuple[SavedTensor | None, ...],
        outputs: tuple[SavedTensor | None, ...],
        extra: tuple[SavedTensor, ...],
    ) -> None:
        self.prepared, self.inputs = prepared, inputs
        self.data, self.outputs, self.extra = data, outputs, extra
        self.number = next(_numbers)
        self.is_freed = False

    def free(self) -> None:
        """Give up the tensors and the calls before this one."""
        self.inputs, self.data, self.outputs, self.extra = (), (), (), ()
        self.is_freed = True


class FunctionCall:
    """Call of a function whose backward is Python code (autograd.Function).

    number, inputs, is_freed: as of a RecordedCall. backward: given the gradients of the outputs,
    returns those of the inputs, None for none. outputs: arrays like the outputs.
    """

    __slots__ = ("backward", "inputs", "is_freed", "number", "outputs")

    def __init__(
        self,
        backward: Callable[[Sequence[Any]], Sequence[Any]],
        inputs: tuple[Entry | None, ...],
        outputs: tuple[TensorLike, ...],
    ) -> None:
        self.backward, self.inputs, self.outputs = backward, inputs, outputs
        self.number = next(_numbers)
        self.is_freed = False

    def free(self) -> None:
        """Give up the function and the calls before this one."""
        self.inputs, self.outputs = (), ()
        self.backward = _freed
        self.is_freed = True


def _freed(gradients: Sequence[Any]) -> Sequence[Any]:
    raise InternalError("a function whose graph was freed is differentiated")


# Context, shape and dtype of an array.
TensorLike = tuple[Context, Shape, str]


class Entry:
    """Output `index` of a recorded call, or a marked variable."""

    __slots__ = ("index", "node")

    def __init__(self, node: Node, index: int = 0) -> None:
        self.node, self.index = node, index

    @property
    def is_live(self) -> bool:
        """Whether the entry can be differentiated: its call was not freed by a backward."""
        node = self.node
        return isinstance(node, MarkedVariable) or not node.is_freed


Node: TypeAlias = "RecordedCall | FunctionCall | MarkedVariable"
