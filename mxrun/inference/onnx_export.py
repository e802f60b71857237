"""Export of a network and its parameters as an ONNX model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mxrun.base.errors import Diagnostic, UserError
from mxrun.convert.onnx import to_onnx
from mxrun.convert.onnx_model import Array, OnnxModel
from mxrun.frontend import ModelDefinition
from mxrun.graph.node import NodeEntry


def onnx_model(
    built: ModelDefinition,
    heads: Sequence[NodeEntry],
    arrays: Mapping[str, Array],
    any_batch: bool,
) -> OnnxModel:
    """Return the graph that computes `heads` in inference from these parameters and states.

    Raises UserError for a network that carries states from batch to batch.
    """
    model = built.model
    if model.carried:
        raise UserError(
            Diagnostic(
                "the network carries states from batch to batch, which an ONNX model cannot",
                got=", ".join(model.carried),
                hint="a config without `carry`, such as initial_state: zeros, has the same "
                "parameters and can be converted with --allow-changes",
            )
        )
    return to_onnx(built.options.name, heads, model.inputs, arrays, any_batch)
