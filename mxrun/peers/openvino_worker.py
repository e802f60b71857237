"""OpenVINO worker."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import openvino

from mxrun.peers.benchmark_server import BenchmarkServer, Runner, Task
from mxrun.peers.onnx_runner import ONNXInference, model_of
from mxrun.peers.wire import Array

# OpenVINO's own errors are RuntimeErrors.
REJECTIONS: tuple[type[Exception], ...] = (ValueError, RuntimeError)


def open_runner(task: Task) -> Runner:
    """Create a runner: one CPU stream, configured for the lowest latency of a batch.

    The precision is set explicitly: by default OpenVINO uses bfloat16 if the machine supports it
    well.
    """
    core = openvino.Core()
    settings = {
        "PERFORMANCE_HINT": "LATENCY",
        "NUM_STREAMS": "1",
        "INFERENCE_NUM_THREADS": str(task.threads),
        "INFERENCE_PRECISION_HINT": "bf16" if "bfloat16" in task.mode.split() else "f32",
    }
    compiled = core.compile_model(core.read_model(model_of(task)), "CPU", settings)
    request = compiled.create_infer_request()
    names = [given.any_name for given in compiled.inputs]

    def run(batch: Mapping[str, Array]) -> list[Any]:
        results = request.infer(dict(batch), share_inputs=True, share_outputs=True)
        return [results[output] for output in compiled.outputs]

    return ONNXInference(task, names, run)


# The version without build number and branch.
_VERSION = openvino.__version__.split("-")[0]
HANDLERS = BenchmarkServer(open_runner, _VERSION).handlers
