"""ONNX translators of elementwise operators, reductions, products and shape operators."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from mxrun.convert.onnx_model import ELEMENT_TYPES
from mxrun.convert.onnx_writer import TRANSLATORS, NotInOnnx, OperatorWriter, translates

_FLATTENED_RANK = 2

_UNARY = {
    "abs": "Abs",
    "arccos": "Acos",
    "arccosh": "Acosh",
    "arcsin": "Asin",
    "arcsinh": "Asinh",
    "arctan": "Atan",
    "arctanh": "Atanh",
    "ceil": "Ceil",
    "cos": "Cos",
    "cosh": "Cosh",
    "erf": "Erf",
    "exp": "Exp",
    "floor": "Floor",
    "log": "Log",
    "negative": "Neg",
    "reciprocal": "Reciprocal",
    "relu": "Relu",
    "sigmoid": "Sigmoid",
    "sign": "Sign",
    "sin": "Sin",
    "sinh": "Sinh",
    "softsign": "Softsign",
    "sqrt": "Sqrt",
    "tan": "Tan",
    "tanh": "Tanh",
}
_BINARY = {"add": "Add", "sub": "Sub", "mul": "Mul", "div": "Div"}
_ARITHMETIC = {
    **{f"elemwise_{name}": operator for name, operator in _BINARY.items()},
    **{f"broadcast_{name}": operator for name, operator in _BINARY.items()},
    "_maximum": "Max",
    "_minimum": "Min",
    "_power": "Pow",
    "broadcast_maximum": "Max",
    "broadcast_minimum": "Min",
    "broadcast_power": "Pow",
}
_COMPARISONS = {
    "equal": "Equal",
    "greater": "Greater",
    "greater_equal": "GreaterOrEqual",
    "lesser": "Less",
    "lesser_equal": "LessOrEqual",
}
# ONNX operator, and whether the scalar is its left operand.
_SCALAR = {
    "_plus_scalar": ("Add", False),
    "_minus_scalar": ("Sub", False),
    "_rminus_scalar": ("Sub", True),
    "_mul_scalar": ("Mul", False),
    "_div_scalar": ("Div", False),
    "_rdiv_scalar": ("Div", True),
    "_power_scalar": ("Pow", False),
    "_rpower_scalar": ("Pow", True),
    "_maximum_scalar": ("Max", False),
    "_minimum_scalar": ("Min", False),
}
_REDUCTIONS = {"max": "ReduceMax", "mean": "ReduceMean", "min": "ReduceMin", "prod": "ReduceProd"}


def _direct(operator: str) -> Callable[[OperatorWriter], str]:
    def translate(place: OperatorWriter) -> str:
        return place.node(operator, *place.inputs)

    return translate


def _compared(operator: str) -> Callable[[OperatorWriter], str]:
    def translate(place: OperatorWriter) -> str:
        truth = place.node(operator, *place.inputs)
        return place.node("Cast", truth, to=ELEMENT_TYPES["float32"])

    return translate


def _with_scalar(operator: str, left: bool) -> Callable[[OperatorWriter], str]:
    def translate(place: OperatorWriter) -> str:
        data, scalar = place.inputs[0], place.numbers(place.prop.parameters.scalar)
        return place.node(operator, *((scalar, data) if left else (data, scalar)))

    return translate


for _name, _operator in {**_UNARY, **_ARITHMETIC, "add_n": "Sum"}.items():
    TRANSLATORS.add(_name, _direct(_operator))
for _name, _operator in _COMPARISONS.items():
    TRANSLATORS.add(f"_{_name}", _compared(_operator))
    TRANSLATORS.add(f"broadcast_{_name}", _compared(_operator))
for _name, (_operator, _left) in _SCALAR.items():
    TRANSLATORS.add(_name, _with_scalar(_operator, _left))


@translates("square")
def square(place: OperatorWriter) -> str:
    """Translate to data * data."""
    return place.node("Mul", place.inputs[0], place.inputs[0])


@translates("rsqrt")
def reciprocal_root(place: OperatorWriter) -> str:
    """Translate to 1 / sqrt(data)."""
    return place.node("Reciprocal", place.node("Sqrt", place.inputs[0]))


@translates("clip")
def clip(place: OperatorWriter) -> str:
    """Translate to Clip with two bounds."""
    p = place.prop.parameters
    return place.node("Clip", place.inputs[0], place.numbers(p.a_min), place.numbers(p.a_max))


@translates("hard_sigmoid")
def hard_sigmoid(place: OperatorWriter) -> str:
    """Translate to HardSigmoid: alpha * data + beta, clipped to [0, 1]."""
    p = place.prop.parameters
    return place.node("HardSigmoid", place.inputs[0], alpha=float(p.alpha), beta=float(p.beta))


@translates("Cast")
def cast(place: OperatorWriter) -> str:
    """Translate to Cast."""
    return place.node("Cast", place.inputs[0], to=ELEMENT_TYPES[place.prop.parameters.dtype])


@translates("where")
def where(place: OperatorWriter) -> str:
    """Translate to Where: the second input where the first is not zero, else the third."""
    if place.shapes[0] != place.shapes[1]:
        raise NotInOnnx("a condition of another shape")
    truth = place.node("Cast", place.inputs[0], to=ELEMENT_TYPES["bool"])
    return place.node("Where", truth, *place.inputs[1:])


@translates("take")
def take(place: OperatorWriter) -> str:
    """Translate to Gather."""
    axis = place.prop.parameters.axis % len(place.shapes[0])
    return place.node("Gather", place.inputs[0], _indices(place, axis), axis=axis)


@translates("pick")
def pick(place: OperatorWriter) -> str:
    """Translate to GatherElements of one element along the axis."""
    rank = len(place.shapes[0])
    axis = place.prop.parameters.axis % rank
    index, one = _indices(place, axis), place.integers((axis,))
    if 1 < rank != len(place.shapes[1]):
        index = place.node("Unsqueeze", index, one)
    picked = place.node("GatherElements", place.inputs[0], index, axis=axis)
    keeps = rank == 1 or place.prop.parameters.keepdims
    return picked if keeps else place.node("Squeeze", picked, one)


def _indices(place: OperatorWriter, axis: int) -> str:
    """Return the indices as int64 inside of an axis; those of mode raise are left alone."""
    size, mode = place.shapes[0][axis], place.prop.parameters.mode
    if axis == 0 and place.free_shapes[0][0] == -1:
        raise NotInOnnx("axis 0, which is the batch")
    whole = place.node("Cast", place.inputs[1], to=ELEMENT_TYPES["int64"])
    if mode == "wrap":
        return place.node("Mod", whole, place.array(np.array(size, np.int64)))
    bounds = (place.array(np.array(bound, np.int64)) for bound in (0, size - 1))
    return whole if mode == "raise" else place.node("Clip", whole, *bounds)


@translates("one_hot")
def one_hot(place: OperatorWriter) -> str:
    """Translate to a comparison of the indices with the numbers of the classes."""
    p = place.prop.parameters
    whole = place.node("Cast", place.inputs[0], to=ELEMENT_TYPES["int64"])
    last = place.integers((len(place.shapes[0]),))
    classes = place.integers(range(p.depth))
    truth = place.node("Equal", place.node("Unsqueeze", whole, last), classes)
    values = place.node("Where", truth, place.numbers(p.on_value), place.numbers(p.off_value))
    return place.node("Cast", values, to=ELEMENT_TYPES[p.dtype])


@translates("softmax", "log_softmax")
def softmax(place: OperatorWriter) -> str:
    """Translate to Softmax or LogSoftmax over one axis, of data divided by the temperature."""
    p, data = place.prop.parameters, place.inputs[0]
    if p.temperature is not None:
        data = place.node("Div", data, place.numbers(p.temperature))
    operator = "Softmax" if place.prop.type_string == "softmax" else "LogSoftmax"
    return place.node(operator, data, axis=int(p.axis))


@translates("sum", *_REDUCTIONS)
def reduction(place: OperatorWriter) -> str:
    """Translate to a reduction over some axes; MXNet's complete reduction has shape (1,)."""
    p, rank = place.prop.parameters, len(place.shapes[0])
    named = tuple(range(rank)) if p.axis in (None, ()) else tuple(a % rank for a in p.axis)
    others = tuple(axis for axis in range(rank) if axis not in named)
    axes = others if p.exclude and p.axis not in (None, ()) else named
    keep = int(p.keepdims)
    if place.prop.type_string == "sum":
        value = place.node("ReduceSum", place.inputs[0], place.integers(axes), keepdims=keep)
    else:
        operator = _REDUCTIONS[place.prop.type_string]
        value = place.node(operator, place.inputs[0], axes=axes, keepdims=keep)
    scalar = len(axes) == rank and not keep
    return place.node("Reshape", value, place.integers((1,))) if scalar else value


