"""Cache of compiled maps: keyed by the computation, not by the place of the function."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from commands import python_output

from mxrun.codegen import object_cache
from mxrun.codegen.processor import KINDS, lacks

PLUGIN = """\
from mxrun.operator import scalar

SLOPE = {slope}


def leaky(x):
    # {comment}
    return scalar.where(x > 0, x, {body})
"""
SCRIPT = """\
import ctypes
import json
import sys

import numpy as np

sys.path.insert(0, {folder!r})
from mxrun.base.device import CPU, DeviceDescription
from mxrun.device.cpu.call import loop_call
from mxrun.operator import scalar
from mxrun.operator.native_kernel import source, target

assert not any(name.startswith("llvmlite") for name in sys.modules)
import plugin

x, y = np.array([-4, 8], np.float32), np.zeros(2, np.float32)
leaky = scalar.compile(plugin.leaky)
part = leaky.part(target(0), [source(0)], 2, device=DeviceDescription(CPU))
call = loop_call(part.function, (2, y, x), 1)
ctypes.CFUNCTYPE(None, ctypes.c_void_p)(call.function)(*call.arguments)
assert "mxrun.codegen.sequential.compiler" not in sys.modules
print(json.dumps([y.tolist(), "mxrun.codegen.scalar_llvm" in sys.modules]))
"""


def run(
    folder: Path,
    *,
    slope: float = 0.25,
    body: str = "SLOPE * x",
    comment: str = "a rectifier",
    cache: str = "cache",
) -> tuple[list[float], bool]:
    """Return the map's values for -4 and 8 from a new process, and whether it compiled the map."""
    (folder / "plugin.py").write_text(PLUGIN.format(slope=slope, body=body, comment=comment))
    (folder / "run.py").write_text(SCRIPT.format(folder=str(folder)))
    environment = {**os.environ, "XDG_CACHE_HOME": str(folder / cache) if cache else "relative"}
    values, compiled = json.loads(python_output("-B", "run.py", cwd=folder, env=environment))
    return values, compiled


def test_a_map_of_a_plugin_is_compiled_once(tmp_path: Path) -> None:
    assert run(tmp_path) == ([-1.0, 8.0], True)
    assert run(tmp_path) == ([-1.0, 8.0], False)


def test_a_changed_function_is_compiled_again_and_a_changed_comment_not(tmp_path: Path) -> None:
    assert run(tmp_path) == ([-1.0, 8.0], True)
    assert run(tmp_path, body="SLOPE - x") == ([4.25, 8.0], True)
    assert run(tmp_path, comment="as before") == ([-1.0, 8.0], False)


@pytest.mark.full
def test_a_number_from_outside_the_function_belongs_to_the_key(tmp_path: Path) -> None:
    assert run(tmp_path) == ([-1.0, 8.0], True)
    assert run(tmp_path, slope=0.5) == ([-2.0, 8.0], True)
    assert run(tmp_path, slope=-0.0) == ([0.0, 8.0], True)
    assert run(tmp_path, slope=0.0) == ([-0.0, 8.0], True)


def test_without_a_cache_every_process_compiles(tmp_path: Path) -> None:
    assert run(tmp_path, cache="") == ([-1.0, 8.0], True)
    assert run(tmp_path, cache="") == ([-1.0, 8.0], True)


def test_the_key_of_an_object_names_the_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    here = object_cache.key_of("a function")
    keys = set()
    for kind in (each for each in KINDS if not lacks(each)):
        monkeypatch.setenv("MXRUN_PROCESSOR", kind)
        keys.add(object_cache.key_of("a function"))
    monkeypatch.undo()
    assert len(keys) == sum(not lacks(each) for each in KINDS)
    assert object_cache.key_of("a function") == here
