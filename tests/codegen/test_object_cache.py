"""Native functions compute correct results with an empty, damaged or hostile cache folder."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from commands import HANG_S, python_output

from mxrun.codegen import object_cache
from mxrun.ops.batch_norm.loops import shift_loop

pytestmark = pytest.mark.commands

SCRIPT = """\
import json
import sys

import numpy as np

from mxrun.codegen.arguments import Arguments, Float32s, Integer, Real
from mxrun.codegen.host_loop import HostLoop
from mxrun.codegen.jit import inlined, native


class Scaling(Arguments):
    count: Integer
    factor: Real
    source: Float32s
    target: Float32s


@inlined
def product(call, value):
    return call.count // 5 * call.factor * value


@native
def triple_loop(call: Scaling):
    for i in range(call.count):
        call.target[i] = product(call, call.source[i])


source, target = np.arange(5, dtype=np.float32), np.zeros(5, np.float32)
HostLoop(triple_loop, Scaling(count=5, factor=3.0, source=source, target=target))()
print(json.dumps([target.tolist(), "mxrun.codegen.sequential.compiler" in sys.modules]))
"""
TRIPLED = [0.0, 3.0, 6.0, 9.0, 12.0]
DIGEST_BYTES = 32


def started(folder: Path, cache: Path | str) -> subprocess.Popen[str]:
    script = folder / "triple.py"
    script.write_text(SCRIPT)
    return subprocess.Popen(
        [sys.executable, str(script)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=folder,
        env={**os.environ, "XDG_CACHE_HOME": str(cache)},
    )


def compiles(process: subprocess.Popen[str]) -> bool:
    """Return whether a process compiled the function instead of finding it; checks its result."""
    output, errors = process.communicate(timeout=HANG_S)
    assert process.returncode == 0, (process.returncode, errors)
    assert errors == ""
    result, compiled = json.loads(output)
    assert result == TRIPLED
    assert isinstance(compiled, bool)
    return compiled


def only_object(cache: Path) -> Path:
    """Return the only object in a cache folder; no other file may be left there."""
    (path,) = (cache / "mxrun" / "native").iterdir()
    return path


def sealed(body: bytes) -> bytes:
    """Return a cache file with arbitrary content and a correct digest."""
    return hashlib.sha256(body).digest() + body


def flipped(content: bytes) -> bytes:
    middle = len(content) // 2
    return content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]


def parts(content: bytes) -> list[bytes]:
    """The key an object was written for, its symbol and its code."""
    return content[DIGEST_BYTES:].split(b"\0", 2)


def with_code(content: bytes, code: bytes) -> bytes:
    key, symbol, _ = parts(content)
    return sealed(b"\0".join((key, symbol, code)))


def with_symbol(content: bytes, symbol: bytes) -> bytes:
    key, _, code = parts(content)
    return sealed(b"\0".join((key, symbol, code)))


def with_key(content: bytes, key: bytes) -> bytes:
    _, symbol, code = parts(content)
    return sealed(b"\0".join((key, symbol, code)))


def test_a_function_is_compiled_once(tmp_path: Path) -> None:
    assert compiles(started(tmp_path, tmp_path / "cache"))
    assert not compiles(started(tmp_path, tmp_path / "cache"))
    only_object(tmp_path / "cache")


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a cache that a process has filled."""
    folder = tmp_path_factory.mktemp("filled")
    assert compiles(started(folder, folder / "cache"))
    return folder


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(lambda content: b"", id="emptied"),
        pytest.param(lambda content: content[:DIGEST_BYTES], id="digest alone"),
        pytest.param(lambda content: content[: len(content) // 2], id="truncated"),
        pytest.param(flipped, id="a flipped bit"),
        pytest.param(lambda content: sealed(b""), id="nothing sealed"),
        pytest.param(lambda content: with_symbol(content, b"\xff\xfe"), id="symbol not UTF-8"),
        pytest.param(lambda content: with_symbol(content, b"another"), id="symbol not in object"),
        pytest.param(lambda content: with_symbol(content, b""), id="no symbol"),
        pytest.param(lambda content: with_key(content, b"0" * 64), id="another function's"),
        pytest.param(lambda content: with_code(content, b"no object"), id="no object file"),
        pytest.param(lambda content: with_code(content, b""), id="empty object file"),
    ],
)
def test_a_damaged_file_is_compiled_again_and_replaced(
    damage: Callable[[bytes], bytes], filled: Path, tmp_path: Path
) -> None:
    cache = tmp_path / "cache"
    shutil.copytree(filled / "cache", cache)
    path = only_object(cache)
    path.write_bytes(damage(path.read_bytes()))
    assert compiles(started(tmp_path, cache))
    assert only_object(cache) == path
    assert not compiles(started(tmp_path, cache))


