"""`mxrun info`: versions, libraries, caches, and the removal of what can be computed again."""

from __future__ import annotations

from pathlib import Path

import pytest
from commands import mxrun, refused, result

import mxrun as package
from mxrun.device.cpu.onednn import library

SHORT = ("digits_lenet", "train.epochs=1", "data.train.split={of: train, range: [0, 128]}")


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "mxrun"


def test_versions_and_libraries_are_shown(cache: Path, tmp_path: Path) -> None:
    found = result("info", cwd=tmp_path)
    assert found["mxrun"] == package.__version__
    assert found["processor"]["cores"] >= 1
    assert found["libraries"]["numpy"]
    assert (found["libraries"]["onednn"] is not None) == (library.load() is not None)
    assert found["cache"] == {"folder": str(cache), "kinds": []}
    assert package.__version__ in mxrun("info", cwd=tmp_path).stdout


@pytest.mark.full
def test_the_cache_is_shown_and_cleared_but_permissions_stay(cache: Path, tmp_path: Path) -> None:
    result("train", *SHORT, cwd=tmp_path)
    (cache / "plugins").mkdir(mode=0o700)
    (cache / "plugins" / "digest").write_text("my_ops.py")
    kinds = {row["kind"]: row for row in result("info", cwd=tmp_path)["cache"]["kinds"]}
    native = [path.stat().st_size for path in (cache / "native").iterdir()]
    assert (kinds["native"]["files"], kinds["native"]["bytes"]) == (len(native), sum(native))
    assert native
    cleared = result("info", "--clear-cache", cwd=tmp_path)["cleared"]
    assert cleared["native"] == len(native)
    assert "plugins" not in cleared
    assert not any((cache / "native").iterdir())
    assert (cache / "plugins" / "digest").exists()
    assert result("train", *SHORT, "name=again", cwd=tmp_path)["steps"] == 2


def test_a_file_that_cannot_be_removed_is_named(cache: Path, tmp_path: Path) -> None:
    folder = cache / "native" / "folder"
    folder.mkdir(parents=True)
    assert f"cannot remove {folder}" in refused("info", "--clear-cache", cwd=tmp_path)


def test_a_user_without_a_cache_has_none(tmp_path: Path) -> None:
    environment = {"XDG_CACHE_HOME": "relative"}
    found = result("info", cwd=tmp_path, environment=environment)
    assert found["cache"] == {"folder": None, "kinds": []}
