"""Plans for cards that are not here."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from commands import refused, result

pytestmark = pytest.mark.commands
INSPECT = ("inspect-memory", "digits_lenet")


def test_a_run_is_planned_for_a_card_that_is_not_here(tmp_path: Path) -> None:
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


def test_what_a_card_is_not_for_is_refused(tmp_path: Path) -> None:
    said = refused(*INSPECT, "--device-properties", "h100", cwd=tmp_path)
    assert "the context of" in said
    assert "is cpu" in said
    said = refused(*INSPECT, "context=gpu", "--device-properties", "h1000", cwd=tmp_path)
    assert "a100, b200, h100, or a JSON file with the key `properties`" in said
