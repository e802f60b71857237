"""The environment with onnx and its runtimes, and models run in it."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from mxrun.peers.baseline import BaselineProcess, Comparison, find

VARIABLE = "MXRUN_ONNX_PYTHON"
_CHECK = """
import onnx, sys
for name in sys.argv[1:]:
    model = onnx.load(name)
    onnx.checker.check_model(model, full_check=True)
    print(model.opset_import[0].version, model.producer_name)
"""

Array = npt.NDArray[Any]


def onnx_python() -> str:
    """A Python that has onnx, onnxruntime and openvino; the test skips where there is none."""
    named = os.environ.get(VARIABLE)
    if named is None and importlib.util.find_spec("onnxruntime") is None:
        pytest.skip(f"{VARIABLE} does not name a Python that has onnx, onnxruntime and openvino")
    return named or sys.executable


def started(name: str) -> BaselineProcess:
    """A runtime's process."""
    (found,) = find((name,), {name: onnx_python()})
    return BaselineProcess(found, 1)


def outputs_of(baseline: BaselineProcess, model: bytes, data: Mapping[str, Array]) -> list[Array]:
    """Return the results of a runtime for one batch."""
    kind = find((baseline.name,), {baseline.name: onnx_python()})[0].kind
    (mode,) = kind.modes("infer", "float32", images=True)
    batches = {name: array[None] for name, array in data.items()}
    variables = {"model": np.frombuffer(model, np.uint8)}
    baseline.open(Comparison("", "infer"), mode, variables, batches)
    return baseline.outputs(1)[0]


def checked(files: Sequence[Path]) -> list[str]:
    """Return the result of onnx's checker for models: opset and producer of each."""
    command = [onnx_python(), "-c", _CHECK, *map(str, files)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()
