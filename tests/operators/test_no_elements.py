"""Tensors without elements: every implementation computes with them or leaves them to the body."""

from __future__ import annotations

import numpy as np
import pytest
from operator_harness import BackwardData, all_implementations, backward, forward

from mxrun.operator.property import GradientKind
from mxrun.operator.register import create

Shape = tuple[int, ...]
ATTENTION = "scaled_dot_product_attention"
LSTM = {"mode": "lstm", "state_size": 2, "num_layers": 1, "initial_state": "zeros"}

# Operator, parameters, and shapes of the first arguments, from which the others follow.
CASES: tuple[tuple[str, dict[str, object], tuple[Shape, ...]], ...] = (
    ("softmax", {}, ((0, 3),)),
    ("softmax", {}, ((3, 0),)),
    ("SoftmaxOutput", {}, ((0, 3),)),
    ("softmax_cross_entropy", {}, ((0, 3),)),
    ("LayerNorm", {}, ((0, 3),)),
    ("gated_activation", {}, ((3, 0),)),
    ("rotary_embedding", {"num_heads": 1}, ((2, 0, 4),)),
    ("position_embedding", {"max_length": 3}, ((2, 0, 4),)),
    ("Embedding", {"input_dim": 3, "output_dim": 2}, ((0,),)),
    ("take", {}, ((3, 2), (0,))),
    ("SequenceReverse", {}, ((3, 0, 2),)),
    ("CTCLoss", {}, ((3, 0, 4), (0, 2))),
    (ATTENTION, {"num_heads": 2}, ((0, 2, 4), (0, 2, 4), (0, 2, 4))),
    (ATTENTION, {"num_heads": 2}, ((1, 2, 4), (1, 0, 4), (1, 0, 4))),
    (ATTENTION, {"num_heads": 2, "packed": True}, ((1, 0, 12),)),
    ("RNN", LSTM, ((3, 0, 2),)),
    ("RNN", LSTM, ((0, 3, 2),)),
    ("batch_dot", {}, ((1, 2, 0), (1, 0, 3))),
    ("broadcast_mul", {}, ((1, 0), (3, 1))),
    ("broadcast_add", {}, ((0, 3), (1, 3))),
)


@pytest.mark.parametrize(("operator", "parameters", "shapes"), CASES, ids=str)
def test_all_that_is_written_is_zero(
    operator: str, parameters: dict[str, object], shapes: tuple[Shape, ...]
) -> None:
    """What has elements beside such tensors is a sum or a mean of none, or not reached."""
    prop = create(operator, parameters)
    rest = [None] * (len(prop.list_arguments()) - len(shapes))
    inferred = prop.infer_shape([*shapes, *rest], [None] * len(prop.list_outputs()))
    types, _ = prop.infer_type(["float32", *rest, *[None] * (len(shapes) - 1)], [None])
    inputs = [np.ones(s or (), t or "float32") for s, t in zip(inferred.inputs, types, strict=True)]
    outputs = [np.full(shape or (), np.nan, np.float32) for shape in inferred.outputs]
    before = [np.full_like(each, 7) for each in inputs]
    kinds = prop.list_gradients()
    for implementation in all_implementations(prop):
        run = forward(implementation, prop, inputs, outputs)
        if run is None:
            continue
        visible = run.outputs[: prop.num_visible_outputs]
        assert not any(each.any() for each in visible), implementation.name
        data = BackwardData([np.ones_like(each) for each in outputs], inputs, run.outputs)
        gradients = backward(implementation, prop, data, before, run)
        for kind, gradient in zip(kinds, gradients, strict=False):
            assert kind is not GradientKind.COMPUTES or not gradient.any(), implementation.name
