"""Recurrences against PyTorch's automatic differentiation of the same symbol."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from oracles.peer import PyTorch
from recurrent_cells import HIDDEN, WEIGHTS, network, specs
from recurrent_networks import drawn, plan_of, results_of

CASES: dict[str, dict[str, Any]] = {
    "plain": {},
    "offset 2": {"offset": 2},
    "reversed": {"reverse": True},
}


@pytest.mark.parametrize("case", CASES)
def test_L7_a_recurrence_agrees_with_pytorch(case: str, pytorch: PyTorch) -> None:
    steps, options = 5, CASES[case]
    symbol, inputs = network(**options), specs(steps, options.get("offset", 1))
    plan = plan_of(symbol, inputs, (*WEIGHTS, "data", "first_h"))
    arrays = {name: drawn(name, plan.specs[name]) for name in symbol.list_arguments()}
    assert arrays["of_h_weight"].shape == (HIDDEN, HIDDEN)
    losses = [np.ones(1, np.float32)] * 4
    outputs = [
        np.zeros_like(drawn("", plan.specs[name])) for name in ("mask0", "mask1", "mask2", "mask3")
    ]
    expected = pytorch.run_symbol(symbol.tojson(), arrays, [*losses, *outputs])
    found = results_of(plan)
    names = ("rnn_output0", "rnn_output1", "rnn_h", "rnn_c")
    for name, value in zip(names, expected.outputs[4:], strict=True):
        np.testing.assert_allclose(found[f"train {name}"], value, atol=1e-5)
    for name in (*WEIGHTS, "data", "first_h"):
        np.testing.assert_allclose(
            found[f"train {name}_grad"], expected.gradients[name], rtol=1e-4, atol=1e-5
        )
