"""Checkpoints with changed bytes: all are detected, the file is named, the previous one is used."""

from __future__ import annotations

import itertools
import json
import random
import re
import shutil
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands import digests, mxrun, result, succeeded
from sealed import replace_file, rewrite

from mxrun.base.array_file import file_parts
from mxrun.base.errors import UserError
from mxrun.train import checkpoint_manager
from mxrun.train.checkpoint import (
    AUXILIARY_FILE,
    MEASURED_FILE,
    OPTIMIZER_FILE,
    PARAMETERS_FILE,
    Checkpoint,
    PlanRecord,
    RunState,
    discard_checkpoint,
    load_checkpoint,
    save_checkpoint,
)
from mxrun.train.checkpoint_manager import newest_checkpoint
from mxrun.train.progress import Best, Progress

pytestmark = pytest.mark.commands

FLIPS, CUTS = 800, 200


def saved(run: Path, step: int) -> Path:
    """A checkpoint with all files."""
    generator = np.random.default_rng(step)
    weights = {"fc1_weight": generator.normal(size=(8, 6)).astype("f4")}
    best = Best(metric="accuracy", value=0.8125, loss=0.5, epoch=1, step=step)
    state = RunState(
        progress=Progress(step=step, epoch=2, batch=3, best=best, evaluation={"loss": 1.5e-5}),
        due=True,
        seed=5,
        plan=PlanRecord(library="oneDNN 3.2", implementations={"fc1": "brg"}),
        config_sha256="0" * 64,
        inference_sha256="0" * 64,
        data={"train": "1" * 64},
    )
    groups = {
        PARAMETERS_FILE: weights,
        OPTIMIZER_FILE: {"fc1_weight:mom": weights["fc1_weight"] * 2},
        AUXILIARY_FILE: {"bn1_moving_mean": np.ones(3, "f4")},
        MEASURED_FILE: {"softmax": np.ones(2)},
    }
    return save_checkpoint(run, state, groups)


def damages(files: Mapping[str, bytes]) -> list[tuple[str, bytes]]:
    """Single bits flipped, and files cut short, of all files alike."""
    draw = random.Random(17)
    names = sorted(files)
    found = []
    for number in range(FLIPS):
        name = names[number % len(names)]
        content = bytearray(files[name])
        content[draw.randrange(len(content))] ^= 1 << draw.randrange(8)
        found.append((name, bytes(content)))
    for number in range(CUTS):
        name = names[number % len(names)]
        found.append((name, files[name][: draw.randrange(len(files[name]))]))
    return found


def test_F5_every_flipped_bit_and_every_cut_is_noticed(tmp_path: Path) -> None:
    before = saved(tmp_path, 12)
    folder = saved(tmp_path, 19)
    files = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert len(files) == 5
    for name, content in damages(files):
        (folder / name).write_bytes(content)
        found = newest_checkpoint(tmp_path)
        assert found.checkpoint is not None
        assert found.checkpoint.folder == before
        (problem,) = found.damaged
        assert f"cannot use the checkpoint's {folder / name}: " in problem.problem
        (folder / name).write_bytes(files[name])
    found = newest_checkpoint(tmp_path)
    assert found.checkpoint is not None
    assert (found.checkpoint.folder, found.damaged) == (folder, ())


def test_without_a_usable_checkpoint_all_are_told(tmp_path: Path) -> None:
    for step in (12, 19):
        (saved(tmp_path, step) / PARAMETERS_FILE).unlink()
    with pytest.raises(UserError) as caught:
        newest_checkpoint(tmp_path)
    problems = [diagnostic.problem for diagnostic in caught.value.diagnostics]
    assert [re.findall(r"checkpoint-[0-9]+", text) for text in problems] == [
        ["checkpoint-19"],
        ["checkpoint-12"],
    ]


