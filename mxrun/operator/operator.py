"""The readable form of an operator: forward and backward on tensors that the system allocated."""

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
    """What a body is told beside its tensors.

    `requested[i]` answers the i-th resource request: temporary space as a tensor of bytes, a random
    stream for this operator and step.
    """

    is_train: bool
    requested: Sequence[Tensor | Stream] = ()

    def space(self, index: int) -> Tensor:
        """The temporary space of request `index`; raises TypeError where another was asked for."""
        resource = self.requested[index]
        if not isinstance(resource, Tensor):
            raise TypeError(f"resource {index} is not temporary space")
        return resource

    def random(self, index: int) -> Stream:
        """The random stream of request `index`; raises TypeError where another was asked for."""
        resource = self.requested[index]
        if not isinstance(resource, Stream):
            raise TypeError(f"resource {index} is not a random stream")
        return resource


class Operator(ABC):
    """Holds no parameters and no buffers: weights are inputs, scratch is requested."""

    @abstractmethod
    def forward(
        self,
        context: OpContext,
        in_data: Sequence[Tensor],
        req: Sequence[OpReqType],
        out_data: Sequence[Tensor],
        aux_states: Sequence[Tensor],
    ) -> None:
        """Compute the outputs as `req` asks."""

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
        """Compute the input gradients as `req` asks.

        Tensors that the property did not declare are None, and so are the gradients of outputs
        that nothing reads and the input gradients that nobody asked for (OpReqType.NULL).
        """
        raise TypeError(f"{type(self).__name__} has no backward")


def assign(out: Tensor | None, req: OpReqType, value: npt.ArrayLike) -> None:
    """Store `value` into `out` as `req` asks: the one place that knows the four requests.

    A single number stands for every element; raises ValueError for any other shape than the
    tensor's.
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
    """The array of a tensor that backward gets; raises TypeError for one that is absent."""
    if tensor is None:
        raise TypeError(
            "backward reads a tensor that declare_backward_dependency does not name, or the "
            "gradient of an output that nothing reads, which is absent"
        )
    return tensor.array
