"""Functions of arrays with a backward of their own, in Python (mxnet.autograd.Function)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from mxrun.base.errors import Diagnostic, UserError
from mxrun.imperative.arrays.array import NDArrayBase
from mxrun.imperative.differentiation.modes import is_recording, pause
from mxrun.imperative.differentiation.tape import Entry, FunctionCall


class Function(ABC):
    """Differentiable function; an instance is called once.

        class Sigmoid(Function):
            def forward(self, x):
                y = 1 / (1 + nd.exp(-x))
                self.save_for_backward(y)
                return y

            def backward(self, dy):
                (y,) = self.saved_tensors
                return dy * y * (1 - y)

    Neither method is recorded. forward takes arrays and returns one or several; backward takes the
    gradients of the outputs and returns those of the inputs, in order, None for none.
    """

    def __init__(self) -> None:
        self.saved_tensors: tuple[Any, ...] = ()
        self._is_used = False

    def save_for_backward(self, *arrays: Any) -> None:
        """Keep arrays for backward, as `saved_tensors`."""
        self.saved_tensors = arrays

    @abstractmethod
    def forward(self, *inputs: Any) -> Any:
        """Return the outputs."""

    @abstractmethod
    def backward(self, *out_grads: Any) -> Any:
        """Return the gradients of the inputs."""

    def __call__(self, *inputs: Any) -> Any:
        """Compute the outputs, and record the call if an input is recorded.

        Raises UserError if the instance was called before.
        """
        if self._is_used:
            raise UserError(
                Diagnostic(
                    f"an instance of {type(self).__name__} is called twice",
                    hint="create a new instance for every call, because it saves tensors",
                )
            )
        self._is_used = True
        with pause():
            returned = self.forward(*inputs)
        outputs = [returned] if isinstance(returned, NDArrayBase) else list(returned)
        entries = tuple(each.entry for each in inputs)
        if is_recording() and any(entry is not None and entry.is_live for entry in entries):
            self._record(inputs, entries, outputs)
        return returned

    def _record(
        self,
        inputs: Sequence[NDArrayBase],
        entries: tuple[Entry | None, ...],
        outputs: Sequence[NDArrayBase],
    ) -> None:
        specs = [each.spec for each in inputs]
        name = type(self).__name__

        def backward(gradients: Sequence[Any]) -> Sequence[Any]:
            returned = self.backward(*gradients)
            found = list(returned) if isinstance(returned, (list, tuple)) else [returned]
            if len(found) != len(specs):
                problem = f"backward of {name} returns {len(found)} gradients"
                raise UserError(Diagnostic(problem, expected=f"{len(specs)}, one for each input"))
            for gradient, spec in zip(found, specs, strict=True):
                if gradient is not None and gradient.spec != spec:
                    problem = f"backward of {name} returns a gradient that does not fit its input"
                    got = str(gradient.spec)
                    raise UserError(Diagnostic(problem, expected=str(spec), got=got))
            return found

        kinds = tuple((each.context, each.shape, each.dtype) for each in outputs)
        call = FunctionCall(backward, entries, kinds)
        for index, output in enumerate(outputs):
            if output.entry is not None:
                raise UserError(f"forward of {name} returns an array that is already recorded")
            output.entry = Entry(call, index)
