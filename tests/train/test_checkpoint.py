"""Checkpoints: exact bytes, atomic writes, and validation of everything that is read."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import subprocess
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy
from sealed import rewrite

from mxrun.base.errors import UserError
from mxrun.train.checkpoint import (
    OPTIMIZER_FILE,
    PARAMETERS_FILE,
    Arrays,
    PlanRecord,
    RunState,
    load_checkpoint,
    read_manifest,
    save_checkpoint,
)
from mxrun.train.progress import Progress

STATE = RunState(
    progress=Progress(step=12, epoch=2, batch=3),
    due=True,
    seed=5,
    plan=PlanRecord(library="oneDNN 3.2", implementations={"conv1": "brgconv"}),
    config_sha256="0" * 64,
    inference_sha256="0" * 64,
    data={"train": "1" * 64},
)


def groups(
    parameters: dict[str, np.ndarray], optimizer: dict[str, np.ndarray] | None = None
) -> dict[str, Arrays]:
    return {PARAMETERS_FILE: parameters, OPTIMIZER_FILE: optimizer or {}}


def arrays(seed: int = 0) -> dict[str, np.ndarray]:
    generator = np.random.default_rng(seed)
    return {
        "fc1_weight": generator.normal(size=(5, 3)).astype(np.float32),
        "fc1_bias": generator.normal(size=5).astype(np.float32),
        "block1/conv1_weight": generator.normal(size=(4, 2, 3, 3)).astype(np.float32),
        "scale": np.array(generator.normal(), np.float32),
    }


def digests(folder: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()}


def test_what_is_saved_is_loaded(tmp_path: Path) -> None:
    states = {"fc1_weight_mom": np.ones((5, 3), "f4")}
    folder = save_checkpoint(tmp_path, STATE, groups(arrays(), states))
    assert folder == tmp_path / "checkpoint-12"
    checkpoint = load_checkpoint(folder)
    for name, array in arrays().items():
        assert np.array_equal(checkpoint.parameters[name], array)
        assert checkpoint.parameters[name].dtype == array.dtype
    assert checkpoint.optimizer["fc1_weight_mom"].tolist() == [[1.0] * 3] * 5
    assert checkpoint.manifest.plan == STATE.plan
    assert (checkpoint.manifest.progress, checkpoint.manifest.seed) == (STATE.progress, 5)


def test_without_states_there_is_no_optimizer_file(tmp_path: Path) -> None:
    folder = save_checkpoint(tmp_path, STATE, groups(arrays()))
    assert {path.name for path in folder.iterdir()} == {"parameters.safetensors", "manifest.json"}
    assert load_checkpoint(folder).optimizer == {}


def test_files_are_the_packages_own_bytes(tmp_path: Path) -> None:
    folder = save_checkpoint(tmp_path, STATE, groups(arrays()))
    own = (folder / "parameters.safetensors").read_bytes()
    assert own == safetensors.numpy.save(arrays())


def test_memory_order_and_dict_order_do_not_show(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    first = save_checkpoint(tmp_path / "a", STATE, groups(arrays()))
    turned = {name: np.array(array, order="F") for name, array in reversed(list(arrays().items()))}
    second = save_checkpoint(tmp_path / "b", STATE, groups(turned))
    assert digests(first) == digests(second)


def test_the_manifest_says_what_the_files_are(tmp_path: Path) -> None:
    folder = save_checkpoint(
        tmp_path, STATE, groups(arrays(), {"fc1_weight_mom": np.ones(3, "f4")})
    )
    text = (folder / "manifest.json").read_text()
    manifest = json.loads(text)
    found = digests(folder)
    for name in ("parameters.safetensors", "optimizer.safetensors"):
        size = (folder / name).stat().st_size
        assert manifest["files"][name] == {"bytes": size, "sha256": found[name]}
    assert text == json.dumps(manifest, sort_keys=True, separators=(",", ":")) + "\n"
    assert manifest["format"] == 4


def test_a_failed_write_names_the_file_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(UserError, match=r"cannot write .*checkpoint-12.*no space left"):
        save_checkpoint(tmp_path, STATE, groups(arrays()))
    assert list(tmp_path.iterdir()) == []


def test_a_killed_writer_leaves_no_checkpoint(tmp_path: Path) -> None:
    script = f"""
import os, sys
from pathlib import Path
import numpy as np
from mxrun.train.checkpoint import PARAMETERS_FILE, PlanRecord, RunState, save_checkpoint
from mxrun.train.progress import Progress
state = RunState(progress=Progress(step=3), due=True, seed=0, data={{}},
                 config_sha256="0" * 64, inference_sha256="0" * 64,
                 plan=PlanRecord(library="", implementations={{}}))
calls = 0
real = os.fsync
def dying(descriptor):
    global calls
    calls += 1
    if calls == 2:
        os._exit(9)
    real(descriptor)
