"""Maps of operands that repeat along axes, in all decompositions into chunks."""

from __future__ import annotations

import itertools
from typing import Any

import launches
import numpy as np
import numpy.typing as npt
import pytest
from executors import cpu
from operator_harness import forward

from mxrun.base.tensor import TensorSpec
from mxrun.operator import scalar
from mxrun.operator.kernel import ForwardRequest, OpReqType
from mxrun.operator.native_kernel import KernelPart, source, target
from mxrun.operator.register import create, implementations
from mxrun.ops.strided_map import permuted_part, strided_part

Array = npt.NDArray[Any]
Shape = tuple[int, ...]
NULL, WRITE, ADD = OpReqType.NULL, OpReqType.WRITE, OpReqType.ADD

PAIRS_OF_REQUESTS = [*itertools.product((NULL, WRITE, ADD), repeat=2)][1:]

# Three threads have 49,152 elements and more to divide.
PAIRS: dict[str, tuple[Shape, Shape]] = {
    "short rows, one in all": ((16_500, 3), (3,)),
    "short rows, one number each": ((16_500, 3), (16_500, 1)),
    "pairs": ((26_000, 2), (26_000, 1)),
    "rows of a vector": ((3_100, 16), (3_100, 1)),
    "rows of a vector and one": ((2_900, 17), (1, 17)),
    "long rows, one in all": ((51, 1_001), (1, 1_001)),
    "long rows, one number each": ((51, 1_001), (51, 1)),
    "rows that fill chunks": ((49, 1_024), (1_024,)),
    "rows of several chunks": ((23, 2_311), (1, 2_311)),
    "long rows, repeated and moving": ((7, 1, 1_300), (1, 6, 1)),
    "long rows, both repeat": ((9, 1, 1_027), (1, 6, 1_027)),
    "both repeat": ((61, 1, 33), (1, 29, 33)),
    "both repeat in turn": ((41, 1, 97), (1, 53, 1)),
    "many axes": ((9, 1, 30, 1, 7), (1, 4, 30, 8, 1)),
    "short rows, repeated and moving": ((200, 1, 5), (200, 51, 1)),
    "a number and all": ((1, 1), (230, 231)),
    "channels": ((16, 50, 8, 8), (1, 50, 1, 1)),
}


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("pair", PAIRS, ids=str)
def test_O1_a_repeated_operand_is_the_same_wherever_chunks_end(pair: str, threads: int) -> None:
    random = np.random.default_rng(0)
    lhs, rhs = (random.standard_normal(shape).astype("float32") for shape in PAIRS[pair])
    for inputs in ([lhs, rhs], [rhs, lhs]):
        expected = inputs[0] - inputs[1]
        run = forward(
            implementations("broadcast_sub")["jit"],
            create("broadcast_sub", {}),
            inputs,
            [np.full_like(expected, np.nan)],
            threads=threads,
        )
        assert run is not None
        np.testing.assert_array_equal(run.outputs[0], expected)


def test_O4_a_repeated_operand_is_added_in_the_same_pass() -> None:
    """Adding to the output takes no more scratch memory than writing it."""
    shapes = ((300, 200), (300, 1))
    specs = tuple(map(TensorSpec, shapes))
    jit, prop = implementations("broadcast_mul")["jit"], create("broadcast_mul", {})
    kernels = [
        jit.prepare_forward(prop, ForwardRequest(specs, (specs[0],), (request,), True, cpu(2)))
        for request in (OpReqType.WRITE, OpReqType.ADD)
    ]
    writing, adding = (kernel.workspace_bytes for kernel in kernels if kernel is not None)
    assert writing == adding < 64 * 1024
    lhs, rhs = np.full(shapes[0], 2, "float32"), np.full(shapes[1], 3, "float32")
    run = forward(jit, prop, [lhs, rhs], [np.ones_like(lhs)], [OpReqType.ADD], threads=2)
    assert run is not None
    np.testing.assert_array_equal(run.outputs[0], np.full_like(lhs, 7))


