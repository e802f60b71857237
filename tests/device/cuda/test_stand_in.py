"""The stand-in for CuPy: its rules are CUDA's, and its names and parameters are CuPy's."""

from __future__ import annotations

import importlib.util
import inspect
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib.resources import files
from typing import Any

import numpy as np
import pytest
import stand_in

# Calls of CuPy that the device makes: module, name, and the parameters that it passes, in order.
CALLS = {
    "device": {"Device": ["device"], "Device.use": []},
    "function": {
        "Module.load": ["cubin"],
        "Module.get_function": ["name"],
        "Function.__call__": ["grid", "block", "args", "shared_mem", "stream"],
    },
    "graph": {"Graph.launch": ["stream"]},
    "memory": {"Memory": ["size"]},
    "pinned_memory": {"alloc_pinned_memory": ["size"]},
    "runtime": {
        "getDeviceCount": [],
        "getDeviceProperties": ["device"],
        "driverGetVersion": [],
        "runtimeGetVersion": [],
        "memGetInfo": [],
        "memcpyAsync": ["dst", "src", "size", "kind", "stream"],
        "memsetAsync": ["ptr", "value", "size", "stream"],
    },
    "stream": {
        "Stream": ["null", "non_blocking", "ptds", "priority"],
        "Stream.synchronize": [],
        "Stream.begin_capture": ["mode"],
        "Stream.end_capture": [],
        "Stream.wait_event": ["event"],
        "Event": ["block", "disable_timing", "interprocess"],
        "Event.record": ["stream"],
        "Event.synchronize": [],
        "get_elapsed_time": ["start_event", "end_event"],
    },
}
# Calls of cuDNN that need a card.
_OF_CUDNN = ("cudnnCreate", "cudnnSetStream", "cudnnBackendExecute")
# Of Cython's functions only the first line of the docstring tells the parameters.
READ = """
import importlib, inspect, json, re, sys
def parameters(found):
    for each in (found, found.__init__) if isinstance(found, type) else (found,):
        try:
            names = [name for name in inspect.signature(each).parameters if name != "self"]
        except (TypeError, ValueError):
            continue
        if names != ["args", "kwargs"]:
            return names
    line = found.__doc__.strip().splitlines()[0]
    if "(" not in line:
        return None
    inner = re.search(r"\\((.*)\\)", line)[1]
    parts = [part.split("=")[0].split(":")[0].split() for part in inner.split(",")]
    return [part[-1] for part in parts if part and part != ["self"]]
calls = json.loads(sys.argv[1])
found = {}
for module, names in calls.items():
    own = importlib.import_module(f"cupy.cuda.{module}")
    for name in names:
        value = own
        for part in name.split("."):
            value = getattr(value, part)
        found[f"{module}.{name}"] = parameters(value)
from cupy.cuda import driver, runtime
found["mode"] = int(runtime.streamCaptureModeThreadLocal)
found["errors"] = [
    issubclass(error, RuntimeError) for error in (runtime.CUDARuntimeError, driver.CUDADriverError)
]
print(json.dumps(found))
"""


def read(environment: dict[str, str]) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-c", READ, json.dumps(CALLS)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **environment},
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_names_and_parameters_are_those_of_cupy() -> None:
    if importlib.util.find_spec("cupy") is None:
        pytest.skip("CuPy is not installed: pip install 'mxrun[gpu]'")
    expected = {
        f"{module}.{name}": given
        for module, names in CALLS.items()
        for name, given in names.items()
    }
    ours, cupys = read(stand_in.environment()), read({})
    # CuPy does not tell those of the launch of a kernel.
    assert cupys.pop("function.Function.__call__") is None
    assert {name: ours[name] for name in cupys} == cupys
    assert {name: ours[name] for name in expected} == expected


def test_the_page_lists_every_call_that_only_a_card_can_answer() -> None:
    page = files("mxrun").joinpath("docs/gpus.md").read_text()
    for name in (*(name for names in CALLS.values() for name in names), *_OF_CUDNN):
        assert f"`{name}`" in page, name


@pytest.fixture
def card() -> Iterator[Any]:
    with stand_in.installed() as installed:
        import cupy

        cupy.cuda.Device(0).use()
        yield installed


@pytest.fixture
def cuda(card: Any) -> Any:
    import cupy

    return cupy.cuda