os.fsync = dying
save_checkpoint(Path({str(tmp_path)!r}), state, {{PARAMETERS_FILE: {{"w": np.ones(4, "f4")}}}})
"""
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 9
    assert not (tmp_path / "checkpoint-3").exists()
    assert [path.name for path in tmp_path.iterdir()] == [".checkpoint-3.partial"]
    state = STATE.model_copy(update={"progress": Progress(step=3)})
    folder = save_checkpoint(tmp_path, state, groups(arrays()))
    assert load_checkpoint(folder).manifest.progress.step == 3
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint-3"]


def test_a_checkpoint_saved_again_is_replaced_whole(tmp_path: Path) -> None:
    save_checkpoint(tmp_path, STATE, groups(arrays(), {"fc1_weight:mom": np.ones(3, "f4")}))
    (tmp_path / "again").mkdir()
    expected = digests(save_checkpoint(tmp_path / "again", STATE, groups(arrays(1))))
    assert digests(save_checkpoint(tmp_path, STATE, groups(arrays(1)))) == expected
    assert {path.name for path in tmp_path.iterdir()} == {"checkpoint-12", "again"}


@pytest.mark.parametrize("renamed", [1, 2])
def test_a_replacement_that_fails_leaves_the_one_before(
    renamed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For a failure of either rename: of the old checkpoint, and of the new one."""
    before = digests(save_checkpoint(tmp_path, STATE, groups(arrays())))
    rename = os.rename
    calls = 0

    def failing(source: Path, target: Path) -> None:
        nonlocal calls
        calls += 1
        if calls == renamed:
            raise OSError(errno.EIO, "Input/output error", str(source))
        rename(source, target)

    monkeypatch.setattr(os, "rename", failing)
    with pytest.raises(UserError, match=r"cannot write .*checkpoint-12.*: input/output error"):
        save_checkpoint(tmp_path, STATE, groups(arrays(1)))
    assert digests(tmp_path / "checkpoint-12") == before
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint-12"]


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    return save_checkpoint(tmp_path, STATE, groups(arrays(), {"fc1_weight_mom": np.ones(3, "f4")}))


@pytest.mark.parametrize("name", ["parameters.safetensors", "optimizer.safetensors"])
@pytest.mark.parametrize("damage", ["missing", "cut", "longer", "flipped"])
def test_damaged_files_are_named(saved: Path, name: str, damage: str) -> None:
    path = saved / name
    content = bytearray(path.read_bytes())
    if damage == "missing":
        path.unlink()
    elif damage == "cut":
        path.write_bytes(content[:-1])
    elif damage == "longer":
        path.write_bytes(content + b"\0")
    else:
        content[-1] ^= 1
        path.write_bytes(content)
    with pytest.raises(UserError, match=name) as caught:
        load_checkpoint(saved)
    assert len(caught.value.diagnostics) == 1


@pytest.mark.parametrize(
    "changes",
    [
        {"format": 3},
        {"format": None, "format_version": 2},
        {"progress": {"step": -1}},
        {"progress": {"step": "12"}},
        {"progress": {"epoch": 0}},
        {"progress": {"best": {"metric": "x", "value": None, "loss": 1.0, "epoch": 1, "step": 1}}},
        {"progress": {"best": {"metric": "x", "value": 1.0, "epoch": 1, "step": 1}}},
        {"due": None},
        {"data": {"train": "x"}},
        {"files": {}},
        {"files": {"../../secret": {"bytes": 1, "sha256": "0" * 64}}},
        {"files": {"parameters.safetensors": {"bytes": 1, "sha256": "z"}}},
        {"config_sha256": None},
        {"more": 1},
    ],
)
def test_manifests_that_lie_are_refused(saved: Path, changes: dict[str, Any]) -> None:
    rewrite(saved, **changes)
    with pytest.raises(UserError, match=r"manifest\.json"):
        load_checkpoint(saved)


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b"\xff\xfe", b"[" * 100_000])
def test_manifests_that_are_none_are_refused(saved: Path, text: bytes) -> None:
    (saved / "manifest.json").write_bytes(text)
    with pytest.raises(UserError, match=r"manifest\.json"):
        load_checkpoint(saved)


def test_no_manifest_is_no_checkpoint(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"manifest\.json: no such file"):
        load_checkpoint(tmp_path / "checkpoint-1")


def test_saving_needs_no_second_copy_in_memory(tmp_path: Path) -> None:
    import tracemalloc

    large = {"w": np.ones((1 << 22,), np.float32)}
    tracemalloc.start()
    try:
        save_checkpoint(tmp_path, STATE, groups(large))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < large["w"].nbytes // 8


def test_reading_a_manifest_takes_no_more_memory_than_it_has(saved: Path) -> None:
    read_manifest(saved)
    tracemalloc.start()
    read_manifest(saved)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 1 << 20
