"""Scalar function of an optimizer's update, with its arguments bound by name.

The function's arguments are tensors of the weight's shape (`weight`, `grad`, the states), numbers
of the step and the operator's own parameters, by their names. The numbers of the step are

- `schedule`: the step's factor of the learning rate; `rate`: the parameter lr times it;
- `first_correction`, `second_correction`: divisors of the first and the second moment.

`grad` is the gradient times rescale_grad and the step's gradient_scale; it is not clipped.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from mxrun.base.dataclass import dataclass
from mxrun.base.device import DeviceDescription
from mxrun.base.once import cached_property
from mxrun.base.params import Parameters
from mxrun.operator import scalar
from mxrun.operator.kernel import OpReqType
from mxrun.operator.native_kernel import LoopPart, Place

Array = npt.NDArray[Any]

GRADIENT_SCALE, SCHEDULE = "gradient_scale", "schedule"
# Numbers of a step that an update may receive as tensors: the tensor, and the index in it.
STEP_NUMBERS = {
    GRADIENT_SCALE: (GRADIENT_SCALE, 0),
    "schedule": (SCHEDULE, 0),
    "first_correction": (SCHEDULE, 1),
    "second_correction": (SCHEDULE, 2),
}
# Parameters from which `grad` and `rate` follow.
_COMMON = ("lr", "rescale_grad")


@dataclass(frozen=True, eq=False)
class UpdateMap:
    """Function of an update and the names of the tensors among its arguments.

    All operators of a kind share one: it is traced once, whatever their parameters are.
    """

    function: Callable[..., Any]
    tensors: tuple[str, ...]

    @cached_property
    def arguments(self) -> tuple[str, ...]:
        """Names of the function's arguments."""
        return tuple(inspect.signature(self.function).parameters)

    @cached_property
    def operands(self) -> tuple[str, ...]:
        """Names of the tensors that the function reads, then those of the step's numbers."""
        return (*(name for name in self.tensors if name in self.arguments), *STEP_NUMBERS)

    @cached_property
    def numbers(self) -> tuple[str, ...]:
        """Names of the parameters that the update reads."""
        given = {*self.operands, "rate"}
        return (*_COMMON, *(n for n in self.arguments if n not in {*given, *_COMMON}))

    def values(self, parameters: Parameters) -> tuple[float, ...]:
        """Return the values of the parameters in `numbers`."""
        return tuple(float(getattr(parameters, name)) for name in self.numbers)

    @cached_property
    def kernel(self) -> scalar.MapKernel:
        """Map of float32 tensors; the step's numbers are single elements."""
        return scalar.compile(self._bound, operands=self.operands, parameters=self.numbers)

    @cached_property
    def operations(self) -> int:
        """Number of arithmetic operations for each element."""
        return self.kernel.operations(range(sum(self._steps)))

    @property
    def _steps(self) -> tuple[int, ...]:
        """1 for a tensor, 0 for a number of the step."""
        return tuple(int(name not in STEP_NUMBERS) for name in self.operands)

    def evaluate(self, tensors: Mapping[str, Array], parameters: Parameters) -> tuple[Array, ...]:
        """Evaluate the function on arrays of one dtype, in its arithmetic."""
        arrays = [tensors[name] for name in self.operands]
        found = scalar.evaluate(self._bound, arrays, self.values(parameters))
        shape = tensors["weight"].shape
        results = found if isinstance(found, tuple) else (found,)
        return tuple(np.broadcast_to(each, shape) for each in results)

    def part(
        self,
        outputs: Sequence[Place],
        places: Mapping[str, Place],
        count: int,
        parameters: Parameters,
        *,
        device: DeviceDescription,
        requests: Sequence[OpReqType],
        stored: Sequence[str] = (),
        scratch_bytes: int = 0,
    ) -> LoopPart:
        """Return the loop; `places` holds the operands by name, `stored` is as in MapKernel."""
        return self.kernel.multi_output_part(
            outputs,
            [places[name] for name in self.operands],
            count,
            self.values(parameters),
            device=device,
            requests=requests,
            steps=self._steps,
            stored=stored,
            scratch_bytes=scratch_bytes,
            in_place=True,
        )

    @cached_property
    def _bound(self) -> Callable[..., Any]:
        """The function of the operands and numbers, in this order."""

        @functools.wraps(self.function)
        def bound(*values: Any) -> Any:
            known = dict(zip((*self.operands, *self.numbers), values, strict=True))
            if "grad" in known:
                known["grad"] = known["grad"] * (known["rescale_grad"] * known[GRADIENT_SCALE])
            known["rate"] = known["lr"] * known["schedule"]
            return self.function(*(known[name] for name in self.arguments))

        return bound


def clipped(x: Any, bound: Any) -> Any:
    """Limit x to [-bound, bound], unless bound is negative; NaN where x is not finite.

    Infinity becomes NaN because the training loop finds divergence by weights and states that are
    not finite.
    """
    limit = scalar.where(bound < 0, float("inf"), bound)
    raised = scalar.where(x < -limit, -limit, x)
    return scalar.where(raised > limit, limit, raised) + (x - x)
