"""Tensors are checked, non-owning views."""

from __future__ import annotations

import numpy as np
import pytest

from mxrun.base.errors import InternalError
from mxrun.base.tensor import CHANNELS_LAST, TensorSpec
from mxrun.operator.tensor import Tensor


def view(memory: np.ndarray) -> Tensor:  # type: ignore[type-arg]
    return Tensor(memory.ctypes.data, TensorSpec(memory.shape, str(memory.dtype)))


def test_O11_a_wrong_rank_or_type_raises() -> None:
    memory = np.zeros((2, 3), "float32")
    tensor = view(memory)
    assert tensor.get(2, "float32").shape == (2, 3)
    with pytest.raises(InternalError, match="rank 3"):
        tensor.get(3, "float32")
    with pytest.raises(InternalError, match="int32"):
        tensor.get(2, "int32")


def test_O11_flattening_copies_nothing() -> None:
    memory = np.arange(24, dtype="float32").reshape(2, 3, 4)
    flat = view(memory).flatten_to_2d()
    assert flat.shape == (2, 12)
    assert flat.address == memory.ctypes.data
    flat.array[1, 11] = -1
    assert memory[1, 2, 3] == -1


def test_O11_a_view_owns_nothing_and_sees_every_write() -> None:
    memory = np.zeros(4, "int32")
    tensor = view(memory)
    memory[2] = 7
    assert tensor.array[2] == 7
    assert np.shares_memory(tensor.array, memory)


def test_O11_a_packed_layout_has_no_array() -> None:
    spec = TensorSpec((1, 2, 2, 2), "float32", CHANNELS_LAST)
    with pytest.raises(InternalError, match="reorder"):
        _ = Tensor(0, spec).array