def run(part: KernelPart, inputs: list[Array], *outputs: Array, threads: int = 3) -> Array:
    """Run a map alone and return its first output; asserts that it stays within its scratch."""
    scratch = np.full(part.scratch_bytes // 4 + 32, np.nan, "float32")
    before = -scratch.ctypes.data % 64
    launches.run(part, inputs, outputs, scratch[before // 4 :], threads)
    assert np.isnan(scratch[before // 4 + part.scratch_bytes // 4 :]).all()
    return outputs[0]


def test_numbers_reach_maps_of_chunks() -> None:
    """Three operands, two of which repeat, and two numbers."""
    random = np.random.default_rng(0)
    shapes = ((120, 500), (120, 1), (500,))
    tensors = [random.standard_normal(shape).astype("float32") for shape in shapes]

    def between(x: Any, low: Any, high: Any, factor: Any, height: Any) -> Any:
        return scalar.where(scalar.logical_and(low < x, x < high), x * factor, height)

    part = strided_part(
        scalar.compile(between, parameters=("factor", "height")),
        [target(0)],
        TensorSpec(shapes[0]),
        [(source(index), TensorSpec(shape)) for index, shape in enumerate(shapes)],
        cpu(3),
        [0.5, -7.0],
    )
    x, low, high = tensors
    expected = np.where((low < x) & (x < high), x * np.float32(0.5), np.float32(-7))
    np.testing.assert_array_equal(run(part, tensors, np.zeros_like(x)), expected)


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("requests", PAIRS_OF_REQUESTS)
def test_every_output_of_chunks_has_its_own_request(
    requests: tuple[OpReqType, ...], threads: int
) -> None:
    random = np.random.default_rng(0)
    shapes = ((51, 1_001), (51, 1))
    lhs, rhs = (random.standard_normal(shape).astype("float32") for shape in shapes)
    outputs = [np.full(shapes[0], 3, "float32") for _ in requests]
    part = strided_part(
        scalar.compile(lambda x, y: (x - y, x * y)),
        [target(0), target(1)],
        TensorSpec(shapes[0]),
        [(source(index), TensorSpec(shape)) for index, shape in enumerate(shapes)],
        cpu(threads),
        requests=requests,
    )
    run(part, [lhs, rhs], *outputs, threads=threads)
    for request, value, output in zip(requests, (lhs - rhs, lhs * rhs), outputs, strict=True):
        expected = {NULL: np.full_like(lhs, 3), WRITE: value, ADD: 3 + value}[request]
        np.testing.assert_array_equal(output, expected)


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize(
    ("shape", "small"),
    [
        ((51, 1_001), (51, 1)),
        ((51, 1_001), (1, 1_001)),
        ((16_500, 3), (1, 3)),
        ((16_500, 3), (16_500, 1)),
        ((61, 29, 33), (61, 1, 33)),
        ((5, 3, 2), (5, 1, 2)),
    ],
)
def test_repetition_writes_nothing_else(shape: Shape, small: Shape, threads: int) -> None:
    """Vectors never overwrite memory after the output."""
    data = np.random.default_rng(0).standard_normal(small).astype("float32")
    expected = np.broadcast_to(data, shape)
    part = strided_part(
        scalar.compile(lambda x: x),
        [target(0)],
        TensorSpec(shape),
        [(source(0), TensorSpec(small))],
        cpu(threads),
    )
    room = np.full(expected.size + 32, 7, "float32")
    run(part, [data], room[: expected.size].reshape(shape), threads=threads)
    np.testing.assert_array_equal(room[: expected.size].reshape(shape), expected)
    np.testing.assert_array_equal(room[expected.size :], 7)


@pytest.mark.parametrize(
    ("shape", "order"),
    [
        ((40, 1300), (1, 0)),
        ((26_000, 2), (1, 0)),
        ((2, 26_000), (1, 0)),
        ((7, 24, 17, 19), (0, 2, 3, 1)),
        ((7, 17, 19, 24), (0, 3, 1, 2)),
        ((3, 4, 5, 6, 150), (3, 1, 4, 0, 2)),
    ],
)
def test_axes_change_places(shape: Shape, order: tuple[int, ...]) -> None:
    data = np.arange(np.prod(shape), dtype="float32").reshape(shape)
    expected = data.transpose(order).copy()
    part = permuted_part(target(0), source(0), shape, order, cpu(3))
    np.testing.assert_array_equal(run(part, [data], np.zeros_like(expected)), expected)