def captured(cuda: Any, act: Callable[[Any], Any]) -> None:
    """Act while a stream is captured."""
    stream = cuda.Stream(non_blocking=True)
    stream.begin_capture(cuda.runtime.streamCaptureModeThreadLocal)
    try:
        act(stream)
    finally:
        with pytest.raises(cuda.runtime.CUDARuntimeError, match="Invalidated"):
            stream.end_capture()


@pytest.mark.parametrize(
    "act",
    [
        pytest.param(lambda cuda, stream: cuda.memory.Memory(8), id="allocation"),
        pytest.param(lambda cuda, stream: cuda.pinned_memory.alloc_pinned_memory(8), id="pinned"),
        pytest.param(lambda cuda, stream: stream.synchronize(), id="synchronisation"),
        pytest.param(lambda cuda, stream: cuda.function.Module().load(b""), id="module"),
        pytest.param(lambda cuda, stream: cuda.runtime.memGetInfo(), id="memory"),
    ],
)
def test_a_capture_forbids(cuda: Any, act: Callable[[Any, Any], Any]) -> None:
    def refused(stream: Any) -> None:
        with pytest.raises(cuda.runtime.CUDARuntimeError, match="not permitted"):
            act(cuda, stream)

    captured(cuda, refused)


def test_a_capture_forbids_pageable_copies(cuda: Any) -> None:
    memory, host = cuda.memory.Memory(8), np.zeros(2, np.float32)

    def refused(stream: Any) -> None:
        with pytest.raises(cuda.runtime.CUDARuntimeError, match="not permitted"):
            cuda.runtime.memcpyAsync(memory.ptr, host.ctypes.data, 8, 1, stream.ptr)

    captured(cuda, refused)


def test_memory_freed_in_a_capture_ends_it(cuda: Any) -> None:
    memory = [cuda.memory.Memory(8)]
    captured(cuda, lambda stream: memory.clear())


def test_a_stream_waits_for_the_event_of_another(cuda: Any) -> None:
    first, second = (cuda.Stream(non_blocking=True) for _ in range(2))
    memory = cuda.memory.Memory(1)
    pinned = cuda.pinned_memory.alloc_pinned_memory(2)
    host = (np.ctypeslib.ctypes.c_uint8 * 2).from_address(pinned.ptr)
    for waits in (False, True):
        cuda.runtime.memsetAsync(memory.ptr, 7 + waits, 1, first.ptr)
        event = cuda.Event()
        event.record(first)
        if waits:
            second.wait_event(event)
        cuda.runtime.memcpyAsync(pinned.ptr + waits, memory.ptr, 1, 2, second.ptr)
        second.synchronize()
    # Without the event, the copy has what CUDA leaves in new memory.
    assert list(host) == [0xA5, 8]


def test_a_kernel_takes_numbers_of_fixed_size_alone(cuda: Any) -> None:
    from mxrun.operator.native_kernel import add_loop

    kernel = add_loop.gpu_kernel
    module = cuda.function.Module()
    module.load(kernel.ptx.encode())
    function = module.get_function(kernel.symbol)
    stream = cuda.Stream(non_blocking=True)
    given = [np.int64(0)] * len(kernel.parameters)
    for wrong in (1, 1.0, np.float64(1), np.int32(1)):
        with pytest.raises(AssertionError, match="as int64"):
            function(
                (1, 1, 1), (kernel.threads, 1, 1), (wrong, *given[1:-1], np.int64(1)), stream=stream
            )
    with pytest.raises(cuda.runtime.CUDARuntimeError, match="invalid configuration"):
        function((2**31, 1, 1), (kernel.threads, 1, 1), tuple(given), stream=stream)


def test_the_host_cannot_access_the_cards_memory() -> None:
    script = """
import ctypes, cupy
cupy.cuda.Device(0).use()
memory = cupy.cuda.Memory(8)
print(ctypes.string_at(memory.ptr, 8))
"""
    done = subprocess.run(
        [sys.executable, "-c", script],
        check=False,
        env={**os.environ, **stand_in.environment()},
        stdout=subprocess.PIPE,
    )
    assert (done.returncode, done.stdout) == (-signal.SIGSEGV, b"")


def test_signatures_are_read_of_functions_and_of_docstrings() -> None:
    # The comparison would be empty if no parameters were found.
    assert inspect.getdoc(read) is None
    assert read(stand_in.environment())["runtime.memcpyAsync"][0] == "dst"
