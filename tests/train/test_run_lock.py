"""Lock of a run's folder: never in another's file, never of another run's folder."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from mxrun.base.errors import UserError
from mxrun.train.run_lock import only_writer


def test_a_folder_has_one_writer(tmp_path: Path) -> None:
    with (
        only_writer(tmp_path / "one"),
        pytest.raises(UserError, match="another process is writing") as caught,
        only_writer(tmp_path / "one"),
    ):
        pass
    assert f"process {os.getpid()}" in str(caught.value)
    with only_writer(tmp_path / "one"):
        pass
    assert list((tmp_path / "one").iterdir()) == []


@pytest.mark.parametrize("kind", ["link", "hard link", "pipe", "text"])
def test_a_lock_that_is_none_is_refused_and_left_alone(kind: str, tmp_path: Path) -> None:
    folder, mine = tmp_path / "one", tmp_path / "mine"
    folder.mkdir()
    mine.write_text("123")
    lock = folder / ".lock"
    if kind == "link":
        lock.symlink_to(mine)
    elif kind == "hard link":
        lock.hardlink_to(mine)
    elif kind == "pipe":
        os.mkfifo(lock)
    else:
        lock.write_text("my own words")
    with pytest.raises(UserError, match="is not the lock of a run"), only_writer(folder):
        pass
    assert mine.read_text() == "123"
    assert os.path.lexists(lock)
    assert kind != "text" or lock.read_text() == "my own words"


def test_what_a_killed_process_left_is_no_hindrance(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / ".lock").write_text("4711\n")
    with only_writer(tmp_path / "one") as lock:
        lock.check()


def test_a_folder_that_was_replaced_is_written_no_more(tmp_path: Path) -> None:
    folder = tmp_path / "one"
    with only_writer(folder) as first:
        first.check()
        shutil.rmtree(folder)
        with pytest.raises(UserError, match="was removed or replaced"):
            first.check()
        with only_writer(folder) as second:
            second.check()
            with pytest.raises(UserError, match="was removed or replaced"):
                first.check()
            entered = (folder / ".lock").stat()
    with pytest.raises(FileNotFoundError):
        (folder / ".lock").stat()
    assert entered.st_nlink == 1


def test_the_end_of_a_run_leaves_the_lock_of_its_folders_next_one(tmp_path: Path) -> None:
    folder = tmp_path / "one"
    ended = only_writer(folder)
    ended.__enter__()
    shutil.rmtree(folder)
    with only_writer(folder) as lock:
        ended.__exit__(None, None, None)
        lock.check()