def test_objects_under_each_others_names_are_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    folder = tmp_path / "mxrun" / "native"
    objects = [(each.key, each) for each in (shift_loop, shift_loop.bfloat16)]
    for key, function in objects:
        assert key is not None
        object_cache.store(key, function._compile())
    one, other = (folder / str(key) for key, _ in objects)
    assert all(object_cache.find(path.name) is not None for path in (one, other))
    contents = one.read_bytes(), other.read_bytes()
    one.write_bytes(contents[1])
    other.write_bytes(contents[0])
    assert all(object_cache.find(path.name) is None for path in (one, other))


def test_an_object_that_others_may_write_is_compiled_again(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    compiles(started(tmp_path, cache))
    only_object(cache).chmod(0o666)
    assert compiles(started(tmp_path, cache))
    assert not compiles(started(tmp_path, cache))
    only_object(cache).parent.chmod(0o777)
    before = only_object(cache).stat().st_mtime_ns
    assert compiles(started(tmp_path, cache))
    assert compiles(started(tmp_path, cache))
    assert only_object(cache).stat().st_mtime_ns == before


def test_a_folder_in_an_objects_place_leaves_nothing_behind(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    compiles(started(tmp_path, cache))
    path = only_object(cache)
    path.unlink()
    path.mkdir()
    assert compiles(started(tmp_path, cache))
    assert only_object(cache) == path


def test_a_cache_that_cannot_be_written_costs_only_time(tmp_path: Path) -> None:
    (tmp_path / "cache").write_bytes(b"a file where the folder should be")
    assert compiles(started(tmp_path, tmp_path / "cache"))
    assert compiles(started(tmp_path, tmp_path / "cache"))


def test_two_processes_may_fill_the_cache_at_once(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    processes = [started(tmp_path, cache) for _ in range(2)]
    for process in processes:
        compiles(process)
    only_object(cache)
    assert not compiles(started(tmp_path, cache))


# Two threads find the first objects that the process links, the second one while the first makes
# the linker. Prints how many are made.
THREADS = """\
import threading

import llvmlite.binding
import numpy as np

from mxrun.codegen import object_cache
from mxrun.codegen.arguments import Arguments, Float32s
from mxrun.codegen.host_loop import HostLoop
from mxrun.codegen.jit import native


class One(Arguments):
    data: Float32s


@native
def double_loop(call: One):
    call.data[0] *= np.float32(2)


@native
def triple_loop(call: One):
    call.data[0] *= np.float32(3)


make, calls = llvmlite.binding.create_mcjit_compiler, []
is_making, again = threading.Event(), threading.Event()


def slow(*arguments):
    calls.append(arguments)
    (again if is_making.is_set() else is_making).set()
    again.wait(0.2)
    return make(*arguments)


llvmlite.binding.create_mcjit_compiler = slow
loops = (double_loop, triple_loop)
first, second = (threading.Thread(target=object_cache.find, args=(loop.key,)) for loop in loops)
first.start()
is_making.wait(1)
second.start()
first.join()
second.join()
data = np.ones(1, np.float32)
for loop in loops:
    HostLoop(loop, One(data=data))()
print(len(calls), data.tolist())
"""


def test_threads_that_link_at_once_share_one_linker(tmp_path: Path) -> None:
    """Code of a linker that is dropped would leave memory; the first process fills the cache."""
    script = tmp_path / "threads.py"
    script.write_text(THREADS)
    for _ in range(2):
        found = python_output(script, env={**os.environ, "XDG_CACHE_HOME": str(tmp_path)})
        assert found == "1 [6.0]\n"


def test_a_relative_cache_folder_is_not_used(tmp_path: Path) -> None:
    assert compiles(started(tmp_path, "cache"))
    assert not (tmp_path / "cache").exists()
    assert compiles(started(tmp_path, "cache"))


def test_every_file_that_makes_code_is_part_of_the_key() -> None:
    """The modules that the compiler imports from this package determine the code of a function."""
    script = (
        "import sys, mxrun.codegen.block_function, mxrun.codegen.sequential.compiler;"
        "print(*(n[14:] for n in sys.modules if n.startswith('mxrun.codegen.')))"
    )
    # These name and find compiled code.
    others = {"code_identity", "compilation", "object_cache"}
    # Every file of `sequential` is part of the key.
    names = python_output("-c", script).split()
    imported = {name for name in names if name.partition(".")[0] != "sequential"}
    assert imported - others == set(object_cache._TRANSLATION)
