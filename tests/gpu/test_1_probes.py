"""Whether a card does what programs ask of it, one small question after the other."""

from __future__ import annotations

import pytest

from mxrun.base.device import GPU
from mxrun.commands.device_check import DeviceCheck, outcome_of, probe_checks
from mxrun.device.interface import Device
from mxrun.device.probes import PROBES
from mxrun.device.registry import device_kind

NAMES = [*(probe.name for probe in PROBES), "library call"]


def assert_passes(check: DeviceCheck) -> None:
    """Run a check, whose failure says where to look next."""
    outcome = outcome_of(check)
    if outcome.result.startswith("not run"):
        pytest.skip(outcome.result)
    assert outcome.result == "passed", f"{outcome.problem}; next: {outcome.further}{outcome.trace}"


@pytest.mark.parametrize("name", NAMES)
def test_probe(name: str, card: Device) -> None:
    (check,) = (each for each in probe_checks(card) if each.name == name)
    assert_passes(check)


def test_a_card_has_properties_and_peaks(card: Device) -> None:
    kind = device_kind(GPU)
    assert kind.model(0)
    if kind.missing():
        pytest.skip(kind.missing())
    assert card.description.card, "cuDNN gives no properties: cudnn/plan.py, properties_of_card"
    peaks = card.known_peaks()
    assert peaks is not None, (
        f"a figure is missing in {card.description.card}: device/cuda/peaks.py"
    )
    # Every card that is new enough has more, and none has a hundred times as much.
    assert 1e12 < peaks.flops("float32") < 1e15
    assert 1e11 < peaks.bandwidth(1 << 40).copy < 1e14
