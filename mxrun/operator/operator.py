"""NumPy form of an operator: forward and backward on tensors allocated by the system.

Both methods receive one call, which holds the tensors by name:

    def forward(self, call: ForwardCall) -> None:
        call.store(output=np.matmul(call.inputs.data, call.inputs.weight.T))

    def backward(self, call: BackwardCall) -> None:
        gradient = call.output_gradients.output
        call.store(data=np.matmul(gradient, call.inputs.weight))
        if call.is_requested("weight"):
            call.store(weight=np.matmul(gradient.T, call.inputs.data))

What a call reads is read-only, because other operators read the same memory: `data += 1` raises
ValueError. Only the inputs that list_mutated_inputs names are writable, as the results are.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt

from mxrun.base.dataclass import dataclass
from mxrun.operator.kernel import OpReqType
from mxrun.runtime.random import Stream

Array = npt.NDArray[Any]
T = TypeVar("T")
# Temporary space, or a function that returns the random stream of the present step.
Resource = Array | Callable[[], Stream]


class ByName(Generic[T]):
    """Values of an operator's inputs or outputs: `inputs.data`, `inputs["data"]` or `inputs[0]`.

    Iteration yields the values in the operator's order. A tensor that a call lacks is absent:
    reading it raises TypeError, and `"bias" in inputs` is false, as it is for a name that the
    operator does not list, which raises AttributeError.

    kind: noun for messages. absence: reasons why a value may be None, for messages.
    """

    _kind: str
    _absence: str
    _values: dict[str, T | None]
    _order: tuple[str, ...]

    def __init__(
        self, kind: str, names: Sequence[str], values: Sequence[T | None], absence: str = ""
    ) -> None:
        listed = dict(zip(names, values, strict=True))
        # Attributes of the instance, so that reading a value takes no call.
        self.__dict__.update((name, value) for name, value in listed.items() if value is not None)
        self.__dict__.update(_kind=kind, _absence=absence, _values=listed, _order=tuple(names))

    def __getattr__(self, name: str) -> T:
        # Python calls this only for names that are no attributes.
        if name.startswith("__"):
            raise AttributeError(name)
        if name in self._values:
            raise TypeError(f"backward reads the {self._kind} {name!r}, {self._absence}")
        known = ", ".join(self._order) or "none"
        raise AttributeError(f"the operator has no {self._kind} {name!r}; it has: {known}")

    def __getitem__(self, key: int | str) -> T:
        name = key if isinstance(key, str) else self._order[key]
        value = self._values.get(name)
        return self.__getattr__(name) if value is None else value

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(
            f"{name} cannot be replaced; store results with call.store({name}=...)"
        )

    def __iter__(self) -> Iterator[T]:
        return (self[name] for name in self._order)

    def __len__(self) -> int:
        return len(self._order)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self._values.get(name) is not None


@dataclass(frozen=True, eq=False)
class OperatorCall(ABC):
    """Tensors, requests and resources of one call of a body.

    requests: write mode of each tensor that the call computes.
    is_train: whether the call is part of a training step.
    resources: temporary space and random streams, in the order of the property's requests.
    """

    inputs: ByName[Array]
    outputs: ByName[Array]
    requests: ByName[OpReqType]
    is_train: bool
    resources: Sequence[Resource]

    @property
    @abstractmethod
    def results(self) -> ByName[Array]:
        """Tensors that the call computes; one with a null request is read-only zeros."""

    def is_requested(self, name: str) -> bool:
        """Return whether a result is wanted: its request is not null (OpReqType.NULL)."""
        return self.requests[name] is not OpReqType.NULL

    def store(self, *values: npt.ArrayLike, **named: npt.ArrayLike) -> None:
        """Store results according to their requests: some by name, or all of them in order.

        A null request skips the value, an add-to request adds it. A scalar is broadcast to every
        element. Raises ValueError for another number of values in order, and if the shape of a
        value differs from the tensor's; AttributeError for an unknown name.
        """
        if values:
            named |= self._in_order(values)
        for name, value in named.items():
            if self.is_requested(name):
                _store(name, self.results[name], self.requests[name], value)

    def _in_order(self, values: Sequence[npt.ArrayLike]) -> dict[str, npt.ArrayLike]:
        names = self.results._order
        if len(values) != len(names):
            raise ValueError(f"{len(values)} values for {', '.join(names)}")
        return dict(zip(names, values, strict=True))

    def space(self, index: int) -> Array:
        """Temporary space of request `index`, as uint8; raises TypeError for another kind."""
        resource = self.resources[index]
        if not isinstance(resource, np.ndarray):
            raise TypeError(f"resource {index} is not temporary space")
        return resource

    def random(self, index: int) -> Stream:
        """Random stream of request `index` at this step; raises TypeError for another kind."""
        resource = self.resources[index]
        if isinstance(resource, np.ndarray):
            raise TypeError(f"resource {index} is not a random stream")
        return resource()


@dataclass(frozen=True, eq=False)
class ForwardCall(OperatorCall):
    """Call of forward, which computes `outputs` from `inputs` and `auxiliary` states."""

    auxiliary: ByName[Array]

    @property
    def results(self) -> ByName[Array]:
        """The outputs."""
        return self.outputs


@dataclass(frozen=True, eq=False)
class BackwardCall(OperatorCall):
    """Call of backward, which computes `input_gradients`; requests and results have the inputs'
    names.

    A tensor is absent if the property does not declare it (declare_backward_dependency), or if it
    is the gradient of an output that nothing reads.
    """

    output_gradients: ByName[Array]
    input_gradients: ByName[Array]

    @property
    def results(self) -> ByName[Array]:
        """The gradients of the inputs."""
        return self.input_gradients


class Operator(ABC):
    """Stateless operator body: weights are inputs, scratch space is requested."""

    @abstractmethod
    def forward(self, call: ForwardCall) -> None:
        """Compute the outputs and store those that are requested."""

    def backward(self, call: BackwardCall) -> None:
        """Compute the input gradients and store those that are requested."""
        raise TypeError(f"{type(self).__name__} has no backward")


def _store(name: str, target: Array, request: OpReqType, value: npt.ArrayLike) -> None:
    if np.shape(value) not in (target.shape, ()):
        raise ValueError(
            f"a value of shape {np.shape(value)} for {name}, a tensor of shape {target.shape}"
        )
    if request is OpReqType.ADD:
        np.add(target, value, out=target, casting="same_kind")
    else:
        np.copyto(target, value, casting="same_kind")
