"""Launches on guarded memory: places of tensors, failing native calls, packed layouts."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from mxrun.base.device import REFERENCE
from mxrun.base.errors import InternalError
from mxrun.base.tensor import Layout, TensorSpec
from mxrun.contract.memory import GuardedMemory, PitchedMemory
from mxrun.contract.problem import Breach
from mxrun.contract.trial import opened, run
from mxrun.device.cpu.call import NativeCall
from mxrun.device.cpu.onednn.launch import PrimitiveLaunch
from mxrun.device.layouts import reordered
from mxrun.operator.launch import PythonLaunch, Repeat, Views

SPEC = TensorSpec((3, 4))


def test_a_handle_names_the_tensor_between_its_guards() -> None:
    value = np.arange(12, dtype="float32").reshape(3, 4)
    memory = GuardedMemory(SPEC, value)
    device = opened()
    np.testing.assert_array_equal(device.read(memory.handle, SPEC), value)
    device.write(memory.handle, value + 1)
    np.testing.assert_array_equal(memory.logical(), value + 1)
    assert not memory.overrun()
    device.write(memory.handle + 4, value)
    assert memory.overrun() == "4 bytes beyond its end"


def test_a_pitched_handle_begins_within_its_rows() -> None:
    value = np.arange(12, dtype="float32").reshape(3, 4)
    memory = PitchedMemory(SPEC, 4, value)
    handle = memory.handle
    rows = np.stack(
        [
            opened().read(handle + row * handle.pitch * 4, TensorSpec((4,)))
            for row in range(SPEC.shape[0])
        ]
    )
    np.testing.assert_array_equal(rows, value)
    opened().write(handle + 16, np.zeros(1, "float32"))
    assert memory.overrun() == "between its rows"


class Failing:
    """A computation of a library that returns an error status."""

    threads = 1

    def bind(self, addresses: object, scratch: int, threads: int) -> tuple[NativeCall, ...]:
        """Return a call of abs(3), whose result is not 0."""
        function = ctypes.cast(ctypes.CDLL(None).abs, ctypes.c_void_p).value
        assert function is not None
        return (NativeCall(function, (3,), None, checked=True),)


@pytest.mark.parametrize("wrapped", [lambda launch: launch, lambda launch: Repeat(2, (launch,))])
def test_a_native_call_that_fails_is_a_breach(wrapped: Callable[[Any], Any]) -> None:
    failing: Any = Failing()
    with pytest.raises(Breach, match=r"native call .*of onednn forward failed"):
        run([wrapped(PrimitiveLaunch(failing, {}, None))], "onednn forward")


def test_an_internal_error_of_a_body_is_none_of_a_native_call() -> None:
    def prepare(views: Views) -> Callable[[], None]:
        def body() -> None:
            raise InternalError("in the body")

        return body

    with pytest.raises(InternalError, match="in the body"):
        run([PythonLaunch(prepare)])


def test_a_packing_without_a_kernel_is_refused() -> None:
    packed = SPEC.with_layout(Layout("packed", 48))
    with pytest.raises(InternalError, match=r"no kernel reorders .*@packed to .* on reference"):
        reordered(opened(kind=REFERENCE), np.zeros(12, "float32"), packed, SPEC)
