"""ONNX files of networks with losses: every input is read by a node."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from layer_configs import written

from mxrun.base.errors import UserError
from mxrun.config.bundled import find_config
from mxrun.convert.onnx_model import OnnxModel
from mxrun.frontend import ModelDefinition
from mxrun.inference.onnx_export import onnx_model
from mxrun.inference.outputs import heads
from mxrun.preparation.planning import load

DATA = "data: {batch_size: 8, train: {dataset: synthetic, split: train, records: 16, classes: 4}}\n"
LOSSES = {
    "SoftmaxOutput: {label: label}": "[]",
    "LinearRegressionOutput: {label: label}": "[4]",
    "LogisticRegressionOutput: {label: label}": "[4]",
    "MAERegressionOutput: {label: label}": "[4]",
    "MakeLoss: {}": "[4]",
    "MakeLoss: {normalization: valid}": "[4]",
    # A loss behind a distance, whose label the network itself reads.
    "elemwise_sub: {rhs: label}\n    - square: {}\n    - MakeLoss: {}": "[4]",
}
CONFIGS = sorted(path.stem for path in find_config("digits_lenet").parent.glob("*.yaml"))


def converted(built: ModelDefinition) -> OnnxModel:
    """Convert with zeros for parameters, which do not matter here."""
    arrays = {n: np.zeros(s.shape, np.float32) for n, s in built.model.learned.items()}
    outputs = [head.entry for head in heads(built, ())]
    return onnx_model(built, outputs, arrays, any_batch=True)


def assert_all_is_read(model: OnnxModel) -> None:
    read = {name for node in model.nodes for name in node.inputs}
    assert {value.name for value in model.inputs} <= read
    assert model.constants.keys() <= read
    results = {value.name for value in model.outputs}
    assert {name for node in model.nodes for name in node.outputs} <= read | results


@pytest.mark.parametrize("loss", LOSSES)
def test_no_loss_leaves_an_input_that_no_node_reads(loss: str, tmp_path: Path) -> None:
    layers = ("FullyConnected: {name: fc, num_hidden: 4}", loss)
    inputs = f"{{data: [6], label: {LOSSES[loss]}}}"
    model = converted(load(written(tmp_path, layers, inputs=inputs, data=DATA)))
    assert_all_is_read(model)
    wanted = ["data", "label"] if "rhs: label" in loss else ["data"]
    assert sorted(value.name for value in model.inputs) == wanted


@pytest.mark.parametrize("config", CONFIGS)
def test_bundled_configs_have_no_input_that_no_node_reads(config: str) -> None:
    built = load(find_config(config))
    if built.model.carried:
        # An ONNX model has no states that are carried from batch to batch.
        with pytest.raises(UserError, match="ONNX"):
            converted(built)
        return
    model = converted(built)
    assert_all_is_read(model)
    several = {
        "text_classifier": ["data", "mask", "lengths"],
        "style_transfer": ["content", "style"],
    }
    assert [value.name for value in model.inputs] == several.get(config, ["data"])