@translates("dot", "batch_dot")
def dot(place: OperatorWriter) -> str:
    """Translate to MatMul of matrices or of equal stacks; either side may be transposed."""
    p, ranks = place.prop.parameters, [len(shape) for shape in place.shapes]
    matrices = _FLATTENED_RANK + (place.prop.type_string == "batch_dot")
    if ranks != [matrices, matrices]:
        raise NotInOnnx(f"tensors of ranks {ranks[0]} and {ranks[1]}")
    swapped = (*range(matrices - 2), matrices - 1, matrices - 2)
    sides = [
        place.node("Transpose", value, perm=swapped) if transposed else value
        for value, transposed in zip(place.inputs, (p.transpose_a, p.transpose_b), strict=True)
    ]
    return place.node("MatMul", *sides)


@translates("Flatten")
def flatten(place: OperatorWriter) -> str:
    """Translate to Flatten, which merges all axes but the first."""
    return place.node("Flatten", place.inputs[0], axis=1)


@translates("Reshape", "expand_dims", "squeeze")
def reshape(place: OperatorWriter) -> str:
    """Translate to Reshape to the inferred shape."""
    return place.reshape(place.inputs[0], place.free_output_shapes[0])


@translates("transpose")
def transpose(place: OperatorWriter) -> str:
    """Translate to Transpose by the given permutation, by default the reversed axes."""
    rank = len(place.shapes[0])
    axes = tuple(a % rank for a in place.prop.parameters.axes) or tuple(reversed(range(rank)))
    return place.node("Transpose", place.inputs[0], perm=axes)


@translates("SwapAxis")
def swap_axes(place: OperatorWriter) -> str:
    """Translate to a Transpose that exchanges two axes."""
    p, axes = place.prop.parameters, list(range(len(place.shapes[0])))
    axes[p.dim1], axes[p.dim2] = axes[p.dim2], axes[p.dim1]
    return place.node("Transpose", place.inputs[0], perm=tuple(axes))


@translates("Concat")
def concat(place: OperatorWriter) -> str:
    """Translate to Concat along an axis."""
    return place.node("Concat", *place.inputs, axis=int(place.prop.parameters.dim))


@translates("SliceChannel")
def slice_channel(place: OperatorWriter) -> list[str]:
    """Translate to Split into equal parts along an axis; `squeeze_axis` removes the axis."""
    p, rank = place.prop.parameters, len(place.shapes[0])
    axis = p.axis % rank
    parts = place.split("Split", place.inputs, p.num_outputs, axis=axis)
    if not p.squeeze_axis:
        return parts
    return [place.node("Squeeze", part, place.integers((axis,))) for part in parts]
