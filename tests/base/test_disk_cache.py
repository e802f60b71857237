"""Disk cache: results of earlier processes, with removal of the oldest entries."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mxrun.base import disk_cache


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "mxrun" / "things"


def test_what_was_kept_is_found_under_its_key_alone() -> None:
    disk_cache.put("things", "a: 1\nb: 2", [1.5, "x"])
    assert disk_cache.get("things", "a: 1\nb: 2") == [1.5, "x"]
    assert disk_cache.get("things", "a: 1") is None
    assert disk_cache.get("others", "a: 1\nb: 2") is None


def test_the_oldest_go(folder: Path) -> None:
    for number in range(6):
        disk_cache.put("things", f"key {number}", number, most=3)
        for path in folder.iterdir():
            # Files with equal timestamps have no order.
            os.utime(path, ns=(path.stat().st_atime_ns, path.stat().st_mtime_ns - 10**9))
    assert [disk_cache.get("things", f"key {number}") for number in range(6)] == [
        *(None, None, None),
        *(3, 4, 5),
    ]


def test_without_a_limit_all_stay() -> None:
    for number in range(6):
        disk_cache.put("things", f"key {number}", number)
    assert [disk_cache.get("things", f"key {number}") for number in range(6)] == list(range(6))
