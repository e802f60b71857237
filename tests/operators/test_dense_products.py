"""Products of matrices in compiled loops, in all forms of their factors."""

from __future__ import annotations

import ctypes
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest
from executors import cpu

from mxrun.base.blocked import PANEL, in_panels
from mxrun.base.device import DeviceDescription
from mxrun.base.dtype import BFLOAT16, FLOAT32
from mxrun.base.tensor import TensorSpec
from mxrun.device.cpu.measurement import has_bfloat16
from mxrun.operator.native_kernel import Scratch, Slot, source, target
from mxrun.ops.dense_product import MatrixProduct, StoredMatrices, dense_product

Array = npt.NDArray[Any]
# Elements before, between and after rows, which nobody may read or write.
GAP = 6
SHAPES = [
    (1, 1, 1, 1),
    (1, 3, 5, 7),
    (2, 17, 33, 30),
    (1, 64, 128, 784),
    (3, 70, 96, 257),
    (1, 400, 130, 20),
    (1, 48, 500, 513),
]
PLAIN_BFLOAT16 = replace(cpu(1), instruction_set="avx512")


def stored(values: Array, dtype: str, slot: Slot, is_turned: bool) -> tuple[StoredMatrices, Array]:
    """Return matrices [count, rows, columns] with gaps, NaN, and the memory that they are in."""
    values = values.swapaxes(1, 2) if is_turned else values
    count, rows, columns = values.shape
    row = columns + GAP
    memory = np.full((count, rows + 1, row), np.nan, np.float32)
    memory[:, :rows, :columns] = values
    kind = ml_dtypes.bfloat16 if dtype == BFLOAT16 else np.float32
    form = StoredMatrices(
        TensorSpec(values.shape, dtype), slot, is_turned, stack=(rows + 1) * row, row=row
    )
    return form, memory.astype(kind)


def values_of(memory: Array, shape: tuple[int, ...]) -> Array:
    """Return the matrices in memory with gaps, after a look at the gaps."""
    _, rows, columns = shape
    around = memory.astype(np.float32)
    found = around[:, :rows, :columns].copy()
    around[:, :rows, :columns] = np.nan
    assert np.isnan(around).all()
    return found


