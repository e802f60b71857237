"""Kernels of cuDNN with NumPy in cuDNN's place: results and gradients are those of the bodies.

The loops beside the plans run as on the CPU. What is compared is everything but cuDNN's own
arithmetic: tensors, their order, sizes, strides, types, biases, scratch space.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from cudnn import card_description, needs_cudnn
from cudnn_reference import run
from operator_harness import BackwardData, backward, forward
from operator_row import Row
from operator_rows import ROWS

from mxrun.base.tensor import TensorSpec
from mxrun.operator.kernel import BackwardRequest, ForwardRequest, OpReqType
from mxrun.operator.numpy_kernel import NUMPY
from mxrun.operator.register import AnyProperty, create, implementations

pytestmark = needs_cudnn

Array = npt.NDArray[Any]
PRODUCTS = ("Convolution", "Deconvolution", "FullyConnected", "dot", "_convolution_fused")
TABLE = [row for row in ROWS if row.operator in PRODUCTS]
# In bfloat16 engines are compiled, for up to a second each.
LOW = [
    ("Convolution", {"num_filter": 8, "kernel": (3, 3), "pad": (1, 1)}, [(2, 16, 6, 5)]),
    pytest.param(
        *("Convolution", {"num_filter": 8, "kernel": (3,), "no_bias": True}, [(2, 8, 9)]),
        marks=pytest.mark.soak,
    ),
    pytest.param(
        *("FullyConnected", {"num_hidden": 5, "flatten": False}, [(2, 3, 7)]),
        marks=pytest.mark.soak,
    ),
    ("batch_dot", {"transpose_b": True}, [(3, 5, 4), (3, 6, 4)]),
    (
        "scaled_dot_product_attention",
        {"num_heads": 2, "packed": True, "causal": True},
        [(3, 11, 48)],
    ),
    pytest.param(
        "scaled_dot_product_attention",
        {"num_heads": 2},
        [(2, 5, 16), (2, 7, 16), (2, 7, 24)],
        marks=pytest.mark.soak,
    ),
]


def gradients(prop: AnyProperty, outputs: list[Array]) -> list[Array]:
    """Return the gradient of each output, 0 of a hidden one."""
    random = np.random.default_rng(len(outputs))
    return [
        (index < prop.num_visible_outputs) * random.normal(size=output.shape).astype(np.float32)
        for index, output in enumerate(outputs)
    ]


def check(prop: AnyProperty, inputs: list[Array], dtype: str, tolerance: float) -> bool:
    """Compare a call and its backward with the NumPy body; return whether cuDNN takes them."""
    cudnn, device = implementations(prop.type_string)["cudnn"], card_description("h100")
    shapes = prop.infer_shape(
        [each.shape for each in inputs], [None] * len(prop.list_outputs())
    ).outputs
    blanks = [np.full(shape, np.nan, np.float32) for shape in shapes]
    expected = forward(NUMPY, prop, inputs, blanks)
    assert expected is not None
    # logsumexp, which is hidden, is float32 beside bfloat16.
    types = [dtype] * prop.num_visible_outputs + ["float32"] * len(prop.list_outputs())
    outputs = tuple(TensorSpec(each.shape, kind) for each, kind in zip(blanks, types, strict=False))
    request = ForwardRequest(
        tuple(TensorSpec(each.shape, dtype) for each in inputs),
        outputs,
        (OpReqType.WRITE,) * len(outputs),
        True,
        device,
    )
    kernel = cudnn.prepare_forward(prop, request)
    if kernel is None:
        return False
    found = run(kernel, inputs)
    for got, want in zip(found, expected.outputs, strict=True):
        assert got is not None
        np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance * abs(want).max())
    if prop.type_string.startswith("_"):
        return True
    out_grad = gradients(prop, expected.outputs)
    data = BackwardData(out_grad, inputs, expected.outputs)
    blanks = [np.full(each.shape, np.nan, np.float32) for each in inputs]
    wanted = backward(NUMPY, prop, data, blanks, expected)
    reads = {
        position: index
        for index, position in enumerate(
            prop.declare_backward_dependency(
                [("grad", i) for i in range(len(outputs))],
                [("in", i) for i in range(len(inputs))],
                [("out", i) for i in range(len(outputs))],
            )
        )
    }
    groups = {
        "grad": list(outputs),
        "in": list(request.inputs),
        "out": list(outputs),
    }
    read = {
        name: tuple(spec if (name, i) in reads else None for i, spec in enumerate(specs))
        for name, specs in groups.items()
    }
    back = cudnn.prepare_backward(
        prop,
        BackwardRequest(
            read["grad"],
            read["in"],
            read["out"],
            tuple(TensorSpec(each.shape) for each in inputs),
            (OpReqType.WRITE,) * len(inputs),
            kernel,
            device,
        ),
    )
    assert back is not None
    got_gradients = run(back, data.all)
    for got, want in zip(got_gradients, wanted, strict=True):
        assert got is not None
        np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance * abs(want).max())
    return True


@pytest.mark.parametrize("row", TABLE, ids=str)
def test_float32(row: Row) -> None:
    """Every case of the operator table; in float32 cuDNN takes all but products of two turned."""
    taken = check(row.create(), row.inputs("float32"), "float32", 2e-5)
    p = row.create().parameters
    both = row.operator == "dot" and p.transpose_a and p.transpose_b
    assert taken != both


@pytest.mark.parametrize(("operator", "parameters", "shapes"), LOW, ids=str)
def test_bfloat16(operator: str, parameters: dict[str, Any], shapes: list[Any]) -> None:
    prop = create(operator, parameters)
    unknown = [None] * (len(prop.list_arguments()) - len(shapes))
    inferred = prop.infer_shape([*shapes, *unknown], [None] * len(prop.list_outputs()))
    random = np.random.default_rng(7)
    inputs = [random.normal(size=shape).astype(np.float32) for shape in inferred.inputs]
    assert check(prop, inputs, "bfloat16", 3e-2)
