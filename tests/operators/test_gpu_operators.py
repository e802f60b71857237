"""The operators' kernels for GPUs, executed from their NVPTX modules, against the CPU's loops.

Every access to memory is checked. Of all rows of the operator table plain `pytest` takes a few,
`--full` more, and `--soak` all.
"""

from __future__ import annotations

import zlib

import numpy as np
import pytest
from gpu_emulator.device import EmulatedDevice
from gpu_emulator.emulated import ORDERS
from gpu_emulator.operators import EMULATED, ON_CPU, results
from operator_row import Row
from operator_rows import ROWS

from mxrun.base.device import CUDA
from mxrun.operator.numpy_kernel import NUMPY
from mxrun.operator.register import implementations

# Maps of the CPU that have AVX-512's instructions in place of the portable ones, and products that
# oneDNN adds up in an order of its own. All others have the CPU's bits.
NOT_BITS = {
    *("Activation", "LeakyReLU", "LogisticRegressionOutput", "_bias_activation", "erf", "expm1"),
    *("gated_activation", "gelu", "rsqrt", "sigmoid", "silu", "tanh"),
    *("Convolution", "Deconvolution"),
}


def part(number: int, parts: int) -> list[Row]:
    """Return one of the parts into which a hash divides the rows."""
    return [row for row in ROWS if zlib.crc32(str(row).encode()) % parts == number]


def assert_agreement(row: Row) -> None:
    """Run the kernels of all implementations for cards and compare their results."""
    known = implementations(row.operator)
    for name, implementation in known.items():
        if CUDA not in implementation.devices or name == "cudnn":
            continue
        found = results(row, implementation, EMULATED)
        if found is None:
            continue
        expected = results(row, known.get("jit", NUMPY), ON_CPU)
        expected = results(row, NUMPY, ON_CPU) if expected is None else expected
        assert expected is not None
        for got, want in zip(found, expected, strict=True):
            if row.operator in NOT_BITS:
                np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
            else:
                assert got.tobytes() == want.tobytes(), name


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
@pytest.mark.parametrize("row", part(0, 300), ids=str)
def test_Q16_P12_a_sample_has_the_results_of_processors(row: Row) -> None:
    assert_agreement(row)


@pytest.mark.full
@pytest.mark.parametrize("row", WIDE, ids=str)
def test_Q16_wide_rows_have_the_bits_of_processors(row: Row) -> None:
    assert_agreement(row)


@pytest.mark.full
@pytest.mark.parametrize("row", part(1, 8), ids=str)
def test_more_have_the_results_of_processors(row: Row) -> None:
    assert_agreement(row)


@pytest.mark.soak
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("row", ROWS, ids=str)
def test_all_have_the_results_of_processors(
    row: Row, order: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(EmulatedDevice, "order", order)
    assert_agreement(row)
