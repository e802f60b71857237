"""Folder of a run: files of other runs are never used, and other files never removed."""

from __future__ import annotations

import errno
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from mxrun.base.errors import UserError
from mxrun.train.checkpoint import (
    OPTIMIZER_FILE,
    PARAMETERS_FILE,
    PlanRecord,
    RunState,
    discard_checkpoint,
    load_checkpoint,
    save_checkpoint,
)
from mxrun.train.observer import EpochDone
from mxrun.train.progress import Progress
from mxrun.train.run_directory import RunDirectory

EPOCH = EpochDone(
    1, 23, 0.1, {"loss": 0.5, "accuracy": 0.75}, {"loss": 0.25}, 1438, 1.0, seconds=1.5
)


def start(root: Path, overwrite: bool = False) -> RunDirectory:
    return RunDirectory.create(root / "one", "name: one\n", overwrite)


def finish(run: RunDirectory) -> None:
    import numpy as np

    run.record(EPOCH)
    plan = PlanRecord(library="", implementations={})
    state = RunState(
        progress=Progress(step=23, epoch=2),
        due=True,
        seed=0,
        plan=plan,
        config_sha256="0" * 64,
        inference_sha256="0" * 64,
        data={},
    )
    arrays = {"w": np.ones(3, "f4")}
    save_checkpoint(run.path, state, {PARAMETERS_FILE: arrays, OPTIMIZER_FILE: arrays})
    run.write_summary({"steps": 23})


def lines(path: Path) -> list[str]:
    return path.read_text().splitlines()


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_a_run_leaves_its_files(tmp_path: Path) -> None:
    run = start(tmp_path / "runs")
    finish(run)
    assert run.path == tmp_path / "runs" / "one"
    assert names(run.path) == {
        "config.yaml",
        "metrics.jsonl",
        "timing.jsonl",
        "summary.json",
        "checkpoint-23",
    }
    assert (run.path / "config.yaml").read_text() == "name: one\n"
    assert json.loads((run.path / "summary.json").read_text()) == {"steps": 23}


def test_metrics_hold_no_times(tmp_path: Path) -> None:
    run = start(tmp_path)
    run.record(EPOCH)
    run.record(EpochDone(2, 46, 0.05, {"loss": float("nan")}, {}, 1438, 1.5, seconds=2.0))
    metrics = [json.loads(line) for line in lines(run.path / "metrics.jsonl")]
    assert metrics == [
        {
            "epoch": 1,
            "step": 23,
            "learning_rate": 0.1,
            "train": {"loss": 0.5, "accuracy": 0.75},
            "eval": {"loss": 0.25},
        },
        {"epoch": 2, "step": 46, "learning_rate": 0.05, "train": {"loss": None}, "eval": {}},
    ]
    timing = [json.loads(line) for line in lines(run.path / "timing.jsonl")]
    assert [line["seconds"] for line in timing] == [1.5, 2.0]


def test_another_run_is_refused_untouched(tmp_path: Path) -> None:
    run = start(tmp_path)
    finish(run)
    before = {p: p.read_bytes() for p in run.path.rglob("*") if p.is_file()}
    with pytest.raises(UserError, match="one exists already"):
        start(tmp_path)
    assert {p: p.read_bytes() for p in run.path.rglob("*") if p.is_file()} == before


@pytest.mark.parametrize("left", ["config.yaml", "metrics.jsonl", "checkpoint-7"])
def test_a_part_of_a_run_is_a_run(tmp_path: Path, left: str) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / left).touch()
    with pytest.raises(UserError, match="holds an unfinished run"):
        start(tmp_path)


def test_overwriting_removes_what_a_run_wrote(tmp_path: Path) -> None:
    finish(start(tmp_path))
    folder = tmp_path / "one"
    (folder / ".checkpoint-40.partial").mkdir()
    (folder / ".checkpoint-40.partial" / "parameters.safetensors").touch()
    (folder / ".config.yaml.partial").touch()
    (folder / "notes.txt").write_text("mine")
    (folder / "plots").mkdir()
    start(tmp_path, overwrite=True)
    assert names(folder) == {"config.yaml", "notes.txt", "plots"}
    assert (folder / "notes.txt").read_text() == "mine"


