"""Tensors in the host's memory are checked, non-owning views."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from executors import open_cpu

from mxrun.base.errors import InternalError
from mxrun.base.tensor import CHANNELS_LAST, TensorSpec
from mxrun.device.host_memory import HostMemory
from mxrun.device.interface import DeviceTensor
from mxrun.operator.launch import Handle

Array = npt.NDArray[Any]


def tensor(memory: Array, *shape: int) -> DeviceTensor:
    """Return the memory of an array as a tensor of the given or its own shape."""
    spec = TensorSpec(shape or memory.shape, str(memory.dtype))
    return DeviceTensor(open_cpu(), Handle(HostMemory.of(memory), 0), spec)


def test_O11_a_value_of_another_shape_raises() -> None:
    memory = np.zeros((2, 3), "float32")
    with pytest.raises(ValueError, match="could not broadcast"):
        tensor(memory).write(np.ones((3, 2), "float32"))
    assert not memory.any()


def test_O11_another_shape_copies_nothing() -> None:
    memory = np.arange(24, dtype="float32").reshape(2, 3, 4)
    flat = tensor(memory, 2, 12).values()
    assert flat.ctypes.data == memory.ctypes.data
    flat[1, 11] = -1
    assert memory[1, 2, 3] == -1


def test_O11_a_view_owns_nothing_and_sees_every_write() -> None:
    memory = np.zeros(4, "int32")
    view = tensor(memory).values()
    memory[2] = 7
    assert view[2] == 7
    assert np.shares_memory(view, memory)


def test_O11_a_handle_may_be_within_memory() -> None:
    memory = np.arange(6, dtype="int32")
    whole = tensor(memory)
    last = DeviceTensor(whole.device, whole.handle + 16, TensorSpec((2,), "int32"))
    assert last.read().tolist() == [4, 5]
    assert not np.shares_memory(last.read(), memory)


def test_O11_another_layout_has_no_array() -> None:
    spec = TensorSpec((1, 2, 2, 2), "float32", CHANNELS_LAST)
    memory = HostMemory.of(np.zeros(8, "float32"))
    with pytest.raises(InternalError, match="reorder"):
        open_cpu().view(Handle(memory, 0), spec)
