"""NumPy form of an operator: forward and backward on tensors allocated by the system."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from mxrun.operator.kernel import OpReqType
from mxrun.operator.tensor import Tensor
from mxrun.runtime.random import Stream


@dataclass(frozen=True)
class OpContext:
    """Execution context of an operator body: training flag and requested resources.

    `requested[i]` is the resource of the i-th request: temporary space as a tensor of bytes, or a
    random stream for this operator and step.
    """

    is_train: bool
    requested: Sequence[Tensor | Stream] = ()

    def space(self, index: int) -> Tensor:
        """Temporary space of request `index`; raises TypeError if that request has another kind."""
        resource = self.requested[index]
        if not isinstance(resource, Tensor):
            raise TypeError(f"resource {index} is not temporary space")
        return resource

    def random(self, index: int) -> Stream:
        """Random stream of request `index`; raises TypeError if that request has another kind."""
        resource = self.requested[index]
        if not isinstance(resource, Stream):
            raise TypeError(f"resource {index} is not a random stream")
        return resource


class Operator(ABC):
    """Stateless operator body: weights are inputs, scratch space is requested."""

    @abstractmethod
    def forward(
        self,
        context: OpContext,
        in_data: Sequence[Tensor],
        req: Sequence[OpReqType],
        out_data: Sequence[Tensor],
        aux_states: Sequence[Tensor],
    ) -> None:
        """Compute the outputs according to `req`."""

    def backward(
        self,
        context: OpContext,
        out_grad: Sequence[Tensor | None],
        in_data: Sequence[Tensor | None],
        out_data: Sequence[Tensor | None],
        req: Sequence[OpReqType],
        in_grad: Sequence[Tensor | None],
        aux_states: Sequence[Tensor],
    ) -> None:
        """Compute the input gradients according to `req`.

        A tensor is None if the property does not declare it, if it is the gradient of an unused
        output, or if it is an input gradient with a null request (OpReqType.NULL).
        """
        raise TypeError(f"{type(self).__name__} has no backward")


def assign(out: Tensor | None, req: OpReqType, value: npt.ArrayLike) -> None:
    """Store `value` into `out` according to `req`.

    A scalar is broadcast to every element. Raises ValueError if another value's shape differs from
    the tensor's.
    """
    if req is OpReqType.NULL or out is None:
        return
    target: npt.NDArray[Any] = out.array
    if np.shape(value) not in (target.shape, ()):
        raise ValueError(f"a value of shape {np.shape(value)} for a tensor of {target.shape}")
    if req is OpReqType.ADD:
        np.add(target, value, out=target, casting="same_kind")
    else:
        np.copyto(target, value, casting="same_kind")


def require_array(tensor: Tensor | None) -> npt.NDArray[Any]:
    """Return the array of a tensor passed to backward; raises TypeError if it is absent."""
    if tensor is None:
        raise TypeError(
            "backward reads a tensor that declare_backward_dependency does not name, or the "
            "gradient of an output that nothing reads, which is absent"
        )
    return tensor.array
