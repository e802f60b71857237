"""Resuming a run that has changed: refused with the difference, or continued on request."""

from __future__ import annotations

import json
import shutil
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from commands import HANG_S, digests, mxrun, refused, result, succeeded
from sealed import rewrite
from training import json_lines, run_training

from mxrun.base.errors import UserError
from mxrun.commands.infer import infer
from mxrun.config.run_config import RunConfig
from mxrun.config.section import paths_without_effect
from mxrun.options.infer import InferOptions
from mxrun.run.resume import state_differences
from mxrun.train.checkpoint import (
    PARAMETERS_FILE,
    PlanRecord,
    RunState,
    read_manifest,
    save_checkpoint,
)
from mxrun.train.progress import Progress
from mxrun.train.replay import NullObserver

CONFIG = """\
name: one
threads: 1
network:
  inputs: {data: [12], label: []}
  layers:
    - FullyConnected: {name: fc1, num_hidden: 16}
    - Activation: {act_type: tanh}
    - FullyConnected: {name: fc2, num_hidden: 4}
    - SoftmaxOutput: {name: softmax, label: label}
data:
  batch_size: 16
  train: {dataset: npz, path: data/train.npz, shuffle: true}
train:
  epochs: 4
  optimizer: {sgd: {lr: 0.1, momentum: 0.9, wd: 1e-3}}
  checkpoint: {keep: 9}
"""


