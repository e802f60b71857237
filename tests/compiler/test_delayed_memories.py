"""Recurrences whose memories are other memories, views of them, or sequences: delayed values."""

from __future__ import annotations

from pathlib import Path

import pytest
from recurrent_networks import LOSS, assert_same_bits, config, outcome

UNREAD = "sequence of which no layer reads the memory"
MEMORIES = {
    "delay": "h: {layer: next, shape: [5]}, q: {layer: h, shape: [5]}, r: {layer: q, shape: [5]}",
    "delay in reverse order": "r: {layer: q, shape: [5]}, q: {layer: h, shape: [5]}, "
    "h: {layer: next, shape: [5]}",
    "exchange": "h: {layer: next, shape: [5]}, q: {layer: r, shape: [5], initial: first}, "
    "r: {layer: q, shape: [5]}",
    "view": "h: {layer: next, shape: [5]}, r: {layer: column, shape: [5, 1]}",
    UNREAD: "h: {layer: next, shape: [5]}, q: {layer: x, shape: [3]}, r: {layer: h, shape: [5]}",
}
BODY = """\
    - FullyConnected: {{name: first, data: data, num_hidden: 5}}
    - recurrent:
        name: rnn
        sequences: {{x: data}}
        memories: {{{memories}}}
{more}        layers:
{view}          - Concat: {{name: both, inputs: [x, h, {read}]}}
          - FullyConnected: {{name: fc, num_hidden: 5}}
          - Activation: {{name: next, act_type: tanh}}
        final: [{final}]
    - elemwise_add: {{name: sum, inputs: ["rnn[h]", first]}}
"""
VIEW = """\
          - Reshape: {name: column, data: h, shape: [0, 5, 1]}
          - Reshape: {name: row, data: r, shape: [0, 5]}
"""


def network(case: str, lengths: bool, final: str) -> str:
    is_view = case == "view"
    layers = BODY.format(
        memories=MEMORIES[case],
        more="        lengths: n\n" if lengths else "",
        view=VIEW if is_view else "",
        read="row" if is_view else "r",
        final=f"{final}, q" if case == UNREAD else final,
    )
    inputs = "{data: [4, 3], n: [], label: []}" if lengths else "{data: [4, 3], label: []}"
    return config(inputs, layers + LOSS)


@pytest.mark.parametrize(("lengths", "final"), [(False, "h"), (False, "h, r"), (True, "h")])
@pytest.mark.parametrize("case", MEMORIES)
def test_L7_delayed_memories_have_the_bits_of_the_unrolled_form(
    case: str, lengths: bool, final: str, tmp_path: Path
) -> None:
    text, unrolled = network(case, lengths, final), "network.layers[1].recurrent.unroll=true"
    expected = outcome(tmp_path, text, unrolled)
    assert_same_bits(outcome(tmp_path, text), expected)
    assert_same_bits(outcome(tmp_path, text, backward="reverse"), expected)
    on_reference = outcome(tmp_path, text, unrolled, kind="reference")
    assert_same_bits(outcome(tmp_path, text, kind="reference"), on_reference)
