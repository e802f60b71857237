"""Peak memory of a helper process: its runner's arrays, each once."""

import sys
from pathlib import Path

import numpy as np
import pytest

from mxrun.peers.process import HelperProcess, worker_command

_MODULE = """
from mxrun.peers.benchmark_server import BenchmarkServer, Runner


class Nothing(Runner):
    def __init__(self, task):
        self.variables = task.variables

    def step(self):
        pass


REJECTIONS = ()
HANDLERS = BenchmarkServer(Nothing, "1").handlers
"""
_FIELDS = {
    "symbol": "",
    "phase": "train",
    "mode": "eager",
    "updates": {},
    "rate": 0.1,
    "threads": 1,
    "max_norm": None,
    "device": "cpu",
}
_SIZE = 64 << 20


@pytest.fixture
def module(tmp_path: Path) -> Path:
    file = tmp_path / "nothing_worker.py"
    file.write_text(_MODULE)
    return file


def test_peak_memory_counts_each_array_of_a_runner_once(module: Path) -> None:
    """A plain process of the peer has no second copy of its weights, nor has this one."""
    command = worker_command(sys.executable, module)
    with HelperProcess("nothing", command, {}) as process:
        started = process.request("memory", {}, {}).fields["peak_bytes"]
        assert 5 << 20 < started < 1 << 30
        weight = {"variables/weight": np.ones(_SIZE // 4, np.float32)}
        process.request("open", _FIELDS, weight)
        process.request("measure", {"steps": 1, "lead": 0}, {})
        opened = process.request("memory", {}, {}).fields["peak_bytes"]
        assert _SIZE <= opened - started < 1.25 * _SIZE


def test_peak_memory_does_not_keep_the_runners_before(module: Path) -> None:
    with HelperProcess("nothing", worker_command(sys.executable, module), {}) as process:
        started = process.request("memory", {}, {}).fields["peak_bytes"]
        weight = {"variables/weight": np.ones(_SIZE // 4, np.float32)}
        for _ in range(4):
            process.request("open", _FIELDS, weight)
        opened = process.request("memory", {}, {}).fields["peak_bytes"]
        # One runner's, and the next one's while they arrive.
        assert opened - started < 2.25 * _SIZE
