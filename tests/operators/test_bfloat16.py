"""Every operator with bfloat16 activations, compared with itself in float32."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest
from executors import cpu, executor_for
from operator_row import Row
from operator_rows import ROWS

from mxrun.base.layer_options import LayerOptions
from mxrun.base.tensor import TensorSpec
from mxrun.compiler.compile import compile_plan
from mxrun.compiler.request import CompileRequest
from mxrun.graph.graph import Step
from mxrun.graph.node import Node, NodeEntry
from mxrun.graph.phases import TRAIN
from mxrun.graph.symbol import Symbol
from mxrun.operator.property import Precision
from mxrun.operator.register import create

Array = npt.NDArray[Any]
BFLOAT16 = ml_dtypes.bfloat16
PARAMETERS = ("weight", "bias", "gamma", "beta")
# Half the distance from 1 to the next number.
ROUNDING = 2.0**-9
# A number that rounding moves onto a limit passes its gradient. These operators are compared with
# their unfused parts in the tests of fusion.
STEPS = "_batch_norm_limited"
LOW = [
    row
    for row in ROWS
    if row.create().precision is not Precision.FLOAT32
    and row.is_train
    and not (row.operator == STEPS and "limits" in row.parameters)
]
# The operators of convolutional networks run on bfloat16 memory directly.
NATIVE = {
    "Activation": {"act_type": "relu"},
    "BatchNorm": {},
    "LayerNorm": {},
    "RMSNorm": {},
    "Convolution": {"kernel": (3, 3), "num_filter": 16},
    "FullyConnected": {"num_hidden": 8},
    "Pooling": {"kernel": (2, 2), "pool_type": "max"},
    "_batch_norm_limited": {"residual": False},
    "clip": {"a_min": -1.0, "a_max": 1.0},
    "batch_dot": {"transpose_b": True},
    "broadcast_mul": {},
    "elemwise_add": {},
    "add_n": {"num_args": 3},
}

SECOND = {"batch_dot": {"rhs": (4, 16, 5, 6)}, "broadcast_mul": {"rhs": (16, 1, 6)}}


def rounded(array: Array) -> Array:
    """The nearest numbers of bfloat16, in the array's own type."""
    return array.astype(BFLOAT16).astype(array.dtype) if array.dtype == np.float32 else array


def network(row: Row, precision: str) -> Symbol:
    """Return a network of the operator, optionally in bfloat16; the loss weighs its outputs."""
    prop, entries, options = row.create(), [], LayerOptions(precision=precision)
    for name in row.names:
        entry = NodeEntry(Node(name))
        if name in prop.list_arguments() and name not in (*PARAMETERS, *prop.label_arguments):
            copy = create("identity", {})
            entry = NodeEntry(Node(f"low_{name}", copy, (entry,), options=options))
        entries.append(entry)
    made = NodeEntry(Node("made", prop, tuple(entries), options=options))
    weighed = Node("weighed", create("elemwise_mul", {}), (made, NodeEntry(Node("weights"))))
    loss = Node("loss", create("MakeLoss", {}), (NodeEntry(weighed),))
    return Symbol([NodeEntry(loss), made])


def run(row: Row, precision: str, implementation: str = "auto") -> tuple[dict[str, Array], Step]:
    """The first output and all gradients, and the operator's step."""
    symbol, inputs = (
        network(row, precision),
        dict(zip(row.names, row.inputs("float32"), strict=True)),
    )
    inputs = {name: rounded(array) for name, array in inputs.items()}
    output = row.blank_outputs("float32")[0]
    weights = np.random.default_rng(4).standard_normal(output.shape).astype("float32")
    inputs["weights"] = rounded(weights)
    wanted = tuple(
        name
        for name, kind in zip(
            row.create().list_arguments(), row.create().list_gradients(), strict=True
        )
        if kind.value == "computes"
    )
    specs = {name: TensorSpec(array.shape, str(array.dtype)) for name, array in inputs.items()}
    labels = {name: specs[name] for name in row.create().label_arguments if name in specs}
    request = CompileRequest(
        labels,
        shapes={name: spec.shape for name, spec in specs.items() if name not in labels},
        gradients=wanted,
        phases=(TRAIN,),
        device=cpu(2),
        implementation=implementation,
    )
    executor = executor_for(compile_plan(symbol, request))
    for block in executor.plan.pinned:
        executor.tensor(block.name).write(inputs.get(block.name, 0))
    executor.run(TRAIN)
    found = {name: executor.result(TRAIN, f"{name}_grad").read() for name in wanted}
    found["output"] = executor.result(TRAIN, symbol.list_outputs()[1]).read()
    steps = executor.plan.phases[TRAIN].steps
    return found, next(step for step in steps if step.name == "made")


def close(got: Array, expected: Array, name: str) -> None:
    """Assert equality up to a few roundings, and sums of rounded numbers."""
    assert got.dtype == expected.dtype
    finite = expected[np.isfinite(expected)]
    scale = float(np.abs(finite).max()) if finite.size else 0.0
    # Attention's mask has no other gradient than differences of sums over the rounded output.
    scale *= 2 if name == "mask" else 1
    np.testing.assert_allclose(
        got, expected, 8 * ROUNDING, 6 * ROUNDING * scale, equal_nan=True, err_msg=name
    )


@pytest.mark.parametrize("row", LOW, ids=str)
def test_bfloat16_gives_the_numbers_of_float32_but_for_rounding(row: Row) -> None:
    low, _ = run(row, "bfloat16")
    full, _ = run(row, "float32")
    for name, expected in full.items():
        close(low[name], expected, name)


@pytest.mark.parametrize("operator", NATIVE)
def test_networks_run_on_bfloat16_memory(operator: str) -> None:
    row = Row(operator, NATIVE[operator], (4, 16, 6, 6), SECOND.get(operator, {}))
    _, step = run(row, "bfloat16")
    assert step.kernel is not None
    output = step.kernel.outputs[0]
    assert output is not None
    assert output.dtype == "bfloat16", step.kernel.implementation
    first = step.kernel.inputs[0]
    assert first is not None
    assert first.dtype == "bfloat16"
    # Statistics and parameters are float32, but that products read their own copy of a weight.
    others = [spec for spec in step.kernel.outputs[1:] if spec is not None]
    assert all(spec.dtype == "float32" for spec in others)
