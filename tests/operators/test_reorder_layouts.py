"""The loop between the plain layout and channels last, with and without conversion."""

from __future__ import annotations

import numpy as np
import pytest
from launches import aligned, run

from mxrun.base.device import ONE_THREAD
from mxrun.base.dtype import numpy_dtype
from mxrun.base.tensor import CHANNELS_LAST, PLAIN, Shape, TensorSpec
from mxrun.operator.native_kernel import source, target
from mxrun.ops.reorder.layouts import layout_part

SHAPES = [(2, 3, 5, 7), (1, 16, 4, 8), (3, 17, 33), (2, 20, 2, 3, 4), (2, 64, 9, 9)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("given", ["float32", "bfloat16"])
@pytest.mark.parametrize("wanted", ["float32", "bfloat16"])
@pytest.mark.parametrize("layouts", [(PLAIN, CHANNELS_LAST), (CHANNELS_LAST, PLAIN)], ids=str)
def test_elements_are_those_of_numpy(
    shape: Shape, given: str, wanted: str, layouts: tuple[object, object]
) -> None:
    data, output = TensorSpec(shape, given, layouts[0]), TensorSpec(shape, wanted, layouts[1])
    values = np.random.default_rng(1).normal(size=shape).astype(numpy_dtype(given))
    last = data.layout == CHANNELS_LAST
    memory, result = aligned(data.nbytes), aligned(output.nbytes)
    ordered = np.ascontiguousarray(np.moveaxis(values, 1, -1) if last else values)
    memory[:] = ordered.reshape(-1).view(np.uint8)
    part = layout_part((source(0), data), (target(0), output), ONE_THREAD)
    assert part is not None
    run(part, [memory], [result], aligned(part.scratch_bytes))
    expected = (values if last else np.moveaxis(values, 1, -1)).astype(numpy_dtype(wanted))
    got = result.view(numpy_dtype(wanted)).reshape(expected.shape)
    np.testing.assert_array_equal(got.astype(np.float32), expected.astype(np.float32))


def test_other_layouts_are_left_to_others() -> None:
    same = TensorSpec((2, 3, 4, 5))
    assert layout_part((source(0), same), (target(0), same), ONE_THREAD) is None
    matrix = TensorSpec((2, 3)), TensorSpec((2, 3), layout=CHANNELS_LAST)
    assert layout_part((source(0), matrix[0]), (target(0), matrix[1]), ONE_THREAD) is None
