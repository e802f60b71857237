"""Profiled runs (`train --profile`): every phase, the same bits."""

from __future__ import annotations

import json
from pathlib import Path

from bundled_runs import bundled, executor_of
from commands import result
from interrupted_runs import CONFIG
from networks import pinned, same_bits

from mxrun.graph.phases import EVALUATE, TRAIN
from mxrun.inspection.profile import TRACED_STEPS, EngineProfile, RunProfile
from mxrun.report.trace import write_trace
from mxrun.runtime.engine.naive import NaiveEngine


def functions() -> EngineProfile:
    return EngineProfile(NaiveEngine(), ())


def test_a_trace_shows_loading_steps_and_saving_side_by_side(tmp_path: Path) -> None:
    (tmp_path / "net.yaml").write_text(CONFIG)
    words = ("train.epochs=1", "data.workers=1", "--trace", "t.json")
    result("train", "net.yaml", *words, cwd=tmp_path)
    events = json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    tracks = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
    found = {(e["name"], tracks[e["tid"]]) for e in events if e["ph"] == "X"}
    loop, writer = "cpu:0 caller", "cpu:0 io 0"
    loader = {("read records", "loader cpu:0 io"), ("make records", "loader cpu:0 compute")}
    for name in ("load", "train", "measure train", "evaluate", "measure evaluate", "copy state"):
        assert (name, loop) in found
    assert loader | {("write checkpoint", writer)} <= found


def test_each_phase_that_ran_has_its_operators(tmp_path: Path) -> None:
    executor = executor_of(bundled("digits_lenet"))
    profile = RunProfile(executor, functions())
    assert profile.to_json() == {}
    for _ in range(TRACED_STEPS + 3):
        profile.run(TRAIN)
    assert set(profile.to_json()) == {TRAIN}
    profile.run(EVALUATE)
    found = profile.to_json()
    assert set(found) == {TRAIN, EVALUATE}
    for phase, calls in ((TRAIN, TRACED_STEPS + 3), (EVALUATE, 1)):
        names = {row["name"] for row in found[phase]}
        assert names == set(executor.plan.phases[phase].implementations())
        assert {row["calls"] for row in found[phase]} == {calls}
    write_trace(tmp_path / "t.json", profile.events())
    events = json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    calls = [event for event in events if event["ph"] == "X"]
    made = {phase: len(executor.programs[phase].names) for phase in (TRAIN, EVALUATE)}
    assert len(calls) == TRACED_STEPS * made[TRAIN] + made[EVALUATE]


def test_a_profiled_run_learns_the_same_bits() -> None:
    plain, profiled = (executor_of(bundled("digits_lenet")) for _ in range(2))
    profile = RunProfile(profiled, functions())
    for executor, run in ((plain, plain.run), (profiled, profile.run)):
        executor.tensor("data").write(0.5)
        executor.tensor("sample_weight").write(1)
        for _ in range(3):
            run(TRAIN)
    assert same_bits(pinned(plain), pinned(profiled))
