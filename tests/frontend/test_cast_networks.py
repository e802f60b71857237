"""Networks whose activations are cast to other types than float32."""

from __future__ import annotations

from pathlib import Path

import pytest
from layer_configs import DENSE, SOFTMAX, written
from training import prepare

from mxrun.graph.phases import TRAIN
from mxrun.preparation.planning import load
from mxrun.run.run import Run
from mxrun.train.host_arrays import slots

CONVOLUTION = "Convolution: {name: c, num_filter: 4, kernel: [3, 3]}"
BACK = "Cast: {dtype: float32}"
LAYERS = {
    "back": [BACK, DENSE, SOFTMAX],
    "map": ["tanh", BACK, DENSE, SOFTMAX],
    "dense": [DENSE, SOFTMAX],
    "loss": ["MakeLoss"],
}


@pytest.mark.parametrize(
    ("dtype", "behind"),
    [(dtype, behind) for dtype in ("float64", "float16") for behind in LAYERS]
    + [("int64", "back"), ("uint8", "back")],
)
def test_other_types_than_float32_train(dtype: str, behind: str, tmp_path: Path) -> None:
    """A convolution's output is channels last; not every type is moved between layouts."""
    path = written(tmp_path, [CONVOLUTION, f"Cast: {{dtype: {dtype}}}", *LAYERS[behind]])
    run = prepare(load(path, ["threads=1"]))
    first = _loss(run)
    assert _loss(run) < first


def _loss(run: Run) -> float:
    """The loss of a step on the first batch."""
    iterator = run.iterators["train"]
    iterator.reset(1)
    assert iterator.next_into(slots(run.executor, iterator).arrays) is not None
    run.executor.run(TRAIN)
    (name,) = (loss.loss for loss in run.built.model.losses)
    return float(run.executor.result(TRAIN, name).values()[0])
