"""ONNX Runtime worker."""

from __future__ import annotations

import onnxruntime
from onnxruntime.capi import onnxruntime_pybind11_state

from mxrun.peers.benchmark_server import BenchmarkServer, Runner, Task
from mxrun.peers.onnx_runner import ONNXInference, model_of

# One exception class per status code; they have no common base class.
REJECTIONS: tuple[type[Exception], ...] = tuple(
    kind
    for kind in vars(onnxruntime_pybind11_state).values()
    if isinstance(kind, type) and issubclass(kind, Exception)
)


def open_runner(task: Task) -> Runner:
    """Create a runner: a CPU session with all graph optimisations."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = task.threads
    options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(
        model_of(task), options, providers=["CPUExecutionProvider"]
    )
    names = [given.name for given in session.get_inputs()]
    return ONNXInference(task, names, lambda batch: session.run(None, batch))


HANDLERS = BenchmarkServer(open_runner, onnxruntime.__version__).handlers
