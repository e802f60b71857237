"""The cache key of machine code covers all of the code's sources, and nothing else."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import ModuleType

import pytest
from commands import python_output

from mxrun import library
from mxrun.codegen.jit import NativeFunction
from mxrun.ops.batch_norm import loops as batch_norm_loops
from mxrun.ops.batch_norm import walk as batch_norm_walk

WALK = Path(batch_norm_walk.__file__).read_text()
LOOPS = Path(batch_norm_loops.__file__).read_text()


def imported(name: str, text: str, folder: Path) -> ModuleType:
    """Import a separate module with this text."""
    path = folder / f"{name}.py"
    path.write_text(text)
    module = ModuleType(name)
    sys.modules[name] = module
    exec(compile(text, str(path), "exec", dont_inherit=True), module.__dict__)
    return module


def batch_norm_keys(folder: Path, walk: str = WALK, loops: str = LOOPS) -> dict[str, str | None]:
    """Return the cache keys of batch normalisation's loops for other texts of their two files."""
    imported("copied_walk", walk, folder)
    module = imported(
        "copied_loops", loops.replace("mxrun.ops.batch_norm.walk", "copied_walk"), folder
    )
    loops_of = {n: each for n, each in vars(module).items() if isinstance(each, NativeFunction)}
    low = {f"{name}.bfloat16": loop.bfloat16 for name, loop in loops_of.items()}
    return {name: loop.key for name, loop in {**loops_of, **low}.items()}


def changed(before: dict[str, str | None], after: dict[str, str | None]) -> set[str]:
    assert before.keys() == after.keys()
    return {name for name in before if before[name] != after[name]}


@pytest.fixture
def before(tmp_path: Path) -> dict[str, str | None]:
    return batch_norm_keys(tmp_path)


def test_a_piece_of_another_file_belongs_to_the_key(
    before: dict[str, str | None], tmp_path: Path
) -> None:
    walk = WALK.replace("cut * call.width\n    rows =", "cut * call.width + 0 * task\n    rows =")
    assert walk != WALK
    # All loops take their rows from tasks, except the loop that computes the statistics of a
    # sample.
    assert "statistics_loop" in changed(before, batch_norm_keys(tmp_path, walk))
    assert "shift_loop" not in changed(before, batch_norm_keys(tmp_path, walk))


def test_a_number_from_outside_belongs_to_the_key(
    before: dict[str, str | None], tmp_path: Path
) -> None:
    loops = LOOPS.replace("SAMPLE_STEP = 2_654_435_761", "SAMPLE_STEP = 2_654_435_769")
    assert changed(before, batch_norm_keys(tmp_path, WALK, loops)) == {
        *("shift_loop", "shift_loop.bfloat16"),
    }


def test_comments_and_what_is_not_reached_do_not_belong_to_the_key(
    before: dict[str, str | None], tmp_path: Path
) -> None:
    loops = f"# Another comment.\n{LOOPS}\nUNUSED = 3\n"
    assert not changed(before, batch_norm_keys(tmp_path, f"# Another.\n{WALK}", loops))


def test_what_cannot_be_told_is_not_cached(tmp_path: Path) -> None:
    text = """\
from mxrun.codegen.arguments import Arguments, Integer
from mxrun.codegen.jit import native
FACTORS = [2.0, 3.0]
class Counting(Arguments):
    count: Integer
@native
def loop(call: Counting):
    for i in range(call.count):
        FACTORS[i]
"""
    assert imported("untold", text, tmp_path).loop.key is None
    assert imported("untold", text.replace("[2.0, 3.0]", "(2.0, 3.0)"), tmp_path).loop.key


def test_every_native_function_has_a_key_of_its_own() -> None:
    library.load()
    found = {
        id(value): value.key
        for name, module in list(sys.modules.items())
        if name.startswith("mxrun.")
        for value in vars(module).values()
        if isinstance(value, NativeFunction)
    }
    assert len(found) > 50
    assert None not in found.values()
    assert len(set(found.values())) == len(found)


MAIN = """\
import json

import numpy as np

from mxrun.codegen.arguments import Arguments, Float32s, Integer
from mxrun.codegen.host_loop import HostLoop
from mxrun.codegen.jit import native
from factors import scaled


class Scaling(Arguments):
    count: Integer
    values: Float32s


@native
def scale_loop(call: Scaling):
    for i in range(call.count):
        call.values[i] = scaled(call.values[i])


values = np.arange(3, dtype=np.float32)
HostLoop(scale_loop, Scaling(count=3, values=values))()
print(json.dumps(values.tolist()))
"""
FACTORS = """\
import numpy as np

from mxrun.codegen.jit import inlined


@inlined
def scaled(value):
    return value * np.float32(3)
"""


def test_a_result_follows_a_changed_inlined_function_of_another_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    (tmp_path / "main.py").write_text(MAIN)
    results = []
    for factor in (3, 5):
        (tmp_path / "factors.py").write_text(FACTORS.replace("(3)", f"({factor})"))
        results.append(json.loads(python_output("main.py", cwd=tmp_path)))
    assert results == [[0.0, 3.0, 6.0], [0.0, 5.0, 10.0]]
