"""Plans for cards that are not here."""

from __future__ import annotations

import importlib
import json
from pathlib import Path

import pytest
import stand_in
from commands import mxrun, refused, result, succeeded

from mxrun.config.bundled import find_config
from mxrun.device.cuda.peaks import peaks_of
from mxrun.device.cuda.recorded_cards import recorded_card, recorded_cards
from mxrun.executor.bind import bind
from mxrun.executor.step_figures import step_figures
from mxrun.graph.phases import TRAIN
from mxrun.preparation.planning import load, plan_for

pytestmark = pytest.mark.commands
INSPECT = ("inspect-memory", "digits_lenet")


def test_F1_F3_a_run_is_planned_for_a_card_that_is_not_here(tmp_path: Path) -> None:
    named = result(*INSPECT, "context=gpu:1", "--device-properties", "h100", cwd=tmp_path)
    assert named["planned_bytes"] > 100_000
    assert named["outside"] == {}
    largest = [
        result(*INSPECT, "context=gpu", "--batch", "max", "--device-properties", card, cwd=tmp_path)
        for card in ("a100", "b200")
    ]
    assert largest[0]["planned_bytes"] < 80 << 30 < largest[1]["planned_bytes"] < 180 << 30


def test_a_card_is_read_from_a_file(tmp_path: Path) -> None:
    properties = {
        "deviceName": "small",
        "deviceVer": 890,
        "multiProcessorCount": 20,
        "maxThreadsPerSM": 1536,
        "totalGlobalMem": 1 << 24,
    }
    file = tmp_path / "card.json"
    arguments = (*INSPECT, "context=gpu", "--batch", "max", "--device-properties", "card.json")
    file.write_text(json.dumps({"properties": properties}))
    assert result(*arguments, cwd=tmp_path)["planned_bytes"] < 1 << 24
    file.write_text(json.dumps({"properties": {**properties, "deviceVer": 700}}))
    assert "small is of sm_70" in refused(*arguments, cwd=tmp_path)
    for content in ("{}", '{"properties": {}}', "[", '{"properties": []}'):
        file.write_text(content)
        assert "properties of" in refused(*arguments, cwd=tmp_path)


@pytest.mark.parametrize("name", recorded_cards())
def test_peaks_follow_from_properties_but_for_the_clock_of_tensor_cores(name: str) -> None:
    card = recorded_card(name)
    sheet, computed = peaks_of(card.properties, card.peaks), peaks_of(card.properties, {})
    assert sheet is not None
    assert computed is not None
    assert sheet.flops("float32") == pytest.approx(computed.flops("float32"), rel=0.01)
    assert sheet.flops("bfloat16") == pytest.approx(computed.flops("bfloat16"), rel=0.09)
    large, cached = (machine.bandwidth(1 << 40).copy for machine in (sheet, computed))
    assert large == card.peaks["bytes"] == pytest.approx(cached, rel=0.03)
    # A working set within the second-level cache is not slowed down by memory.
    assert sheet.bandwidth(1 << 20).copy > 2 * large
    assert sheet.seconds_to_move(3 << 40, 1 << 40) == pytest.approx((4 << 40) / large)


def test_a_card_without_clocks_or_too_old_has_no_peaks() -> None:
    properties = json.loads(recorded_card("h100").properties)
    assert peaks_of("", {}) is None
    assert peaks_of(json.dumps({**properties, "deviceVer": 700}), {}) is None
    del properties["memClockRateKHz"]
    assert peaks_of(json.dumps(properties), {}) is None


def test_a_step_on_a_recorded_card_has_a_floor(tmp_path: Path) -> None:
    arguments = (*INSPECT, "context=gpu", "--device-properties", "h100")
    step = result(*arguments, cwd=tmp_path)["step"]
    total, rows = step["total"], step["operators"]
    assert step["phase"] == "train"
    for name in ("launches", "bytes", "flops", "floor_ms"):
        assert total[name] == pytest.approx(sum(row[name] for row in rows))
    assert total["launch_ms"] == pytest.approx(total["launches"] * 2.5e-3)
    assert total["floor_ms"] >= max(total[f"{each}_ms"] for each in ("memory", "compute", "launch"))
    assert result(*INSPECT, cwd=tmp_path)["step"] is None
    shown = succeeded(mxrun(*arguments, cwd=tmp_path)).stdout
    assert "a step, at least" in shown
    assert "ms for all launches" in shown


def test_launches_are_those_that_a_card_makes() -> None:
    built = load(find_config("digits_lenet"), ["context=gpu"], needs_device=False)
    with stand_in.installed():
        device_module = importlib.import_module("mxrun.device.cuda.device")
        kind = device_module.CudaDevice
        plan = plan_for(built, training=True)
        device = kind(plan.device)
        machine = peaks_of(recorded_card("h100").properties, {})
        assert machine is not None
        total = step_figures(plan, TRAIN, device, machine)["total"]
        program = bind(plan.phases[TRAIN], device, device.allocate(plan.planned_bytes))
        assert total["launches"] == len(program.names)
        overheads = program.overheads(machine)
        assert sum(overheads.values()) == pytest.approx(total["launch_ms"] / 1e3)


def test_what_a_card_is_not_for_is_refused(tmp_path: Path) -> None:
    said = refused(*INSPECT, "--device-properties", "h100", cwd=tmp_path)
    assert "the context of" in said
    assert "is cpu" in said
    said = refused(*INSPECT, "context=gpu", "--device-properties", "h1000", cwd=tmp_path)
    assert "a100, b200, h100, or a JSON file with the key `properties`" in said
