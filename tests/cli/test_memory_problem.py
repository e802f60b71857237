"""`inspect-memory --problem`: tables and JSON."""

from __future__ import annotations

import io
import os
import sys
from pathlib import Path

import numpy as np
import pytest
from commands import mxrun, refused, result, succeeded
from puzzles import fits, puzzle

from mxrun.commands.memory_problem import place_problem, read_problem
from mxrun.planner.allocator.allocate import Allocation
from mxrun.report.memory_search import search_progress

GOOD = "id,lower,upper,size\na,0,2,64\nb,1,3,64\nc,2,4,64\n"


def written(folder: Path, content: str | bytes) -> Path:
    path = folder / "blocks.csv"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def test_a_problem_is_answered_for_machines(tmp_path: Path) -> None:
    path = written(tmp_path, GOOD)
    found = result("inspect-memory", "--problem", str(path), cwd=tmp_path)
    assert found["planned_bytes"] == found["lower_bound_bytes"] == 128
    assert found["proved_optimal"] is True
    assert found["gap_bytes"] == 0
    assert found["planning_ms"] >= 0
    assert sorted(found["offsets"].values()) == [0, 0, 64]
    assert found["offsets"]["b"] not in (found["offsets"]["a"], found["offsets"]["c"])


def test_a_problem_is_answered_for_people(tmp_path: Path) -> None:
    rows = "".join(f"block{number},{number},{number + 2},64\n" for number in range(40))
    path = written(tmp_path, "id,lower,upper,size\n" + rows)
    done = succeeded(mxrun("inspect-memory", "--problem", str(path), cwd=tmp_path))
    for text in ("planned", "128 B", "proved optimal", "block0", "10 others"):
        assert text in done.stdout


@pytest.mark.parametrize("name", ["C", "G", "K"])
def test_minimallocs_problems_are_answered_for_programs(name: str, tmp_path: Path) -> None:
    folder = os.environ.get("MXRUN_TEST_DATA")
    if folder is None:
        pytest.skip("MXRUN_TEST_DATA does not name a folder with MiniMalloc's problems")
    path = Path(folder) / f"minimalloc/{name}.1048576.csv"
    found = result("inspect-memory", "--problem", str(path), cwd=tmp_path)
    assert found["planned_bytes"] == found["lower_bound_bytes"] <= 1_048_576
    assert found["proved_optimal"] is True
    rows = read_problem(path)
    first, last, size = np.array([row[1:] for row in rows]).T
    offsets = [found["offsets"][row[0]] for row in rows]
    assert fits(offsets, (size, first, last), found["planned_bytes"])


def test_the_form_of_a_file_may_vary(tmp_path: Path) -> None:
    """Any order of columns, spaces, quotes, a byte order mark, empty lines, two line ends."""
    content = '\ufeffsize, upper ,id,lower\r\n64,2,"a,1",-3\r\n\r\n 8 , 3,"say ""b""",1'
    path = written(tmp_path, content)
    assert read_problem(path) == [("a,1", -3, 2, 64), ('say "b"', 1, 3, 8)]


def test_what_the_csv_option_writes_is_read_back(tmp_path: Path) -> None:
    net = ("inspect-memory", "digits_lenet", "--threads", "1")
    report = result(*net, "--csv", "blocks.csv", cwd=tmp_path)
    found = result("inspect-memory", "--problem", "blocks.csv", cwd=tmp_path)
    pinned = report["planned_bytes"] - found["planned_bytes"]
    assert pinned > 0
    assert report["lower_bound_bytes"] == found["lower_bound_bytes"] + pinned


