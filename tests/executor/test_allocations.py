"""After its second step a training loop allocates nothing: no native block, no Python objects."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

SUPPORT = Path(__file__).parents[1] / "support"
# Steps of one epoch; on one network enough for what grows slowly to reach 4 KiB.
STEPS = {"mlp_mnist": 600, "lenet_mnist": 25, "digits_lenet": 60}
SYNTHETIC = (
    "data.eval={dataset: synthetic, split: test}",
    "train.epochs=1",
    # Nothing is to be learned here; it only must not diverge.
    "train.optimizer.sgd.lr=1e-3",
)


def probe(kind: str, config: str, folder: Path, preload: Path | None = None) -> dict[str, Any]:
    records = STEPS[config] * 64 - 10
    train = f"data.train={{dataset: synthetic, split: train, records: {records}, shuffle: true}}"
    environment = dict(os.environ)
    if preload is not None:
        environment["LD_PRELOAD"] = str(preload)
    done = subprocess.run(
        [sys.executable, SUPPORT / "allocation_probe.py", kind, config, train, *SYNTHETIC],
        env=environment,
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert isinstance(report, dict)
    return report


@pytest.fixture(scope="module")
def counter(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("there is no C compiler to build the allocation counter with")
    library = tmp_path_factory.mktemp("counter") / "allocation_counter.so"
    command = [compiler, "-O1", "-shared", "-fPIC", "-o", library, SUPPORT / "allocation_counter.c"]
    subprocess.run([*command, "-ldl"], check=True)
    return library


@pytest.mark.parametrize("config", STEPS)
def test_O8_X6_steps_allocate_no_native_block(config: str, counter: Path, tmp_path: Path) -> None:
    """Operators, iterator, metrics and loop together; the counter sees its own allocation."""
    report = probe("native", config, tmp_path, counter)
    assert report["own"] >= 1
    assert report["steps"] == STEPS[config]
    assert report["count"] == 0, report["sizes"]


@pytest.mark.parametrize("config", STEPS)
def test_X6_steps_leave_no_python_objects(config: str, tmp_path: Path) -> None:
    report = probe("python", config, tmp_path)
    assert report["steps"] == STEPS[config]
    assert report["growth"] <= 64 * 1024
    assert report["peak"] <= 64 * 1024
