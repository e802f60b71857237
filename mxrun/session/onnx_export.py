"""A network and its parameters as an ONNX model."""

from __future__ import annotations

from collections.abc import Mapping

from mxrun.convert.onnx import to_onnx
from mxrun.convert.onnx_model import Array, OnnxModel
from mxrun.frontend import ModelDefinition
from mxrun.train.initializer import initial_value


def onnx_model(built: ModelDefinition, arrays: Mapping[str, Array], any_batch: bool) -> OnnxModel:
    """The inference graph of a built network with these parameters and auxiliary states."""
    model = built.model
    return to_onnx(built.config.name, model.symbol.heads, model.inputs, arrays, any_batch)


def initial_arrays(built: ModelDefinition) -> dict[str, Array]:
    """Every parameter and auxiliary state as a run begins with it."""
    return {
        name: initial_value(built.training.initializers[name], name, spec.shape, built.config.seed)
        for name, spec in built.model.learned.items()
    }
