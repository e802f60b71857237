"""Reading and gathering of records where machine code may not be loaded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from mxrun.codegen.host_loop import loop_on_one_thread
from mxrun.codegen.interpreted import interpreted
from mxrun.io.dataset.fields import Field
from mxrun.io.formats.byte_file import ByteFile
from mxrun.io.formats.extents import small_extents
from mxrun.io.loading.window_gather import WindowGather

Array = npt.NDArray[Any]


def gathered(field: Field, order: Array) -> list[Array]:
    """Return batches of entire windows, and of their beginnings."""
    found = []
    for length in (6, 4):
        slot = np.zeros((5, length), np.int32)
        write = WindowGather(field, 5, loop_on_one_thread).writer(order, slot)
        for start in (0, 7):
            write(start)
            found.append(slot.copy())
    return found


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "int32"])
def test_windows_are_gathered_by_numpy(dtype: str) -> None:
    random = np.random.default_rng(0)
    tokens = random.integers(0, 200, 40).astype(dtype)
    field = Field(np.lib.stride_tricks.sliding_window_view(tokens, 6)[::2], dtype="int32")
    order = random.permutation(len(field.records))
    with interpreted():
        ours = gathered(field, order)
    np.testing.assert_array_equal(ours[0], field.records[order[:5]])
    for left, right in zip(ours, gathered(field, order), strict=True):
        np.testing.assert_array_equal(left, right)


def test_small_records_are_read_one_by_one(tmp_path: Path) -> None:
    path = tmp_path / "records"
    path.write_bytes(bytes(100))
    files = [ByteFile(path)]

    def find(numbers: Array) -> tuple[Array, Array, Array]:
        return numbers * 0, numbers * 10, numbers * 0 + 10

    assert small_extents(files, find, 10) is not None
    with interpreted():
        assert small_extents(files, find, 10) is None
    files[0].close()
