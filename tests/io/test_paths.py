"""Paths, patterns and lists of files."""

import os
from pathlib import Path

import pytest

from mxrun.base.errors import UserError
from mxrun.io.paths import find_files


@pytest.fixture
def files(empty_folder: Path) -> Path:
    for name in ("b-10.rec", "b-2.rec", "a.rec", "deep/c.rec", "odd[1].rec"):
        (empty_folder / name).parent.mkdir(exist_ok=True)
        (empty_folder / name).touch()
    return empty_folder


def names(*paths: str) -> list[str]:
    return [str(path) for path in find_files(paths[0] if len(paths) == 1 else paths)]


@pytest.mark.parametrize(
    ("paths", "found"),
    [
        (("a.rec",), ["a.rec"]),
        (("b-*.rec",), ["b-10.rec", "b-2.rec"]),
        (("b-{2..2}.rec", "b-{10..10}.rec"), ["b-2.rec", "b-10.rec"]),
        (("b-*.rec", "a.rec"), ["b-10.rec", "b-2.rec", "a.rec"]),
        (("**/c.rec",), ["deep/c.rec"]),
        (("odd[1].rec",), ["odd[1].rec"]),
    ],
)
def test_files_are_found_in_order(files, paths, found):
    assert names(*paths) == found


def test_ranges_of_numbers_have_the_first_ones_width(files):
    for number in range(8, 12):
        (files / f"s-{number:03d}.tar").touch()
    assert names("s-{008..011}.tar") == [f"s-{number:03d}.tar" for number in range(8, 12)]
    with pytest.raises(UserError, match=r"s-012\.tar: there is no such file"):
        names("s-{008..012}.tar")
    with pytest.raises(UserError, match="wrong range of numbers"):
        names("s-{9..8}.tar")
    # Too many texts to write down, but the first one is missing.
    with pytest.raises(UserError, match="there is no such file"):
        names("{0..999999}{0..999999}{0..999999}.tar")


def test_a_home_folder_is_expanded(files, monkeypatch):
    monkeypatch.setenv("HOME", str(files))
    assert names("~/a.rec") == [str(files / "a.rec")]
    assert names("~/a*.rec") == [str(files / "a.rec")]


def test_nothing_found_is_an_error(files):
    with pytest.raises(UserError, match=r"no file matches the pattern c\*\.rec"):
        names("c*.rec")
    with pytest.raises(UserError, match=r"a\.rek: there is no such file") as caught:
        names("a.rek")
    assert "a.rec" in str(caught.value)
    with pytest.raises(UserError, match="empty list"):
        find_files(())


def test_a_file_is_not_read_twice(files):
    os.symlink("a.rec", "link.rec")
    for paths in (("a.rec", "a.rec"), ("a.rec", "*.rec"), ("a.rec", "./a.rec"), ("*.rec",)):
        with pytest.raises(UserError, match="listed twice"):
            names(*paths)