def test_overwriting_stops_before_it_would_remove_more(tmp_path: Path) -> None:
    finish(start(tmp_path))
    mine = tmp_path / "one" / "checkpoint-23" / "mine.npy"
    mine.touch()
    before = names(tmp_path / "one")
    with pytest.raises(UserError, match=r"mine\.npy was not written by a run"):
        start(tmp_path, overwrite=True)
    assert names(tmp_path / "one") == before
    assert mine.exists()


def test_overwriting_follows_no_link(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "manifest.json").touch()
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "checkpoint-5").symlink_to(elsewhere)
    start(tmp_path, overwrite=True)
    assert names(tmp_path / "one") == {"config.yaml"}
    assert names(elsewhere) == {"manifest.json"}


def test_overwriting_nothing_is_fine(tmp_path: Path) -> None:
    assert names(start(tmp_path, overwrite=True).path) == {"config.yaml"}


def test_a_file_in_the_way_is_named(tmp_path: Path) -> None:
    (tmp_path / "one").touch()
    with pytest.raises(UserError, match=r"cannot write .*one: file exists"):
        start(tmp_path)


def test_a_full_disk_leaves_whole_lines(tmp_path: Path) -> None:
    run = start(tmp_path)
    run.record(EPOCH)
    before = (run.path / "metrics.jsonl").read_bytes()

    # The system itself refuses the second half of the line.
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    old = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 20, old[1]))
    try:
        with pytest.raises(UserError, match=r"cannot write .*metrics\.jsonl: file too large"):
            run.record(EPOCH)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, old)
        signal.signal(signal.SIGXFSZ, handler)
    assert (run.path / "metrics.jsonl").read_bytes() == before


def test_a_summary_that_fails_leaves_the_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = start(tmp_path)
    run.write_summary({"steps": 1})

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(UserError, match=r"summary\.json: no space left"):
        run.write_summary({"steps": 2})
    assert json.loads((run.path / "summary.json").read_text()) == {"steps": 1}
    assert names(run.path) == {"config.yaml", "summary.json"}


def test_a_run_that_goes_on_forgets_epochs_not_yet_over(tmp_path: Path) -> None:
    """The epoch that contains the checkpoint is recorded again, and so is every later one."""
    run = start(tmp_path)
    for number in (1, 2, 3):
        run.record(EpochDone(number, 23 * number, 0.1, {}, {}, 1438, 1.0, seconds=1.0))
    for name in ("metrics.jsonl", "timing.jsonl"):
        with (run.path / name).open("ab") as file:
            file.write(b'{"epoch":1,"st')
    run.remove_records_from(3)
    for name in ("metrics.jsonl", "timing.jsonl"):
        assert [json.loads(line)["epoch"] for line in lines(run.path / name)] == [1, 2]
    run.remove_records_from(1)
    assert (run.path / "metrics.jsonl").read_bytes() == b""


def test_what_a_killed_process_left_is_removed(tmp_path: Path) -> None:
    run = start(tmp_path)
    finish(run)
    before = names(run.path)
    for name in (".checkpoint-40.partial", ".checkpoint-23.removed"):
        (run.path / name).mkdir()
        (run.path / name / "parameters.safetensors").touch()
    for name in ("config.yaml", "metrics.jsonl", "timing.jsonl", "summary.json"):
        (run.path / f".{name}.partial").touch()
        (run.path / f".{name}.0123456789abcdef.partial").touch()
    (run.path / ".mine.partial").touch()
    run.clean_up()
    assert names(run.path) == before | {".mine.partial"}


def test_a_run_is_reopened_where_there_is_one(tmp_path: Path) -> None:
    assert RunDirectory.reopen(tmp_path / "one") is None
    assert start(tmp_path).path == tmp_path / "one"
    found = RunDirectory.reopen(tmp_path / "one")
    assert found is not None
    assert found.config_path.read_text() == "name: one\n"
    found.replace_config("name: one\nseed: 1\n")
    assert found.config_path.read_text() == "name: one\nseed: 1\n"
    assert names(found.path) == {"config.yaml"}


