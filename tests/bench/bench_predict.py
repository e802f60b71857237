"""`predict` in a loop beside onnxruntime on the exported files: `bench_predict.py [--rounds N]`.

Networks with their initial weights; both sides take turns of 20 calls with one thread, after their
outputs have been compared. The table gives medians and minima of a call. MXRUN_ONNX_PYTHON names a
Python that has onnxruntime.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from side_process import SideProcess

import mxrun

CALLS = 20
SIDE = """
import sys, time
import numpy as np, onnxruntime
options = onnxruntime.SessionOptions()
options.intra_op_num_threads = options.inter_op_num_threads = 1
session = onnxruntime.InferenceSession(sys.argv[1], options, providers=["CPUExecutionProvider"])
name, data = session.get_inputs()[0].name, np.load(sys.argv[2])
np.save(sys.argv[3], session.run(None, {name: data})[0])
print("ready", flush=True)
for line in sys.stdin:
    times = []
    for _ in range(int(line)):
        begin = time.perf_counter()
        session.run(None, {name: data})
        times.append(time.perf_counter() - begin)
    print(*times, flush=True)
"""


def network(name: str, shape: list[int], layers: list[Mapping[str, Any]]) -> dict[str, Any]:
    """Return a config with ten classes."""
    head: list[Mapping[str, Any]] = [
        {"FullyConnected": {"name": "fc", "num_hidden": 10}},
        {"SoftmaxOutput": {"name": "softmax", "label": "label"}},
    ]
    return {
        "name": name,
        "threads": 1,
        "network": {"inputs": {"data": shape, "label": []}, "layers": [*layers, *head]},
        "data": {"batch_size": 64, "train": {"dataset": "npz"}},
        "train": {"epochs": 1, "optimizer": {"sgd": {"lr": 0.1}}},
    }


def dense(name: str, width: int) -> list[Mapping[str, Any]]:
    return [
        {"FullyConnected": {"name": name, "num_hidden": width}},
        {"Activation": {"act_type": "relu"}},
    ]


def convolution(name: str, filters: int) -> list[Mapping[str, Any]]:
    return [
        {"Convolution": {"name": name, "num_filter": filters, "kernel": [3, 3], "pad": [1, 1]}},
        {"BatchNorm": {"name": f"{name}_norm"}},
        {"Activation": {"act_type": "relu"}},
        {"Pooling": {"pool_type": "max", "kernel": [2, 2], "stride": [2, 2]}},
    ]


CONFIGS: Mapping[str, tuple[Any, list[int]]] = {
    "digits_lenet": ("digits_lenet", [1, 8, 8]),
    "table MLP, 20-64-64-10": (
        network("table", [20], [*dense("fc1", 64), *dense("fc2", 64)]),
        [20],
    ),
    "CNN, 3x32x32, 16-32-64 filters": (
        network(
            "cnn",
            [3, 32, 32],
            [*convolution("a", 16), *convolution("b", 32), *convolution("c", 64)],
        ),
        [3, 32, 32],
    ),
}


def measure(name: str, batch: int, rounds: int, folder: Path) -> str:
    """Return the row of one network: medians and minima in microseconds."""
    config, shape = CONFIGS[name]
    model = mxrun.load(config, {"threads": 1})
    files = [folder / each for each in ("model.onnx", "data.npy", "output.npy")]
    model.save(files[0], overwrite=True)
    # Of digits 16 is white: mxrun scales them, the file takes them as they are scaled.
    data = np.random.default_rng(0).uniform(size=(batch, *shape)).astype(np.float32)
    np.save(files[1], data)
    python = os.environ.get("MXRUN_ONNX_PYTHON", sys.executable)
    side = SideProcess("onnxruntime", [python, "-c", SIDE, *map(str, files)], {})
    assert side.answer() == "ready\n"
    np.testing.assert_allclose(model.predict(data).values, np.load(files[2]), rtol=1e-4, atol=1e-6)
    own, peer = [], []
    for _ in range(rounds):
        for _ in range(CALLS):
            begin = time.perf_counter()
            model.predict(data)
            own.append(time.perf_counter() - begin)
        peer += map(float, side.ask(CALLS).split())
    side.close()
    figures = [1e6 * find(times) for find in (statistics.median, min) for times in (own, peer)]
    return f"| {name} | {batch} | {' | '.join(f'{each:.0f}' for each in figures)} |"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=40)
    rounds = parser.parse_args().rounds
    print(
        "| network | records a call | mxrun, us | onnxruntime | mxrun, least | onnxruntime, least |"
    )
    print("|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for name in CONFIGS:
            for batch in (1, 32):
                print(measure(name, batch, rounds, Path(folder)), flush=True)


if __name__ == "__main__":
    main()