def write_records(path: Path, seed: int = 0) -> None:
    generator = np.random.default_rng(seed)
    data = generator.normal(size=(160, 12)).astype("f4")
    np.savez(path, data=data, label=generator.integers(0, 4, 160).astype("i4"))


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Return the folder of a run of four epochs whose last two are lost."""
    folder = tmp_path / "project"
    (folder / "data").mkdir(parents=True)
    write_records(folder / "data/train.npz")
    (folder / "net.yaml").write_text(CONFIG)
    result("train", "net.yaml", cwd=folder)
    shutil.copytree(folder / "runs/one", folder / "whole")
    for step in (30, 40):
        shutil.rmtree(folder / f"runs/one/checkpoint-{step}")
    (folder / "runs/one/summary.json").unlink()
    return folder


def resume(folder: Path, *arguments: str) -> str:
    """Resume to the end, and return standard error."""
    done = succeeded(mxrun("train", "net.yaml", "--resume", "--json", *arguments, cwd=folder))
    assert json.loads(done.stdout)["resumed_from"] == 20
    return done.stderr


def test_the_same_run_goes_on_to_the_same_bytes(project: Path) -> None:
    assert "differs from the saved" not in resume(project)
    assert digests(project / "runs/one") == digests(project / "whole")


@pytest.mark.parametrize(
    ("changes", "difference"),
    [
        (["train.optimizer.sgd.lr=0.2"], "train.optimizer.sgd.lr: 0.1 then, 0.2 now"),
        (["train.epochs=6", "train.schedule=cosine"], "cosine spreads over the entire run"),
        (["seed=1"], "seed: 0 then, 1 now"),
        (["data.batch_size=20"], "data.batch_size: 16 then, 20 now"),
        (["train.accumulate=2"], "train.accumulate: none then, 2 now"),
        (
            ["network.layers[1].Activation.act_type=relu"],
            "network.layers.activation0.act_type: tanh then, relu now",
        ),
    ],
)
def test_changes_are_refused_with_the_difference_or_told(
    changes: list[str], difference: str, project: Path
) -> None:
    before = digests(project / "runs/one")
    text = refused("train", "net.yaml", "--resume", *changes, cwd=project)
    assert "runs/one holds a run with other settings" in text
    assert text.count(difference) == 1
    assert not [line for line in text.splitlines() if line != line.rstrip()]
    assert "--allow-changes" in text
    assert digests(project / "runs/one") == before
    said = resume(project, "--allow-changes", *changes)
    assert "this run differs from the saved one: " in said
    assert difference in said
    after = digests(project / "runs/one")
    assert after["checkpoint-20/manifest.json"] == before["checkpoint-20/manifest.json"]
    epochs = [line["epoch"] for line in json_lines(project / "runs/one/metrics.jsonl")]
    assert epochs == list(range(1, len(epochs) + 1))
    # From then on it is the run of the new config.
    assert (
        "differs from the saved"
        not in mxrun("train", "net.yaml", "--resume", "--json", *changes, cwd=project).stderr
    )


# For each key that changes no bit, another value, and the names of files that it may change.
WITHOUT_EFFECT = {
    "name": ("name=one", ""),
    "threads": ("threads=2", ""),
    "plugins": ("plugins=[]", ""),
    "engine": ("engine=naive", ""),
    "kvstore": ("kvstore=device", ""),
    # Other values are refused in one process, or another plan.
    "batch_parts": ("batch_parts=1", ""),
    "shard": ("shard=none", ""),
    "rank_timeout": ("rank_timeout=7", ""),
    "data.workers": ("data.workers=3", ""),
    "data.worker_kind": ("data.worker_kind=thread", ""),
    "data.worker_timeout": ("data.worker_timeout=7", ""),
    "data.on_bad_record": ("data.on_bad_record=skip", ""),
    "data.max_bad_records": ("data.max_bad_records=3", ""),
    "data.prefetch": ("data.prefetch=3", ""),
    "train.log_every": ("train.log_every=4", "metrics.jsonl"),
    "train.checkpoint.every": ("train.checkpoint.every=2 epochs", "checkpoint-30/"),
    "train.checkpoint.keep": ("train.checkpoint.keep=1", "checkpoint-"),
    "memory": ("memory.budget=64 MiB", ""),
}


@pytest.mark.parametrize("key", [".".join(path) for path in paths_without_effect(RunConfig)])
def test_a_key_that_changes_no_bit_may_change(key: str, project: Path) -> None:
    """The last checkpoint has the bytes of the run that was not changed, and so have all files that
    the key is not about; the folder has the config of now.
    """
    change, about = WITHOUT_EFFECT[key]
    assert "differs from the saved" not in resume(project, change)
    now, whole = digests(project / "runs/one"), digests(project / "whole")
    last = {name for name in whole if name.startswith("checkpoint-40/")}
    assert last
    assert {name: now[name] for name in last} == {name: whole[name] for name in last}
    others = {name for name in whole if not (about and name.startswith(about))} - {"config.yaml"}
    assert {name: now.get(name) for name in others} == {name: whole[name] for name in others}
    assert (now["config.yaml"] == whole["config.yaml"]) == (key == "name")


def test_a_full_disk_is_no_reason_to_start_again(project: Path) -> None:
    """Fewer checkpoints are retained from the next one on."""
    resume(project, "train.checkpoint.keep=2")
    names = sorted(path.name for path in (project / "runs/one").glob("checkpoint-*"))
    assert names == ["checkpoint-30", "checkpoint-40"]


def test_another_kernel_library_is_refused(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MXRUN_ONEDNN_LIBRARY", "/nonexistent")
    text = refused("train", "net.yaml", "--resume", cwd=project)
    assert "kernel library: oneDNN" in text


def test_other_records_are_refused(project: Path) -> None:
    write_records(project / "data/train.npz", seed=1)
    text = refused("train", "net.yaml", "--resume", cwd=project)
    assert "data.train: its records have changed" in text


def test_the_same_bytes_elsewhere_are_the_same_run(project: Path, tmp_path: Path) -> None:
    """A moved project, moved data and more loader threads change no result."""
    moved = tmp_path / "elsewhere" / "moved"
    moved.parent.mkdir()
    project.rename(moved)
    (moved / "data").rename(moved / "records")
    said = resume(moved, "data.train.path=records/train.npz", "data.workers=3")
    assert "differs from the saved" not in said
    now, whole = digests(moved / "runs/one"), digests(moved / "whole")
    assert now.pop("config.yaml")
    whole.pop("config.yaml")
    assert now == whole


def test_another_network_is_refused_even_so(project: Path) -> None:
    wider = "network.layers[0].FullyConnected.num_hidden=20"
    before = digests(project / "runs/one")
    text = refused("train", "net.yaml", "--resume", "--allow-changes", wider, cwd=project)
    assert "checkpoint-20 is of another network: 'fc1_bias' is float32 [16] there" in text
    assert digests(project / "runs/one") == before


def test_another_optimizer_begins_anew(project: Path) -> None:
    adam = "train.optimizer={adam: {lr: 0.01}}"
    assert "momentum" in refused("train", "net.yaml", "--resume", adam, cwd=project)
    said = resume(project, "--allow-changes", adam)
    assert "the checkpoint has no states of this optimizer: they are initialised" in said
    assert "adam" in (project / "runs/one/config.yaml").read_text()


PLUGIN = """\
import numpy as np
"""


def test_plugin_code_that_changed_is_refused(project: Path) -> None:
    (project / "ops.py").write_text(PLUGIN)
    config = (project / "net.yaml").read_text()
    (project / "net.yaml").write_text(config.replace("threads: 1", "threads: 1\nplugins: [ops.py]"))
    result("train", "net.yaml", "name=two", cwd=project)
    (project / "ops.py").write_text(PLUGIN + "# changed\n")
    text = refused("train", "net.yaml", "name=two", "--resume", cwd=project)
    assert "plugins: the code of ops.py has changed" in text
    (project / "more.py").write_text(PLUGIN)
    others = ("plugins=[more.py]", "--resume")
    text = refused("train", "net.yaml", "name=two", *others, cwd=project)
    assert "plugins: more.py is new" in text
    assert "plugins: ops.py is missing" in text


@pytest.mark.parametrize("damage", ["missing", "empty", "torn"])
def test_a_config_that_is_lost_is_written_anew(damage: str, project: Path) -> None:
    config = project / "runs/one/config.yaml"
    before = config.read_bytes()
    config.write_bytes(b"" if damage == "empty" else before[:40])
    if damage == "missing":
        config.unlink()
    changed = refused("train", "net.yaml", "--resume", "train.optimizer.sgd.wd=0", cwd=project)
    assert "the config is not the one of the checkpoint" in changed
    assert "config.yaml cannot be read and is rewritten" in resume(project)
    assert config.read_bytes() == before
    assert digests(project / "runs/one") == digests(project / "whole")


def test_a_run_that_is_over_goes_on_with_more_epochs(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(project)
    shutil.rmtree("runs/one")
    shutil.copytree("whole", "runs/one")
    summary = run_training("train.epochs=6", resume=True)
    assert (summary["resumed_from"], summary["steps"], summary["epochs"]) == (40, 60, 6)
    extended = digests(project / "runs/one")
    run_training("train.epochs=6", overwrite=True)
    uninterrupted = digests(project / "runs/one")
    # The checkpoint at which the shorter run was over says so.
    for found in (extended, uninterrupted):
        assert found.pop("checkpoint-40/manifest.json")
    assert extended == uninterrupted


def test_a_longer_run_can_be_stopped_and_resumed_again(project: Path) -> None:
    """Its checkpoints are those of the shorter run until it saves one of its own."""
    metrics = project / "runs/one/metrics.jsonl"
    before = metrics.read_bytes()
    assert "differs from the saved" not in resume(project, "train.epochs=5")
    after = digests(project / "runs/one")
    for step in (30, 40, 50):
        shutil.rmtree(project / f"runs/one/checkpoint-{step}")
    (project / "runs/one/summary.json").unlink()
    assert "differs from the saved" not in resume(project, "train.epochs=5")
    assert digests(project / "runs/one") == after
    assert metrics.read_bytes().startswith(before)
    shorter = refused("train", "net.yaml", "--resume", cwd=project)
    assert "train.epochs: 4 now, but the saved run has reached epoch 5" in shorter


def test_a_longer_run_is_another_one_if_its_schedule_depends_on_its_length(project: Path) -> None:
    cosine = ("train", "net.yaml", "name=two", "train.schedule={cosine: {final: 0.1}}")
    result(*cosine, cwd=project)
    text = refused(*cosine, "train.epochs=6", "--resume", cwd=project)
    assert "train.epochs: 4 then, 6 now" in text
    assert "train.schedule: cosine spreads over the entire run" in text
    done = mxrun(*cosine, "train.epochs=6", "--resume", "--allow-changes", cwd=project)
    assert "this run differs from the saved one" in succeeded(done).stderr


def test_fewer_epochs_than_were_made_are_the_end(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(project)
    summary = run_training("train.epochs=1", resume=True, allow_changes=True)
    assert (summary["resumed_from"], summary["steps"], summary["step_ms"]["min"]) == (
        20,
        20,
        pytest.approx(float("nan"), nan_ok=True),
    )


def test_a_damaged_checkpoint_does_not_hide_that_a_run_diverged(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Training diverges after the checkpoints for its replay were damaged."""
    monkeypatch.chdir(project)

    class Damaging(NullObserver):
        def epoch_done(self, event: object) -> None:
            """Wait for the epoch's checkpoint, which is written beside the next steps."""
            found: list[Path] = []
            deadline = time.monotonic() + HANG_S
            while not found and time.monotonic() < deadline:
                found = list(Path("runs/bad").glob("checkpoint-*/manifest.json"))
            for path in found:
                path.write_bytes(b"")

    overrides = ["name=bad", "train.optimizer={sgd: {lr: 100, wd: 3}}"]
    with pytest.raises(UserError, match="training has diverged") as caught:
        run_training(*overrides, observer=Damaging())
    assert "cannot use the checkpoint's runs/bad/checkpoint-" in str(caught.value)


