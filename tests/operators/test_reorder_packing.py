"""Weights reordered into the packed layouts of products and back, by compiled loops."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from executors import cpu
from operator_harness import Memory, execute, implementations

from mxrun.base.blocked import Blocked
from mxrun.base.dtype import numpy_dtype
from mxrun.base.tensor import CHANNELS_LAST, PLAIN, Shape, TensorSpec
from mxrun.device.cpu.onednn import library as onednn
from mxrun.operator.kernel import BackwardRequest, ForwardRequest, Kernel, OpReqType
from mxrun.operator.native_kernel import native_kernel, source, target
from mxrun.operator.register import create
from mxrun.ops.reorder.packing import Lines, moving_part

Array = npt.NDArray[Any]
REORDER = create("_reorder", {})
WRITE = OpReqType.WRITE
needs_onednn = pytest.mark.skipif(onednn.load() is None, reason=onednn.reason())
# Output channels, input channels and kernel: complete blocks, partial ones, strides above a cache
# line.
SHAPES = [(64, 64, 1), (128, 96, 3), (48, 40, 3), (100, 72, 1), (33, 17, 3), (16, 3, 7), (5, 70, 1)]


def reordered(name: str, data: TensorSpec, output: TensorSpec, threads: int = 2) -> Kernel | None:
    request = ForwardRequest((data,), (output,), (WRITE,), False, cpu(threads))
    return implementations("_reorder")[name].prepare_forward(REORDER, request)


def moved(kernel: Kernel | None, data: Array) -> Array:
    """Return the bytes that a kernel writes for a tensor's bytes, over memory that is not 0."""
    assert kernel is not None
    (given,), (made,) = kernel.inputs, kernel.outputs
    assert given is not None
    assert made is not None
    memory, result = Memory(given), Memory(made)
    memory.bytes[:] = data.view(np.uint8)
    result.bytes[:] = 0x5A
    execute(kernel, [memory], [result])
    assert not result.overrun()
    return result.bytes.copy()


def drawn(elements: int) -> Array:
    """Numbers of all sizes, infinities, NaN and both zeros."""
    random = np.random.default_rng(elements)
    values = random.standard_normal(elements) * 10.0 ** random.integers(-37, 37, elements)
    places = random.choice(elements, 5, replace=False)
    values[places] = np.inf, -np.inf, np.nan, 0.0, -0.0
    return values.astype(np.float32).reshape(-1)


def packed_weights(shape: tuple[int, int, int], dtype: str) -> list[tuple[TensorSpec, TensorSpec]]:
    """Return the reorders of weights in a convolution's training: (from, to)."""
    filters, channels, size = shape
    weight = TensorSpec((filters, channels, size, size))
    parameters = {"kernel": (size, size), "num_filter": filters, "no_bias": True}
    prop, library = create("Convolution", parameters), implementations("Convolution")["onednn"]
    data = TensorSpec((4, channels, 14, 14), dtype, CHANNELS_LAST)
    made = TensorSpec((4, filters, 15 - size, 15 - size), dtype, CHANNELS_LAST)
    forward = library.prepare_forward(
        prop, ForwardRequest((data, weight), (made,), (WRITE,), True, cpu(2))
    )
    assert forward is not None
    backward = library.prepare_backward(
        prop,
        BackwardRequest(
            (made,), (data, weight), (None,), (data, weight), (WRITE, WRITE), forward, cpu(2)
        ),
    )
    assert backward is not None
    read = [spec for spec in (*forward.inputs, *backward.inputs) if spec is not None]
    gradients = [spec for spec in backward.outputs if spec is not None]
    found = [(weight, spec) for spec in read if spec.shape == weight.shape]
    found += [(spec, weight) for spec in gradients if spec.shape == weight.shape]
    return [pair for pair in found if any(spec.layout.nbytes for spec in pair)]


