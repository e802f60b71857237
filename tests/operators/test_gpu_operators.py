"""The operators' kernels for GPUs, executed from their NVPTX modules, against the CPU's loops.

Every access to memory is checked. Of all rows of the operator table plain `pytest` takes a few,
`--full` more, and `--soak` all.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from gpu_emulator.device import EmulatedDevice
from gpu_emulator.emulated import ORDERS
from gpu_emulator.operators import EMULATED, ON_CPU, results
from operator_row import Row
from operator_rows import ROWS

from mxrun.base.device import CUDA
from mxrun.contract.problem import Breach
from mxrun.operator.numpy_kernel import NUMPY
from mxrun.operator.property import Precision
from mxrun.operator.register import implementations

Array = npt.NDArray[Any]

# Maps of the CPU that have AVX-512's instructions in place of the portable ones, and products that
# oneDNN adds up in an order of its own. All others have the CPU's bits.
NOT_BITS = {
    *("Activation", "LeakyReLU", "LogisticRegressionOutput", "_bias_activation", "erf", "expm1"),
    *("gated_activation", "gelu", "rsqrt", "sigmoid", "silu", "tanh"),
    *("Convolution", "Deconvolution", "RNN"),
}
# Products that CPUs compute of pairs of bfloat16 numbers, where they have instructions for these.
PAIRED = {"FullyConnected", "batch_dot", "dot", "linalg_gemm2", "scaled_dot_product_attention"}
# Half the distance from 1 to the next bfloat16 number.
ROUNDING = 2.0**-9
# Rows of networks in bfloat16, whose kernels for cards differ from those of float32.
LOW = [row for row in ROWS if row.create().precision is not Precision.FLOAT32]


def part(rows: list[Row], number: int, parts: int) -> list[Row]:
    """Return one of the parts into which a hash divides the rows."""
    return [row for row in rows if zlib.crc32(str(row).encode()) % parts == number]


def assert_agreement(row: Row, is_low: bool = False) -> None:
    """Run the kernels of all implementations for cards and compare their results.

    is_low: whether the tensors are bfloat16; without a loop of the CPU for these, the results are
    compared with those of float32.
    """
    known = implementations(row.operator)
    for name, implementation in known.items():
        if CUDA not in implementation.devices or name == "cudnn":
            continue
        found = results(row, implementation, EMULATED, is_low)
        if found is None:
            continue
        is_same = row.operator not in NOT_BITS and not (is_low and row.operator in PAIRED)
        loops = known.get("jit")
        expected = None if loops is None else results(row, loops, ON_CPU, is_low)
        if expected is None:
            expected, is_same = results(row, NUMPY, ON_CPU), is_same and not is_low
        assert expected is not None
        for got, want in zip(found, expected, strict=True):
            if is_same:
                assert got.tobytes() == want.tobytes(), name
            else:
                assert_close(got, want, is_low)


def assert_close(got: Array, want: Array, is_low: bool) -> None:
    """Assert equality but for rounding errors of the type."""
    wide = want.astype(np.float64)
    size = np.abs(wide[np.isfinite(wide)]).max(initial=0.0)
    relative, absolute = (8 * ROUNDING, 6 * ROUNDING * size) if is_low else (1e-4, 1e-5)
    np.testing.assert_allclose(got.astype(np.float64), wide, relative, absolute, equal_nan=True)


# Rows that a block computes together: of full vectors, and with a rest.
WIDE = [
    *(Row("softmax", {}, (3, columns)) for columns in (4096, 5003)),
    Row("log_softmax", {}, (2, 4111)),
    *(Row("LayerNorm", {}, (3, columns)) for columns in (4096, 5003)),
]


@pytest.fixture(autouse=True)
def checked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(EmulatedDevice, "is_checked", True)


@pytest.mark.whole
@pytest.mark.parametrize("row", part(ROWS, 0, 300), ids=str)
def test_Q16_P12_a_sample_has_the_results_of_processors(row: Row) -> None:
    assert_agreement(row)


@pytest.mark.full
@pytest.mark.parametrize("row", WIDE, ids=str)
def test_Q16_wide_rows_have_the_bits_of_processors(row: Row) -> None:
    assert_agreement(row)


@pytest.mark.whole
@pytest.mark.parametrize("row", part(LOW, 0, 600), ids=str)
def test_a_sample_in_bfloat16_has_the_results_of_processors(row: Row) -> None:
    assert_agreement(row, is_low=True)


@pytest.mark.full
@pytest.mark.parametrize("row", part(ROWS, 1, 24), ids=str)
def test_more_have_the_results_of_processors(row: Row) -> None:
    assert_agreement(row)


@pytest.mark.full
@pytest.mark.parametrize("row", part(LOW, 1, 48), ids=str)
def test_more_in_bfloat16_have_the_results_of_processors(row: Row) -> None:
    assert_agreement(row, is_low=True)


@pytest.mark.soak
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_all_have_the_results_of_processors(
    dtype: str,
    order: str,
    monkeypatch: pytest.MonkeyPatch,
    record_property: Callable[[str, object], None],
) -> None:
    monkeypatch.setattr(EmulatedDevice, "order", order)
    check_all(ROWS if dtype == "float32" else LOW, dtype == "bfloat16", record_property)


def check_all(rows: list[Row], is_low: bool, record: Callable[[str, object], None]) -> None:
    """Check rows, report what was executed, and fail with all that disagree."""
    wrong = []
    EmulatedDevice.executed.clear()
    EmulatedDevice.kernels.clear()
    for row in rows:
        try:
            assert_agreement(row, is_low)
        except (AssertionError, Breach) as error:
            wrong.append(f"{row}: {error.__cause__ or error}")
    record("rows", len(rows))
    record("launches", EmulatedDevice.executed.total())
    record("kernels", len(EmulatedDevice.kernels))
    assert not wrong, "\n".join(wrong)
