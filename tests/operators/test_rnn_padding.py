"""Padding of RNN's data changes no result, whatever numbers it holds."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from recurrent_networks import assert_same_bits, config, outcome

STEPS, BATCH = 6, 4
LENGTHS = np.array([0, 6, 3, 1])
LAYERS = """\
    - RNN:
        name: rnn
        state_size: 5
        num_layers: 2
        bidirectional: true
        layout: NTC
        initial_state: zeros
        use_sequence_length: true
        sequence_length: lengths
        {keys}
    - LinearRegressionOutput: {{name: loss, label: target}}
"""


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("kind", ["cpu", "reference"])
@pytest.mark.parametrize(
    ("keys", "width"),
    [("mode: lstm", 10), ("{mode: lstm, projection_size: 3}", 6), ("mode: gru", 10)],
    ids=["lstm", "projected lstm", "gru"],
)
def test_padding_that_is_not_finite_changes_no_result(
    tmp_path: Path, keys: str, width: int, kind: str, precision: str
) -> None:
    inputs = f"{{data: [{STEPS}, 3], lengths: [], target: [{STEPS}, {width}]}}"
    lines = keys.strip("{}").replace(", ", "\n        ")
    text = config(inputs, LAYERS.format(keys=lines))
    data = np.random.default_rng(0).normal(size=(BATCH, STEPS, 3)).astype(np.float32)
    padding = np.arange(STEPS) >= LENGTHS[:, np.newaxis]
    found = []
    for number in (0, np.nan, np.inf):
        data[padding] = number
        given = {"data": data, "lengths": LENGTHS}
        found.append(outcome(tmp_path, text, given=given, kind=kind, precision=precision))
    assert all(np.isfinite(value).all() for value in found[0].values())
    assert_same_bits(found[0], found[1])
    assert_same_bits(found[0], found[2])
