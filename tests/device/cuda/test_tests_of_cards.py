"""The tests of a card run with the stand-in, so that on a card they fail for its faults alone."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
import stand_in

ROOT = Path(__file__).parents[3]
SELECTED = (
    "probe or properties or (test_operator and (relu or Pooling)) or (first_steps and digits_lenet)"
    " or (ten_times and mlp)"
)


def output(*arguments: str, environment: Mapping[str, str] | None = None) -> str:
    """Return what pytest writes."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments]
    done = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, **(environment or {})},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout


@pytest.mark.full
def test_the_tests_of_cards_run_with_the_stand_in() -> None:
    shown = output("-m", "gpu", "tests/gpu", "-k", SELECTED, environment=stand_in.environment())
    found = re.search(r"(\d+) failed, (\d+) passed, (\d+) skipped", shown)
    assert found is not None, shown
    failed, passed, _ = map(int, found.groups())
    assert passed >= 11, shown
    # A step of the stand-in takes longer than one of a card.
    assert failed == 1, shown
    assert "a step takes" in shown
    assert "next: mxrun bench with the same arguments" in shown


@pytest.mark.commands
def test_without_a_card_its_tests_are_skipped_with_the_reason() -> None:
    shown = output("-m", "gpu", "-rs", "tests/gpu/test_1_probes.py")
    assert "9 skipped" in shown
    assert "no card can be used: " in shown
