"""Maps run on NumPy arrays through the native loop that operators use."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from executors import cpu
from launches import run

from mxrun.base.dtype import BFLOAT16, FLOAT32
from mxrun.operator import scalar
from mxrun.operator.kernel import OpReqType
from mxrun.operator.native_kernel import source, target

Array = npt.NDArray[Any]


def five_operations(gradient: Any, x: Any, y: Any, scale: Any) -> Any:
    """Map of three tensors and a number, exact in NumPy and in compiled code."""
    return gradient * scalar.maximum(x * y + scale, 0.0) - x


def run_map(
    function: Callable[..., Any],
    operands: Sequence[Array],
    parameters: dict[str, float] | None = None,
    *,
    output: Array | None = None,
    threads: int = 1,
    request: OpReqType = OpReqType.WRITE,
    steps: Sequence[int] | None = None,
) -> Array:
    """Run the compiled map into `output`, or into a new array of NaN or ones of its type.

    If any of the arrays is bfloat16, the map computes in float32.
    """
    numbers = parameters or {}
    dtype = operands[0].dtype
    if output is None:
        count = max(operand.size for operand in operands)
        output = np.full(count, np.nan if dtype.kind == "f" else 1, dtype)
    stored = [str(array.dtype) for array in (output, *operands)]
    low = BFLOAT16 in stored
    kernel = scalar.compile(
        function,
        parameters=tuple(numbers),
        dtype=FLOAT32 if low else str(dtype),
        result_dtype=FLOAT32 if low else str(output.dtype),
    )
    part = kernel.part(
        target(0),
        [source(index) for index in range(len(operands))],
        output.size,
        tuple(numbers.values()),
        device=cpu(threads),
        request=request,
        steps=steps,
        stored=stored if low else (),
    )
    run(part, operands, [output], threads=threads)
    return output


def units_off(found: Array, wanted: Array) -> Array:
    """Return the error of `found` against the float64 numbers `wanted`, in units in the last place.

    The error is infinite if one of the two is NaN or infinite and the other differs.
    """
    with np.errstate(all="ignore"):
        rounded = wanted.astype(found.dtype)
    finite = np.isfinite(found) & np.isfinite(rounded)
    # The spacing at the largest number itself is not defined.
    largest = np.nextafter(np.finfo(found.dtype).max, found.dtype.type(0))
    unit = np.spacing(np.minimum(np.abs(np.where(finite, rounded, 1)), largest)).astype(np.float64)
    difference = np.where(finite, found, 0).astype(np.float64) - np.where(finite, wanted, 0)
    same = (found == rounded) | (np.isnan(found) & np.isnan(rounded))
    result: Array = np.where(finite, np.abs(difference) / unit, np.where(same, 0.0, np.inf))
    return result
