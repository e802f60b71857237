"""Atomic writing of files: complete or not at all, through links and into pipes."""

from __future__ import annotations

import os
import stat
import threading
from pathlib import Path

import pytest

from mxrun.base.errors import UserError
from mxrun.base.files import atomic_file, check_writable


def write(path: Path, content: bytes) -> None:
    with atomic_file(path) as file:
        file.write(content)


def test_a_failure_leaves_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "x"
    write(path, b"old")

    def fail() -> None:
        with atomic_file(path) as file:
            file.write(b"half of the n")
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["x"]


def test_links_stay(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("below")
    write(tmp_path / "link", b"new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "below").read_bytes() == b"new"


def test_pipes_and_devices_are_written_as_they_are(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    read: list[bytes] = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_bytes()))
    reader.start()
    write(pipe, b"content")
    reader.join()
    assert read == [b"content"]
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    with pytest.raises(UserError, match="cannot write /dev/full: no space"):
        write(Path("/dev/full"), b"content")
    assert stat.S_ISCHR(os.stat("/dev/full").st_mode)


@pytest.mark.parametrize(
    ("path", "why"),
    [("file/x.csv", "not a directory"), ("none/x.csv", "no such file"), ("folder", "directory")],
)
def test_what_cannot_be_written_is_named(tmp_path: Path, path: str, why: str) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "folder").mkdir()
    with pytest.raises(UserError) as caught:
        write(tmp_path / path, b"")
    assert f"cannot write {tmp_path / path}: " in str(caught.value)
    assert why in str(caught.value)


def test_of_two_writers_at_once_the_last_one_wins_whole(tmp_path: Path) -> None:
    path = tmp_path / "x"
    with atomic_file(path) as first:
        first.write(b"first, ")
        with atomic_file(path) as second:
            second.write(b"second, which is longer")
        assert path.read_bytes() == b"second, which is longer"
        first.write(b"to the end")
    assert path.read_bytes() == b"first, to the end"
    assert os.listdir(tmp_path) == ["x"]


def test_what_lies_in_the_way_of_a_half_written_file_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine").write_bytes(b"mine")
    (tmp_path / ".x.partial").symlink_to("mine")
    write(tmp_path / "x", b"new")
    assert (tmp_path / "mine").read_bytes() == b"mine"
    assert (tmp_path / ".x.partial").is_symlink()
    assert (tmp_path / "x").read_bytes() == b"new"


def test_a_link_that_is_not_followed_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "mine").write_bytes(b"mine")
    (tmp_path / "link").symlink_to("mine")
    with atomic_file(tmp_path / "link", follow=False) as file:
        file.write(b"new")
    assert not (tmp_path / "link").is_symlink()
    assert (tmp_path / "link").read_bytes() == b"new"
    assert (tmp_path / "mine").read_bytes() == b"mine"


def test_files_that_cannot_be_written_are_all_told_before(tmp_path: Path) -> None:
    check_writable(None, tmp_path / "x", Path("/dev/null"))
    with pytest.raises(UserError) as caught:
        check_writable(tmp_path / "none" / "x.svg", tmp_path / "y", tmp_path)
    assert len(caught.value.diagnostics) == 2
    assert f"there is no folder {tmp_path / 'none'}" in str(caught.value)
    assert f"cannot write {tmp_path}: it is a folder" in str(caught.value)
    assert os.listdir(tmp_path) == []
    with pytest.raises(UserError, match=r"cannot write -: .* write /dev/stdout"):
        check_writable(Path("-"))