@pytest.mark.parametrize(
    ("content", "place", "words"),
    [
        ("", "1:1", "not a known column"),
        ("id,lower,upper\n", "1:1", "no column 'size'"),
        ("id,lower,upper,sise\n", "1:16", "did you mean 'size'?"),
        ("id,lower,upper,size,alignment\n", "1:21", "'alignment' is not supported"),
        ("id,lower,upper,size,size\n", "1:21", "two columns 'size'"),
        (GOOD + "d,0,1\n", "5:5", "3 values"),
        (GOOD + "d,0,1,64,9\n", "5:10", "5 values"),
        (GOOD + "d,0, x,64\n", "5:6", "'x'"),
        (GOOD + "d,0,1,6.5\n", "5:7", "'6.5'"),
        (GOOD + "d,0,1,1_0\n", "5:7", "'1_0'"),
        (GOOD + f"d,0,1,{1 << 61}\n", "5:7", "at most"),
        (GOOD + f"d,0,1,{1 << 60}\n", "5:7", "sum of the sizes"),
        (GOOD + "d,0,1,-64\n", "5:7", "negative"),
        (GOOD + "d,2,2,64\n", "5:5", "never live"),
        (GOOD + "a,0,1,64\n", "5:1", "same id"),
        (GOOD + ",0,1,64\n", "5:1", "no id"),
        (GOOD + "\x1b[31md,0,1,64\n", "5:1", r"'\x1b[31md'"),
        (GOOD + '"d\re",0,1,64\n', "5:2", r"'d\re'"),
        (GOOD + "d\u202e,0,1,64\n", "5:1", r"'d\u202e'"),
        (GOOD + '"d,0,1,64\n', "5:1", "quote does not end"),
        (GOOD + '"d"e,0,1,64\n', "5:1", "quote does not end"),
        (GOOD + 'd,"0,1,64\n', "5:3", "quote does not end"),
        (GOOD.encode() + b"d,0,\xff,64\n", "5:5", "0xff"),
    ],
)
def test_a_bad_file_is_told_with_its_place(
    content: str | bytes, place: str, words: str, tmp_path: Path
) -> None:
    path = written(tmp_path, content)
    said = refused("inspect-memory", "--problem", str(path), cwd=tmp_path)
    assert f"{path}:{place}: " in said
    assert words in said


def test_what_does_not_go_together_is_refused(tmp_path: Path) -> None:
    path = str(written(tmp_path, GOOD))
    assert "cannot be read" in refused("inspect-memory", "--problem", "none.csv", cwd=tmp_path)
    phases = (["--phase", "train"], ["--phase", "infer"])
    for more in (["digits_lenet"], ["--batch", "2"], ["--svg", "a.svg"], *phases):
        said = refused("inspect-memory", "--problem", path, *more, cwd=tmp_path)
        named = "CONFIG" if more == ["digits_lenet"] else more[0]
        assert f"not a network: {named} cannot be combined with it" in said
    assert "neither CONFIG nor --problem FILE is given" in refused("inspect-memory", cwd=tmp_path)
    limit = ("--time-limit", "5")
    assert "requires --problem" in refused("inspect-memory", "digits_lenet", *limit, cwd=tmp_path)


def test_within_a_time_limit_the_search_ends_where_nothing_can_be_better(tmp_path: Path) -> None:
    path = written(tmp_path, GOOD)
    usual = place_problem(path)
    assert place_problem(path, 0).offsets == place_problem(path, 1e9).offsets == usual.offsets
    problem = ("inspect-memory", "--problem", str(path), "--time-limit", "1000")
    found = result(*problem, cwd=tmp_path)
    assert found["offsets"] == usual.offsets
    assert found["proved_optimal"] is True


def test_an_interrupted_search_gives_the_best_found(tmp_path: Path) -> None:
    heard = []

    def interrupt(seconds: float, found: Allocation) -> None:
        heard.append(found.arena_bytes)
        raise KeyboardInterrupt

    placed = place_problem(written(tmp_path, GOOD), 1000, interrupt)
    assert heard == [placed.allocation.arena_bytes] == [128]
    assert sorted(placed.offsets) == ["a", "b", "c"]


def test_the_search_goes_on_until_the_time_is_over(tmp_path: Path) -> None:
    """The time limit is reached by the third portion, whatever the load of the machine."""
    size, first, last = puzzle(0, 200, 60, 4096)
    rows = [f"{i},{first[i]},{last[i]},{size[i]}\n" for i in range(len(size))]
    path = written(tmp_path, "id,lower,upper,size\n" + "".join(rows))
    arenas: list[int] = []

    def advance(seconds: float, found: Allocation) -> None:
        arenas.append(found.arena_bytes)
        if len(arenas) == 3:
            raise KeyboardInterrupt

    placed = place_problem(path, float("inf"), advance)
    assert arenas == sorted(arenas, reverse=True)
    assert len(arenas) == 3
    allocation = placed.allocation
    assert allocation.arena_bytes == arenas[-1]
    offsets = [placed.offsets[str(i)] for i in range(len(size))]
    assert fits(offsets, (size, first, last), allocation.arena_bytes)


def test_a_terminal_shows_how_far_a_search_is(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = io.StringIO()
    monkeypatch.setattr(shown, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(sys, "stderr", shown)
    monkeypatch.setenv("TERM", "xterm-256color")
    with search_progress(60) as advance:
        advance(1.0, Allocation((0,), 2048, 1024, 1536, "search"))
    assert "2 KiB" in shown.getvalue() or "2.00 KiB" in shown.getvalue()
    assert "at most 512 bytes above the optimum" in shown.getvalue()