@needs_onednn
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_packed_weights_have_the_bytes_that_onednn_makes(
    shape: tuple[int, int, int], dtype: str
) -> None:
    for given, made in packed_weights(shape, dtype):
        ours = reordered("packing", given, made)
        if ours is None:
            continue
        values = drawn(given.nbytes // 4)
        before = given
        if made.dtype == "bfloat16":
            # oneDNN's own rounding flushes denormal numbers to 0, so it reorders the rounded
            # numbers.
            before = TensorSpec(given.shape, "bfloat16")
            rounded = moved(reordered("jit", given, before), values)
            expected = moved(reordered("onednn", before, made), rounded)
        else:
            expected = moved(reordered("onednn", before, made), values)
        for threads in (1, 2, 3):
            kernel = reordered("packing", given, made, threads)
            assert moved(kernel, values).tobytes() == expected.tobytes()


@needs_onednn
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_training_step_packs_and_unpacks_by_compiled_loops(dtype: str) -> None:
    forward, *_, gradient = packed_weights((64, 64, 3), dtype)
    assert gradient[1].layout == PLAIN
    for given, made in (forward, gradient):
        assert reordered("packing", given, made) is not None


@needs_onednn
def test_other_layouts_and_types_are_left_to_onednn() -> None:
    weight = TensorSpec((64, 32, 3, 3))
    assert reordered("packing", weight, weight.with_layout(CHANNELS_LAST)) is None
    assert reordered("packing", weight, TensorSpec(weight.shape, "bfloat16")) is None
    for given, made in packed_weights((64, 32, 3), "bfloat16"):
        if made.layout != PLAIN:
            assert reordered("packing", TensorSpec(given.shape, "bfloat16"), made) is None
            assert reordered("packing", made, given) is None


NESTINGS: list[tuple[Shape, tuple[tuple[int, int], ...], int]] = [
    # Layouts of matrix units, pairs on either axis, and tiles of padding only.
    ((96, 100, 3, 3), ((16, 1), (64, 0), (2, 1)), 2),
    ((70, 40, 1, 1), ((16, 0), (64, 1), (2, 0)), 2),
    ((40, 33, 3, 3), ((32, 1), (2, 0)), 2),
    ((33, 21, 5), ((48, 0), (2, 1)), 2),
    ((50, 20), ((16, 1), (16, 0)), 1),
    ((70, 33, 3, 3), ((64, 0),), 1),
    ((20, 35, 1, 1), ((48, 1), (64, 0)), 1),
    ((20, 50, 2, 3), ((32, 1),), 1),
]


@pytest.mark.parametrize(("shape", "blocks", "word"), NESTINGS)
def test_any_nesting_of_blocks_is_packed(
    shape: Shape, blocks: tuple[tuple[int, int], ...], word: int
) -> None:
    layout = dense(shape, blocks)
    lines = Lines.of(layout, word)
    assert lines is not None
    taps = int(np.prod(shape[2:], dtype=int))
    dtype = "bfloat16" if word == 2 else "float32"
    values = drawn(int(np.prod(shape)))
    values[np.isnan(values)] = 7
    kind = numpy_dtype(dtype)
    padded = TensorSpec((lines.elements * taps,), dtype)
    part = moving_part(lines, shape, source(0), target(0), True, cpu(2))
    kernel = native_kernel("pack", [part], (TensorSpec(shape),), (padded,), (WRITE,), cpu(2))
    expected = np.zeros(lines.elements * taps, kind)
    rows, columns = layout.offsets(0)[: shape[0]], layout.offsets(1)[: shape[1]]
    places = rows[:, None, None] + columns[:, None] + np.arange(taps) * lines.tap * word
    expected[places.reshape(-1)] = values.astype(kind)
    assert moved(kernel, values).tobytes() == expected.tobytes()
    if (lines.lane_axis, word) == (0, 1):
        part = moving_part(lines, shape, source(0), target(0), False, cpu(2))
        kernel = native_kernel("unpack", [part], (padded,), (TensorSpec(shape),), (WRITE,), cpu(2))
        assert moved(kernel, expected).tobytes() == values.tobytes()


def dense(shape: Shape, blocks: tuple[tuple[int, int], ...]) -> Blocked:
    """Return the elements as blocks of rows, then of columns, then the taps."""
    whole = [int(np.prod([size for size, axis in blocks if axis == each])) for each in (0, 1)]
    step = whole[0] * whole[1]
    strides = []
    for size in reversed((-(-shape[1] // whole[1]), *shape[2:])):
        strides.append(step)
        step *= size
    return Blocked(shape, (step, strides[-1], *reversed(strides[:-1])), blocks)


@pytest.mark.parametrize(
    ("blocks", "word"),
    [
        (((8, 1), (8, 0)), 1),
        (((4, 1), (16, 0), (4, 1)), 1),
        (((16, 2), (2, 1)), 2),
        (((16, 0),), 2),
        ((), 1),
    ],
)
def test_layouts_without_lines_of_sixteen_words_are_refused(
    blocks: tuple[tuple[int, int], ...], word: int
) -> None:
    strides = (4096, 256, 256, 256)
    assert Lines.of(Blocked((64, 64, 3, 3), strides, blocks), word) is None


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_compiled_loop_moves_channels_without_a_library(dtype: str) -> None:
    plain = TensorSpec((3, 5, 4, 7), dtype)
    last = plain.with_layout(CHANNELS_LAST)
    data = drawn(plain.elements).astype(numpy_dtype(dtype))
    found = moved(reordered("jit", plain, last), data)
    expected = np.moveaxis(data.reshape(plain.shape), 1, -1)
    assert found.tobytes() == np.ascontiguousarray(expected).tobytes()
    back = moved(reordered("jit", last, plain), found)
    assert back.tobytes() == data.tobytes()
    wide = TensorSpec(plain.shape, "int32")
    assert reordered("jit", wide, wide.with_layout(CHANNELS_LAST)) is None