def test_a_checkpoint_that_a_run_replaces_meanwhile_is_no_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run saves a later one, and removes the one that is about to be read."""
    saved(tmp_path, 12)
    load = checkpoint_manager.load_checkpoint

    def overtaken(folder: Path) -> Checkpoint:
        if folder.name == "checkpoint-12":
            saved(tmp_path, 19)
            discard_checkpoint(tmp_path, 12)
        return load(folder)

    monkeypatch.setattr(checkpoint_manager, "load_checkpoint", overtaken)
    found = newest_checkpoint(tmp_path)
    assert found.checkpoint is not None
    assert (found.checkpoint.folder.name, found.damaged) == ("checkpoint-19", ())


def entry(dtype: str = "F32", shape: Any = (1,), offsets: tuple[int, int] = (0, 4)) -> Any:
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets}


def file_of(header: Any, data: bytes = bytes(4)) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data


HOSTILE = {
    "empty": b"",
    "no header": b"\xff" * 8,
    "header of 2^63 bytes": (1 << 63).to_bytes(8, "little") + b"{}",
    "header of 2^64 - 1 bytes": b"\xff" * 8 + b"{}",
    "header beyond the file": (64).to_bytes(8, "little") + b"{}",
    "a list": file_of(b"[]"),
    "no text": file_of(b'{"\xff":1}'),
    "not a number": file_of(b'{"a":NaN}'),
    "deep": file_of(b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}"),
    "overlapping": file_of({"a": entry(), "b": entry()}),
    "a hole": file_of({"a": entry(), "b": entry(offsets=(8, 12))}, bytes(12)),
    "beyond the end": file_of({"a": entry(shape=[100], offsets=(0, 400))}),
    "backwards": file_of({"a": entry(offsets=(4, 0))}),
    "more bytes": file_of({"a": entry()}, bytes(9)),
    "overflowing": file_of({"a": entry(shape=[2**32, 2**32, 4])}),
    "negative": file_of({"a": entry(shape=[-1])}),
    "another shape": file_of({"a": entry(shape=[2])}),
    "unknown type": file_of({"a": entry("F33")}),
    "a type NumPy lacks": file_of({"a": entry("F8_E5M2", [4])}),
    "8-bit floats": file_of({"a": entry("F8_E4M3", [4])}),
    "complex numbers": file_of({"a": entry("C64", [1], (0, 8))}, bytes(8)),
    "booleans": file_of({"a": entry("BOOL", [4])}),
    "long header": file_of(b"{" + b" " * 30_000_000),
}


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("file", [PARAMETERS_FILE, MEASURED_FILE])
def test_hostile_files_are_refused(name: str, file: str, tmp_path: Path) -> None:
    """The author of such a file can write its SHA-256 into the manifest as well."""
    folder = saved(tmp_path, 12)
    replace_file(folder, file, HOSTILE[name])
    with pytest.raises(
        UserError, match=rf"{file}: (not a safetensors file|unsupported dtype of 'a')"
    ):
        load_checkpoint(folder)


@pytest.mark.parametrize("name", ["../../secret", "/etc/passwd", "parameters.safetensors/../x"])
def test_no_other_file_is_opened(name: str, tmp_path: Path) -> None:
    folder = saved(tmp_path, 12)
    record = {"bytes": 1, "sha256": "0" * 64}
    rewrite(folder, files={name: record, PARAMETERS_FILE: record})
    with pytest.raises(UserError, match=r"manifest\.json: it lists other files"):
        load_checkpoint(folder)


NETWORK = ("train", "digits_lenet", "threads=1", "train.epochs=3")


@pytest.fixture(scope="module")
def complete_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of three epochs, with a checkpoint after each."""
    folder = tmp_path_factory.mktemp("complete")
    return folder / result(*NETWORK, cwd=folder)["run_dir"]


@pytest.mark.parametrize("name", [PARAMETERS_FILE, OPTIMIZER_FILE, MEASURED_FILE, "manifest.json"])
def test_F5_resuming_passes_over_what_is_damaged(
    name: str, complete_run: Path, tmp_path: Path
) -> None:
    run = tmp_path / "runs/digits_lenet"
    shutil.copytree(complete_run, run)
    path = run / "checkpoint-69" / name
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 4
    path.write_bytes(content)
    done = succeeded(mxrun(*NETWORK, "--resume", "--json", cwd=tmp_path))
    assert f"cannot use the checkpoint's runs/digits_lenet/checkpoint-69/{name}: " in done.stderr
    assert "an older checkpoint is used" in done.stderr
    assert json.loads(done.stdout)["resumed_from"] == 46
    assert digests(run) == digests(complete_run)


def test_arrays_of_another_network_are_one_error(complete_run: Path, tmp_path: Path) -> None:
    run = tmp_path / "runs/digits_lenet"
    shutil.copytree(complete_run, run)
    header = {"conv1_weight": entry("F64", [1], (0, 8))}
    replace_file(run / "checkpoint-69", PARAMETERS_FILE, file_of(header, bytes(8)))
    (run / "summary.json").unlink()
    done = mxrun(*NETWORK, "--resume", cwd=tmp_path)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert "checkpoint-69 is of another network: 'conv1_bias' is missing there" in done.stderr


def test_a_folder_of_another_step_is_damaged(tmp_path: Path) -> None:
    folder = saved(tmp_path, 12).rename(tmp_path / "checkpoint-99")
    with pytest.raises(
        UserError, match="its step differs from that in the folder's name"
    ) as caught:
        load_checkpoint(folder)
    assert "step 99" in str(caught.value)
    # A copy may have any other name.
    assert load_checkpoint(folder.rename(tmp_path / "mine")).manifest.progress.step == 12


def test_what_was_verified_is_used_while_another_process_replaces_the_file(tmp_path: Path) -> None:
    first = saved(tmp_path, 7)
    swapped = first / PARAMETERS_FILE
    own = load_checkpoint(first).parameters["fc1_weight"]
    other = b"".join(file_parts({"fc1_weight": own + 1}))
    stop = threading.Event()

    def swap() -> None:
        contents = (swapped.read_bytes(), other)
        for number in itertools.count(1):
            partial = tmp_path / "partial"
            partial.write_bytes(contents[number % 2])
            partial.replace(swapped)
            if stop.is_set():
                break

    writer = threading.Thread(target=swap)
    writer.start()
    try:
        for _ in range(400):
            with suppress(UserError):
                found = load_checkpoint(first).parameters["fc1_weight"]
                np.testing.assert_array_equal(found, own)
    finally:
        stop.set()
        writer.join()
