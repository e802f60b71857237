"""oneDNN's smooth rectifiers, differentiated from their input."""

from __future__ import annotations

from enum import IntEnum
from functools import cache

from mxrun.backend.onednn.descriptor import describe
from mxrun.backend.onednn.library import require
from mxrun.backend.onednn.primitive import FORWARD_TRAINING, Argument, Asked, Primitive, build
from mxrun.base.tensor import TensorSpec


class Rectifier(IntEnum):
    """elu: x above 0, else slope (e^x - 1); gelu: x times the normal distribution's function."""

    ELU = 0x22
    GELU = 0x31


@cache
def rectifier_forward(
    tensor: TensorSpec, function: Rectifier, slope: float, threads: int
) -> Primitive:
    """SOURCE → OUTPUT = function(SOURCE), in place if both have one address."""
    asked: dict[int, Asked] = {Argument.SOURCE: Asked(tensor), Argument.OUTPUT: Asked(tensor)}
    handles = [describe(tensor).value] * 2
    arguments = (require().engine, FORWARD_TRAINING, function, *handles, slope, 0.0)
    return build("eltwise_forward", arguments, asked, threads)


@cache
def rectifier_backward(
    tensor: TensorSpec, function: Rectifier, slope: float, threads: int
) -> Primitive:
    """OUTPUT_GRAD and SOURCE → SOURCE_GRAD, in place if both gradients have one address."""
    asked: dict[int, Asked] = {
        Argument.SOURCE_GRAD: Asked(tensor),
        Argument.OUTPUT_GRAD: Asked(tensor),
        Argument.SOURCE: Asked(tensor),
    }
    handles = [describe(tensor).value] * 3
    arguments = (require().engine, function, *handles, slope, 0.0, None)
    return build("eltwise_backward", arguments, asked, threads)
