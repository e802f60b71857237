"""`implementation: auto`: candidates are timed once, times are cached, runs keep their kernels."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from caches import link_cached
from commands import digests, mxrun, refused, result, succeeded
from layer_configs import config_text
from planted_times import FAST, SLOW, plant

from mxrun.device.cpu.onednn import library
from mxrun.graph.phases import TRAIN
from mxrun.planner.plan import Plan
from mxrun.preparation.planning import load, plan_for

pytestmark = pytest.mark.skipif(library.load() is None, reason="needs oneDNN")

CONFIG = config_text(
    """\
    - Convolution: {name: conv1, num_filter: 16, kernel: [3, 3], pad: [1, 1]}
    - Activation: {act_type: relu}
    - Convolution: {name: conv2, num_filter: 32, kernel: [3, 3], pad: [1, 1]}
    - Activation: {act_type: relu}
    - Pooling: {pool_type: max, kernel: [2, 2], stride: [2, 2]}
    - FullyConnected: {name: fc1, num_hidden: 10}
    - SoftmaxOutput: {name: softmax, label: label}
""",
    name="one",
    settings="threads: 2\nimplementation: auto\n",
    train="""\
train:
  epochs: 2
  optimizer: {sgd: {lr: 0.1, momentum: 0.9}}
  checkpoint: {keep: 9, best: accuracy}
""",
)
STEPS = 23


def first(names: Any) -> str:
    return str(names[0])


def last(names: Any) -> str:
    return str(names[-1])


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with a config, and a cache folder that has everything except times."""
    link_cached(tmp_path / "cache", "native", "machine")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "net.yaml").write_text(CONFIG)
    return folder


def cached_files(project: Path) -> list[Path]:
    return sorted((project.parent / "cache/mxrun/candidates").glob("*.json"))


def choices(plan: Plan) -> dict[str, dict[str, str]]:
    return {name: phase.implementations() for name, phase in plan.phases.items()}


def planned(project: Path) -> Plan:
    return plan_for(load(project / "net.yaml"), training=True)


def seconds_of(plan: Plan) -> set[float]:
    kernels = (step.kernel for phase in plan.phases.values() for step in phase.steps)
    return {each.seconds for kernel in kernels if kernel for each in kernel.candidates}


def test_P17_what_is_kept_decides_and_nothing_is_timed_again(project: Path) -> None:
    wanted = plant(project / "net.yaml", last)
    before = [(path, path.read_bytes()) for path in cached_files(project)]
    assert before
    plan = planned(project)
    assert choices(plan) == choices(wanted)
    assert seconds_of(plan) == {SLOW, FAST}
    assert [(path, path.read_bytes()) for path in cached_files(project)] == before
    other = plant(project / "net.yaml", first)
    assert choices(other) != choices(wanted)
    assert choices(planned(project)) == choices(other)


@pytest.mark.parametrize("damage", ["{", '{"of": [], "figures": []}'])
def test_P17_a_damaged_file_is_measured_anew(damage: str, project: Path) -> None:
    plant(project / "net.yaml", last)
    for path in cached_files(project):
        path.write_text(damage)
    found = seconds_of(planned(project))
    assert not {SLOW, FAST} & found
    for path in cached_files(project):
        text = path.read_text()
        assert text == damage or json.loads(text)["figures"]


@pytest.mark.parametrize("seconds", ["1" + 400 * "0", "1" + 5000 * "0", "NaN", "Infinity", "-1"])
def test_P17_times_that_are_none_are_measured_anew(seconds: str, project: Path) -> None:
    plant(project / "net.yaml", last)
    for path in cached_files(project):
        text = path.read_text()
        assert f'"seconds": {FAST}' in text
        path.write_text(text.replace(f'"seconds": {FAST}', f'"seconds": {seconds}'))
    assert not {SLOW, FAST} & seconds_of(planned(project))


def test_P17_times_of_other_candidates_are_not_believed(project: Path) -> None:
    plant(project / "net.yaml", last)
    for path in cached_files(project):
        content = json.loads(path.read_text())
        for row in content["figures"]:
            row["name"] += "?"
        path.write_text(json.dumps(content))
    assert not {SLOW, FAST} & seconds_of(planned(project))


def test_P17_a_run_that_goes_on_keeps_its_choices(project: Path) -> None:
    chosen = plant(project / "net.yaml", last)
    result("train", "net.yaml", cwd=project)
    run, whole = project / "runs/one", project / "whole"
    manifest = json.loads((run / f"checkpoint-{STEPS}/manifest.json").read_text())
    assert manifest["plan"]["implementations"] == choices(chosen)[TRAIN]
    shutil.copytree(run, whole)
    for plants in (lambda: plant(project / "net.yaml", first), lambda: forget(project)):
        shutil.rmtree(run)
        shutil.copytree(whole, run)
        shutil.rmtree(run / f"checkpoint-{2 * STEPS}")
        (run / "summary.json").unlink()
        plants()
        done = succeeded(mxrun("train", "net.yaml", "--resume", "--json", cwd=project))
        assert json.loads(done.stdout)["resumed_from"] == STEPS
        assert digests(run) == digests(whole)


def forget(project: Path) -> None:
    shutil.rmtree(project.parent / "cache/mxrun/candidates")


def test_P17_another_way_to_choose_is_another_run(project: Path) -> None:
    plant(project / "net.yaml", last)
    result("train", "net.yaml", "train.epochs=1", cwd=project)
    text = refused("train", "net.yaml", "--resume", "implementation=preferred", cwd=project)
    assert "implementation: auto then, preferred now" in text
    assert "conv1:backward: " in text


def test_P17_bench_shows_candidates_and_times(project: Path) -> None:
    chosen = choices(plant(project / "net.yaml", last))[TRAIN]
    report = result("bench", "net.yaml", "--steps", "3", "--warmup", "1", cwd=project)
    rows = {row["name"]: row for row in report["operators"]}
    assert rows["conv2"]["implementation"] == chosen["conv2"]
    times = {each["implementation"]: each["ms"] for each in rows["conv2"]["candidates"]}
    assert len(times) > 1
    assert times[chosen["conv2"]] == FAST * 1e3
    assert rows["softmax"]["candidates"] == []


def test_P17_a_layer_may_say_so_for_itself(project: Path) -> None:
    layer = "network.layers[2].Convolution.implementation=auto"
    expected = choices(planned_with(project, "implementation=preferred"))[TRAIN]
    plant(project / "net.yaml", last)
    found = choices(planned_with(project, "implementation=preferred", layer))[TRAIN]
    changed = {name for name in found if found[name] != expected[name] and ":reorder" not in name}
    assert changed
    assert changed <= {"conv2", "conv2:backward:data", "conv2:backward:weight+bias"}
    numpy = choices(planned_with(project, "implementation=numpy"))[TRAIN]
    assert numpy["conv1"] == numpy["fc1"] == "numpy"


def planned_with(project: Path, *overrides: str) -> Plan:
    return plan_for(load(project / "net.yaml", overrides), training=True)


def test_P17_verify_holds_for_choices_too(project: Path) -> None:
    plant(project / "net.yaml", last)
    report = result("verify", "net.yaml", "--steps", "2", cwd=project)
    assert report["passed"]
