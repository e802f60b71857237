"""Arrays without elements, and contexts that are none."""

from __future__ import annotations

import numpy as np
import pytest

import mxrun
from mxrun import nd


def test_layers_take_a_batch_without_samples() -> None:
    images, weight = nd.zeros((0, 3, 8, 8)), nd.ones((2, 3, 3, 3))
    maps = nd.Convolution(images, weight, kernel=(3, 3), num_filter=2, no_bias=True)
    pooled = nd.Pooling(maps, kernel=(2, 2), stride=(2, 2))
    assert pooled.asnumpy().shape == (0, 2, 3, 3)


@pytest.mark.parametrize("parameters", [{"multi_output": True}, {"preserve_shape": True}, {}])
def test_softmax_output_of_nothing(parameters: dict[str, bool]) -> None:
    label = nd.zeros((0,)) if not parameters else nd.zeros((0, 4))
    data = nd.zeros((0, 3, 4)) if "multi_output" in parameters else nd.zeros((0, 4, 3))
    data = data if parameters else nd.zeros((0, 3))
    assert nd.SoftmaxOutput(data, label, **parameters).asnumpy().shape == data.shape


def test_contexts_are_checked() -> None:
    with pytest.raises(mxrun.UserError, match="a number from 0"):
        mxrun.cpu(-1)
    assert mxrun.cpu(np.int64(1)) == mxrun.cpu(1)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="expected a context"):
        nd.zeros((2,), ctx="cpu")  # type: ignore[arg-type]
