"""Files of the cache folder are used only if no other user can have written them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mxrun.base import cache_files


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(cache_files, "_DISTRUSTED", {})
    cache_files.write("things", "one", b"content")
    return tmp_path / "mxrun" / "things"


def test_what_was_written_is_read() -> None:
    assert cache_files.read("things", "one") == b"content"
    assert cache_files.read("things", "other") is None
    assert cache_files.distrusted() == ()


@pytest.mark.parametrize("mode", [0o666, 0o620, 0o602])
def test_a_file_that_others_may_write_is_not_read(folder: Path, mode: int) -> None:
    (folder / "one").chmod(mode)
    for _ in range(2):
        assert cache_files.read("things", "one") is None
    (message,) = cache_files.distrusted()
    assert f"{folder / 'one'} can be written by other users" in message


def test_a_folder_that_others_may_write_is_neither_read_nor_written(folder: Path) -> None:
    folder.chmod(0o770)
    assert cache_files.read("things", "one") is None
    assert cache_files.write("things", "two", b"content") is None
    assert [path.name for path in folder.iterdir()] == ["one"]
    assert len(cache_files.distrusted()) == 1


@pytest.mark.skipif(os.geteuid() != 0, reason="only the superuser gives files away")
@pytest.mark.parametrize("which", ["file", "folder"])
def test_what_belongs_to_another_user_is_not_read(folder: Path, which: str) -> None:
    path = folder / "one" if which == "file" else folder
    os.chown(path, 65534, -1)
    assert cache_files.read("things", "one") is None
    (message,) = cache_files.distrusted()
    assert f"{path} belongs to another user" in message


def test_a_link_and_a_pipe_are_not_read(folder: Path, tmp_path: Path) -> None:
    (folder / "one").rename(tmp_path / "elsewhere")
    (folder / "one").symlink_to(tmp_path / "elsewhere")
    os.mkfifo(folder / "two")
    assert cache_files.read("things", "one") is None
    assert cache_files.read("things", "two") is None


@pytest.mark.skipif(os.geteuid() != 0, reason="only the superuser gives links away")
@pytest.mark.parametrize("which", ["root", "kind"])
def test_a_folder_of_ones_own_behind_a_link_of_another_user_is_not_the_cache(
    folder: Path, tmp_path: Path, which: str
) -> None:
    link = folder if which == "kind" else folder.parent
    own = tmp_path / "own"
    link.rename(own)
    link.symlink_to(own)
    assert cache_files.read("things", "one") == b"content"
    os.lchown(link, 65534, -1)
    assert cache_files.read("things", "one") is None
    assert cache_files.write("things", "two", b"content") is None
    assert cache_files.clear("things") == 0
    assert [path.name for path in own.rglob("one")] == ["one"]
    (message,) = cache_files.distrusted()
    assert f"{link} belongs to another user" in message


def test_a_cache_whose_place_all_users_can_change_is_not_used(folder: Path, tmp_path: Path) -> None:
    # As of /tmp: there, users cannot rename what others have made.
    tmp_path.chmod(0o1777)
    assert cache_files.read("things", "one") == b"content"
    tmp_path.chmod(0o777)
    assert cache_files.read("things", "one") is None
    (message,) = cache_files.distrusted()
    assert f"{tmp_path} can be written by all users (chmod o-w {tmp_path})" in message


def test_both_folders_are_made_for_this_user_alone(folder: Path) -> None:
    before = os.umask(0)
    try:
        cache_files.write("others", "one", b"content")
    finally:
        os.umask(before)
    assert cache_files.read("others", "one") == b"content"
    for each in (folder.parent, folder, folder.parent / "others"):
        assert each.stat().st_mode & 0o777 == 0o700