# Saves a checkpoint again, and is killed before the second time that something is renamed.
KILLED_SAVE = """
import os, signal, sys
from pathlib import Path
from mxrun.train.checkpoint import PARAMETERS_FILE, RunState, load_checkpoint, save_checkpoint

run, renames = Path(sys.argv[1]), 0
held = load_checkpoint(run / "checkpoint-23")
fields = {name: getattr(held.manifest, name) for name in RunState.model_fields}

def hook(event, arguments):
    global renames
    renames += event == "os.rename"
    if event == "os.rename" and renames == 2:
        os.kill(os.getpid(), signal.SIGKILL)

sys.addaudithook(hook)
save_checkpoint(run, RunState(**fields), {PARAMETERS_FILE: held.parameters})
"""


def test_a_checkpoint_about_to_be_replaced_comes_back(tmp_path: Path) -> None:
    """The state after a kill between the two renames of a save."""
    run = start(tmp_path)
    finish(run)
    before = {p.name: p.read_bytes() for p in (run.path / "checkpoint-23").iterdir()}
    done = subprocess.run([sys.executable, "-c", KILLED_SAVE, run.path], check=False)
    assert done.returncode == -signal.SIGKILL
    assert not (run.path / "checkpoint-23").exists()
    run.clean_up()
    assert {p.name: p.read_bytes() for p in (run.path / "checkpoint-23").iterdir()} == before
    assert not [name for name in names(run.path) if name.startswith(".")]


def test_what_was_replaced_goes_where_another_has_its_name(tmp_path: Path) -> None:
    run = start(tmp_path)
    finish(run)
    before = names(run.path)
    shutil.copytree(run.path / "checkpoint-23", run.path / ".checkpoint-23.replaced")
    run.clean_up()
    assert names(run.path) == before


@pytest.mark.parametrize("name", ["metrics.jsonl", "config.yaml", "summary.json", "checkpoint-7"])
def test_a_run_with_links_in_the_place_of_its_files_does_not_go_on(
    name: str, tmp_path: Path
) -> None:
    run = start(tmp_path)
    finish(run)
    mine = tmp_path / "mine"
    mine.write_text("mine")
    (run.path / name).unlink(missing_ok=True)
    (run.path / name).symlink_to(mine)
    with pytest.raises(UserError, match=rf"{name} is a link.*") as caught:
        RunDirectory.reopen(tmp_path / "one")
    assert str(mine) in str(caught.value)
    assert mine.read_text() == "mine"


def test_a_run_writes_through_no_link(tmp_path: Path) -> None:
    run = start(tmp_path)
    mine = tmp_path / "mine"
    mine.write_text("mine")
    for name in ("metrics.jsonl", "summary.json"):
        (run.path / name).symlink_to(mine)
    with pytest.raises(UserError, match=r"cannot write .*metrics\.jsonl"):
        run.record(EPOCH)
    run.write_summary({"steps": 1})
    assert json.loads((run.path / "summary.json").read_text()) == {"steps": 1}
    assert mine.read_text() == "mine"


def test_files_of_others_in_a_checkpoint_survive_it(tmp_path: Path) -> None:
    """For removal and replacement, and for both after a killed process had begun them."""
    run = start(tmp_path)
    folder = run.path / "checkpoint-23"
    for begin in ("nothing", "removed", "replaced"):
        finish(run)
        (folder / "mine.txt").write_text("mine")
        finish(run)
        assert (folder / "mine.txt").read_text() == "mine"
        if begin != "nothing":
            folder.rename(run.path / f".checkpoint-23.{begin}")
            run.clean_up()
        discard_checkpoint(run.path, 23)
        assert names(folder) == {"mine.txt"}
        assert not [name for name in names(run.path) if name.startswith(".")]
        (folder / "mine.txt").unlink()
        folder.rmdir()


@pytest.mark.parametrize("begun", ["removed", "replaced"])
def test_files_of_others_whose_name_is_taken_survive_a_killed_removal(
    begun: str, tmp_path: Path
) -> None:
    run = start(tmp_path)
    finish(run)
    folder = run.path / "checkpoint-23"
    hidden = run.path / f".checkpoint-23.{begun}"
    hidden.mkdir()
    for place, text in ((hidden, "first"), (folder, "second")):
        (place / "mine.txt").write_text(text)
    run.clean_up()
    assert not hidden.exists()
    assert (folder / "mine.txt").read_text() == "second"
    assert (folder / "mine.txt.1").read_text() == "first"
    load_checkpoint(folder)
