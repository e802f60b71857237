"""Candidates are timed on separate memory; other work only prolongs that."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

import pytest
from executors import cpu, open_cpu

from mxrun import library
from mxrun.base.tensor import TensorSpec
from mxrun.device.cpu.onednn.library import load as onednn
from mxrun.executor.timing import time_candidates
from mxrun.operator.kernel import ForwardRequest, Kernel, OpReqType
from mxrun.operator.numpy_kernel import NUMPY
from mxrun.operator.register import create, implementations

pytestmark = pytest.mark.skipif(onednn() is None, reason="needs oneDNN")
library.load()

PROP = create("Convolution", {"num_filter": 32, "kernel": (3, 3), "no_bias": True})


def kernels(implementation: str, side: int) -> Sequence[Kernel]:
    """A convolution of images of `side` x `side`."""
    specs = TensorSpec((2, 16, side, side)), TensorSpec((32, 16, 3, 3))
    output = TensorSpec((2, 32, side - 2, side - 2))
    request = ForwardRequest(specs, (output,), (OpReqType.WRITE,), is_train=True, device=cpu())
    known = {**implementations("Convolution"), "numpy": NUMPY}
    kernel = known[implementation].prepare_forward(PROP, request)
    assert kernel is not None
    return (kernel,)


def test_P17_a_slow_candidate_takes_longer() -> None:
    candidates = {name: partial(kernels, name, 40) for name in ("numpy", "onednn")}
    found = time_candidates(candidates, open_cpu())
    # Nothing is found on a machine with too much other work for two similar runs.
    if found:
        assert [*found] == ["numpy", "onednn"]
        assert found["numpy"].implementation == "numpy"
        assert found["onednn"].implementation.startswith("onednn:")
        assert 0 < found["onednn"].seconds < found["numpy"].seconds < math.inf


def test_P17_nothing_is_compared_with_what_takes_microseconds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # On a busy machine all runs of the usual round may be interrupted.
    monkeypatch.setattr("mxrun.executor.timing._SECONDS", 0.2)

    def unasked() -> Sequence[Kernel]:
        raise AssertionError("a further candidate was prepared")

    found = time_candidates({"onednn": lambda: kernels("onednn", 4), "other": unasked}, open_cpu())
    assert [*found] == ["onednn"]
    assert 0 < found["onednn"].seconds < 20e-6