def run(
    product: MatrixProduct, memories: dict[Slot, Array], device: DeviceDescription, tasks: int = 0
) -> None:
    part = dense_product(product, device)
    words = np.full(part.scratch_bytes // 4, np.nan, np.float32)

    def place(value: Any) -> Any:
        if isinstance(value, Scratch):
            return words
        return memories[value] if isinstance(value, Slot) else value

    assert not isinstance(part.arguments, tuple)
    block = part.arguments.with_values(place).packed()
    call = ctypes.PYFUNCTYPE(None, *[ctypes.c_void_p] * 6)(part.function.address)
    count = tasks or part.tasks
    for task in reversed(range(count)):
        call(block.ctypes.data, task, count, 0, 0, 0)


def multiplied(
    shape: tuple[int, int, int, int],
    turned: tuple[bool, bool],
    dtypes: tuple[str, str],
    device: DeviceDescription,
    *,
    has_bias: bool = False,
    factor: float = 1.0,
    is_added: bool = False,
    tasks: int = 0,
) -> tuple[Array, Array, Array]:
    """Return a product, the exact one, and the sum of its terms' magnitudes."""
    count, rows, columns, inner = shape
    random = np.random.default_rng(rows)
    kind = ml_dtypes.bfloat16 if dtypes[0] == BFLOAT16 else np.float32
    left, right = (
        random.standard_normal((count, *size)).astype(kind).astype(np.float32)
        for size in ((rows, inner), (inner, columns))
    )
    before = random.standard_normal((count, rows, columns)).astype(np.float32)
    bias = random.standard_normal(columns).astype(np.float32)
    forms, memories = [], {}
    for values, dtype, slot, is_turned in (
        (left, dtypes[0], source(0), turned[0]),
        (right, dtypes[0], source(1), turned[1]),
        (before, dtypes[1], target(0), False),
    ):
        form, memories[slot] = stored(values, dtype, slot, is_turned)
        forms.append(form)
    memories[source(2)] = bias
    start = values_of(memories[target(0)], before.shape)
    product = MatrixProduct(
        *forms, bias=source(2) if has_bias else None, factor=factor, is_added=is_added
    )
    run(product, memories, device, tasks)
    wide = left.astype(np.float64), right.astype(np.float64)
    exact = factor * np.matmul(*wide)
    size = abs(factor) * np.matmul(*map(np.abs, wide)) + 1
    if has_bias:
        exact += bias
    if is_added:
        exact += start
    return values_of(memories[target(0)], before.shape), exact, size


@pytest.mark.parametrize("turned", [(False, False), (False, True), (True, False), (True, True)])
@pytest.mark.parametrize("shape", SHAPES)
def test_a_product_of_float32_matrices(
    shape: tuple[int, int, int, int], turned: tuple[bool, bool]
) -> None:
    found, exact, size = multiplied(shape, turned, (FLOAT32, FLOAT32), cpu(1), has_bias=True)
    assert (np.abs(found - exact) <= 4e-7 * size).all()
    found, exact, size = multiplied(
        shape, turned, (FLOAT32, FLOAT32), cpu(1), factor=0.5, is_added=True
    )
    assert (np.abs(found - exact) <= 4e-7 * size).all()


@pytest.mark.parametrize("output", [FLOAT32, BFLOAT16])
@pytest.mark.parametrize("turned", [(False, False), (False, True), (True, False), (True, True)])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(
    "device",
    [
        pytest.param(PLAIN_BFLOAT16, id="one by one"),
        pytest.param(
            replace(cpu(1), instruction_set="avx512_bf16"),
            id="pairs",
            marks=pytest.mark.skipif(
                not has_bfloat16(), reason="the processor does not multiply bfloat16"
            ),
        ),
    ],
)
def test_a_product_of_bfloat16_matrices(
    device: DeviceDescription,
    shape: tuple[int, int, int, int],
    turned: tuple[bool, bool],
    output: str,
) -> None:
    found, exact, size = multiplied(shape, turned, (BFLOAT16, output), device, has_bias=True)
    bound = 1e-6 * size + (2**-8 * np.abs(exact) if output == BFLOAT16 else 0)
    assert (np.abs(found - exact) <= bound).all()
    found, exact, size = multiplied(
        shape, turned, (BFLOAT16, output), device, factor=0.5, is_added=True
    )
    bound = 1e-6 * size + (2**-7 * size if output == BFLOAT16 else 0)
    assert (np.abs(found - exact) <= bound).all()


def test_terms_whose_rows_are_far_apart_are_packed() -> None:
    """Rows of 1,024 elements, and of more pages than the processor knows."""
    dtypes = (FLOAT32, FLOAT32)
    for columns in (1024 - GAP, 4096 - GAP):
        for shape in ((1, columns, 40, 300), (1, 40, columns, 300)):
            found, exact, size = multiplied(shape, (True, False), dtypes, cpu(1))
            assert (np.abs(found - exact) <= 4e-7 * size).all()


def test_long_sums_lose_few_digits() -> None:
    left, right = np.full((2, 100_000), 0.1, np.float32), np.full((100_000, 3), 0.1, np.float32)
    output = np.empty((2, 3), np.float32)
    forms = [
        StoredMatrices(TensorSpec(array.shape), slot)
        for array, slot in ((left, source(0)), (right, source(1)), (output, target(0)))
    ]
    run(MatrixProduct(*forms), {source(0): left, source(1): right, target(0): output}, cpu(1))
    np.testing.assert_allclose(output, 100_000 * float(left[0, 0]) ** 2, rtol=1e-5)


@pytest.mark.parametrize("tasks", [1, 2, 3, 32])
def test_the_bits_depend_neither_on_tasks_nor_on_how_many_there_are(tasks: int) -> None:
    shape, dtypes = (1, 500, 300, 300), (FLOAT32, FLOAT32)
    first, _, _ = multiplied(shape, (False, True), dtypes, cpu(1))
    other, _, _ = multiplied(shape, (False, True), dtypes, cpu(1), tasks=tasks)
    np.testing.assert_array_equal(first, other)


def panels(matrix: Array, dtype: str) -> tuple[TensorSpec, Array]:
    """Return a matrix [rows, columns] in panels."""
    word = 2 if dtype == BFLOAT16 else 1
    rows, columns = matrix.shape
    size = -(-rows // PANEL) * PANEL, -(-columns // (16 * word)) * 16
    padded = np.zeros((size[0], size[1] * word), matrix.dtype)
    padded[:rows, :columns] = matrix
    grid = padded.reshape(-1, PANEL, size[1], word)
    spec = in_panels(TensorSpec(matrix.shape, dtype))
    memory = np.ascontiguousarray(grid.transpose(0, 2, 1, 3))
    assert memory.nbytes == spec.nbytes
    return spec, memory


@pytest.mark.parametrize("shape", [(5, 7, 9), (16, 130, 300), (70, 500, 513)])
@pytest.mark.parametrize(
    "dtype",
    [
        FLOAT32,
        pytest.param(
            BFLOAT16,
            marks=pytest.mark.skipif(
                not has_bfloat16(), reason="the processor does not multiply bfloat16"
            ),
        ),
    ],
)
def test_a_factor_in_panels_gives_the_same_bits(shape: tuple[int, int, int], dtype: str) -> None:
    rows, columns, inner = shape
    random = np.random.default_rng(0)
    kind = ml_dtypes.bfloat16 if dtype == BFLOAT16 else np.float32
    left = random.standard_normal((rows, inner)).astype(kind)
    right = random.standard_normal((columns, inner)).astype(kind)
    found = []
    for spec, memory in ((TensorSpec(right.shape, dtype), right), panels(right, dtype)):
        output = np.empty((rows, columns), np.float32)
        product = MatrixProduct(
            StoredMatrices(TensorSpec(left.shape, dtype), source(0)),
            StoredMatrices(spec, source(1), is_turned=True),
            StoredMatrices(TensorSpec(output.shape), target(0)),
        )
        run(product, {source(0): left, source(1): memory, target(0): output}, cpu(1))
        found.append(output)
    np.testing.assert_array_equal(*found)
