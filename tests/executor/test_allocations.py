"""After its second step, a training loop allocates no native block and no Python objects."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from commands import python_output
from preloaded import SUPPORT, compile_library

pytestmark = pytest.mark.commands

# Steps of one epoch. Within 300 and more steps slow growth reaches 4 KiB, and the loop has checked
# all parameters and states three times.
STEPS = {"mlp_mnist": 600, "lenet_mnist": 25, "digits_lenet": 330}
SYNTHETIC = (
    "data.eval={dataset: synthetic, split: test}",
    "train.epochs=1",
)
# Accuracy does not matter; training must only not diverge.
PLAIN = ("train.optimizer={sgd: {lr: 1e-3, momentum: 0.9, wd: 1e-4}}",)
# All optional parts of a step.
RICH = (
    "train.optimizer={adam: {lr: 1e-3, clip_global_norm: 1}}",
    "train.schedule={cosine: {warmup_steps: 20}}",
    "train.average=0.99",
)
CASES = [
    *((config, 1, PLAIN) for config in STEPS),
    ("digits_lenet", 1, RICH),
    ("digits_lenet", 3, PLAIN),
    ("digits_lenet", 3, RICH),
]
NAMES = [*STEPS, "adam", "accumulated", "adam-accumulated"]
every_case = pytest.mark.parametrize(("config", "together", "settings"), CASES, ids=NAMES)


def probe(
    kind: str,
    config: str,
    together: int,
    settings: tuple[str, ...],
    folder: Path,
    preload: Path | None = None,
) -> dict[str, Any]:
    records = STEPS[config] * together * 64 - 10
    train = f"data.train={{dataset: synthetic, split: train, records: {records}, shuffle: true}}"
    given = (train, f"train.accumulate={together}", *SYNTHETIC, *settings)
    env = dict(os.environ)
    if preload is not None:
        env["LD_PRELOAD"] = str(preload)
    script = SUPPORT / "allocation_probe.py"
    report = json.loads(python_output(script, kind, config, *given, cwd=folder, env=env))
    assert isinstance(report, dict)
    return report


@pytest.fixture(scope="module")
def counter(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_library(tmp_path_factory.mktemp("counter"), "allocation_counter")


@every_case
def test_O8_X6_steps_allocate_no_native_block(
    config: str, together: int, settings: tuple[str, ...], counter: Path, tmp_path: Path
) -> None:
    """Operators, iterator, metrics and loop together; the counter sees its own allocation."""
    report = probe("native", config, together, settings, tmp_path, counter)
    assert report["own"] >= 1
    assert report["steps"] == STEPS[config]
    assert report["count"] == 0, report["sizes"]


@every_case
def test_X6_steps_leave_no_python_objects(
    config: str, together: int, settings: tuple[str, ...], tmp_path: Path
) -> None:
    report = probe("python", config, together, settings, tmp_path)
    assert report["steps"] == STEPS[config]
    assert report["growth"] <= 64 * 1024
    assert report["peak"] <= 64 * 1024
