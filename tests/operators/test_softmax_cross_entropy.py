"""The compiled softmax_cross_entropy: its memory, and rows of many classes."""

from __future__ import annotations

import numpy as np
import pytest
from executors import cpu
from operator_harness import BackwardData, backward, forward

from mxrun.base.tensor import TensorSpec
from mxrun.operator.kernel import ForwardRequest, OpReqType
from mxrun.operator.numpy_kernel import NUMPY
from mxrun.operator.register import create, implementations

(COMPILED,) = implementations("softmax_cross_entropy").values()
SAMPLES, CLASSES = 3, 50_001


def test_no_probabilities_are_handed_to_backward() -> None:
    inputs = (TensorSpec((SAMPLES, CLASSES)), TensorSpec((SAMPLES,), "int32"))
    request = ForwardRequest(inputs, (TensorSpec((1,)),), (OpReqType.WRITE,), True, cpu(2))
    kernel = COMPILED.prepare_forward(create("softmax_cross_entropy", {}), request)
    assert kernel is not None
    assert kernel.extra_outputs == (TensorSpec((SAMPLES, 2)),)
    assert kernel.workspace_bytes < 4 * CLASSES


@pytest.mark.parametrize("shift", [0.0, 1e4, -1e4])
def test_rows_of_many_classes_are_precise(shift: float) -> None:
    random = np.random.default_rng(2)
    data = (random.standard_normal((SAMPLES, CLASSES)) + shift).astype("float32")
    label = np.array([0, CLASSES - 1, CLASSES], "int32")
    prop = create("softmax_cross_entropy", {})
    run = forward(COMPILED, prop, [data, label], [np.full(1, np.nan, "float32")])
    assert run is not None
    exact = np.exp(data.astype("float64") - data.max(axis=1, keepdims=True))
    probability = exact / exact.sum(axis=1, keepdims=True)
    chosen = np.maximum([probability[0, 0], probability[1, -1], 0], 1e-8)
    np.testing.assert_allclose(run.outputs[0], [-np.log(chosen).sum()], 1e-6)
    head = np.array([0.5], "float32")
    blanks = [np.full(data.shape, np.nan, "float32"), np.zeros(SAMPLES, "float32")]
    given = BackwardData([head], [data, label], run.outputs)
    gradient = backward(COMPILED, prop, given, blanks, run)[0]
    probability[0, 0] -= 1
    probability[1, -1] -= 1
    np.testing.assert_allclose(gradient, 0.5 * probability, 1e-5, 1e-12)


@pytest.mark.parametrize("operator", ["softmax_cross_entropy", "SoftmaxOutput"])
def test_a_label_beyond_int32_is_no_class(operator: str) -> None:
    prop = create(operator, {})
    data = np.random.default_rng(0).standard_normal((2, 3)).astype("float32")
    found = []
    for label in (np.array([1, 9]), np.array([1, 2**32 + 1])):
        shapes = prop.infer_shape([data.shape, label.shape], [None] * 2).outputs
        outputs = [np.zeros(shape, "float32") for shape in shapes]
        run = forward(NUMPY, prop, [data, label], outputs)
        assert run is not None
        given = BackwardData([np.ones_like(each) for each in outputs], [data, label], run.outputs)
        before = [np.zeros_like(data), np.zeros(2)]
        found.append([*run.outputs, backward(NUMPY, prop, given, before, run)[0]])
    for small, large in zip(*found, strict=True):
        np.testing.assert_array_equal(large, small)