def test_a_checkpoint_of_another_run_is_refused(project: Path) -> None:
    """Its network has the same shapes, and the config next to it is the run's own."""
    result("train", "net.yaml", "name=other", "train.optimizer.sgd.lr=0.3", cwd=project)
    stranger = project / "runs/one/checkpoint-30"
    shutil.copytree(project / "runs/other/checkpoint-30", stranger)
    text = refused("train", "net.yaml", "--resume", cwd=project)
    assert "the config is not the one of the checkpoint" in text
    assert "--allow-changes" in text


@pytest.mark.parametrize(
    ("old", "new", "is_refused"),
    [("act_type: tanh", "act_type: relu", True), ("lr: 0.1", "lr: 0.2", False)],
)
def test_inference_is_of_the_network_that_was_trained(
    old: str, new: str, is_refused: bool, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(project)
    config = project / "runs/one/config.yaml"
    assert old in config.read_text()
    config.write_text(config.read_text().replace(old, new))
    np.save("rows.npy", np.zeros((2, 12), "f4"))
    options = InferOptions(run=Path("runs/one"), inputs=("rows.npy",))
    if is_refused:
        with pytest.raises(UserError, match="was trained with other settings") as caught:
            infer(options)
        assert "--allow-changes" in str(caught.value)
        options = replace(options, allow_changes=True)
    notes = infer(options).trained.notes
    assert any("this differs from the trained network" in note for note in notes) == is_refused


def test_a_run_of_another_version_is_refused_once(project: Path) -> None:
    """One message for all manifests: nothing but their version is known."""
    for step in (10, 20):
        rewrite(project / f"runs/one/checkpoint-{step}", format=3)
    before = digests(project / "runs")
    for command in (("train", "net.yaml", "--resume"), ("infer", "runs/one", "--split", "train")):
        message = refused(*command, cwd=project)
        assert message.count("another version of mxrun wrote it") == 1
        assert "checkpoint-20/manifest.json" in message
        assert "checkpoint-10" not in message
    assert digests(project / "runs") == before


def test_F5_other_plans_of_the_kernel_library_are_another_result(tmp_path: Path) -> None:
    def state(plans: dict[str, str]) -> RunState:
        return RunState(
            progress=Progress(step=1, epoch=1),
            due=True,
            seed=0,
            plan=PlanRecord(library="", implementations={}, kernel_plans=plans),
            config_sha256="0" * 64,
            inference_sha256="0" * 64,
            data={},
        )

    arrays = {PARAMETERS_FILE: {"weight": np.ones(3, np.float32)}}
    saved = read_manifest(save_checkpoint(tmp_path, state({"a": "one", "b": "two"}), arrays))
    assert saved.plan.kernel_plans == {"a": "one", "b": "two"}
    for plans in ({"a": "one", "b": "two"}, {"a": "one", "c": "three"}, {}):
        assert state_differences(saved, state(plans)) == []
    assert state_differences(saved, state({"a": "one", "b": "three"})) == [
        "kernel library: 1 of 2 plans have another text now"
    ]
