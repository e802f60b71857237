"""Bodies of recurrences with operators, views and memories of every kind, against unrolled ones."""

from __future__ import annotations

from pathlib import Path

import pytest
from layer_configs import config_file
from memory_reports import verified
from recurrent_networks import TARGETS, assert_same_bits, config, outcome, symbol_of

from mxrun.base.errors import UserError

UNROLL = "network.layers[0].recurrent.unroll=true"
CONVOLUTIONS = """\
    - recurrent:
        name: rnn
        sequences: {x: data}
        memories: {h: {layer: next, shape: [4, 3]}}
        layers:
          - Convolution: {name: of_h, data: h, num_filter: 4, kernel: [3], pad: [1]}
          - expand_dims: {name: of_x, data: x, axis: 1}
          - broadcast_add: {name: sum, inputs: [of_h, of_x]}
          - Activation: {name: act, act_type: tanh}
          - Convolution: {name: next, num_filter: 4, kernel: [3], pad: [1]}
        outputs: [next]
"""
VIEWS = """\
    - recurrent:
        name: rnn
        sequences: {x: data}
        layers:
          - FullyConnected: {name: fc, num_hidden: 6}
          - Activation: {name: act, act_type: tanh}
          - Reshape: {name: next, shape: [0, 2, 3]}
        outputs: [next]
"""
# Nothing that reads h is an output; the gradient of its last value is given from outside.
LAST_VALUE = """\
    - recurrent:
        name: rnn
        sequences: {x: data}
        memories: {h: {layer: next, shape: [5], OFFSET}}
        layers:
          - BlockGrad: {name: fixed, data: h}
          - FullyConnected: {name: fc, data: x, num_hidden: 5}
          - elemwise_add: {name: next, inputs: [fc, fixed]}
        outputs: [fixed]
        final: [h]
    - Reshape: {name: last, data: "rnn[h]", shape: [0, -1, 5]}
    - Concat: {name: both, inputs: [rnn, last], dim: 1}
"""
# The memory is a sequence without a gradient, the values before its first one have gradients.
DELAYED_SEQUENCE = """\
    - FullyConnected: {name: first, num_hidden: 6}
    - Reshape: {name: firsts, shape: [0, 2, 3]}
    - recurrent:
        name: rnn
        sequences: {x: data}
        memories: {h: {layer: x, shape: [3], offset: 2, initial: firsts}}
        layers:
          - FullyConnected: {name: next, data: h, num_hidden: 5}
        outputs: [next]
"""
OUTSIDE = """\
    - FullyConnected: {name: out, num_hidden: 5}
    - recurrent:
        name: rnn
        sequences: {x: data}
        memories: {h: {layer: out, shape: [5]}}
        layers:
          - Concat: {name: both, inputs: [x, h]}
          - FullyConnected: {name: next, num_hidden: 5}
        outputs: [next]
"""
# The steps of the operator within are the same at every step of the recurrence.
INVARIANT = """\
    - recurrent:
        name: rnn
        sequences: {x: data}
        layers:
          - RNN: {name: of_all, data: data, mode: lstm, state_size: 4, num_layers: 2, layout: NTC,
              initial_state: zeros}
          - Flatten: {name: flat}
          - FullyConnected: {name: fc, data: x, num_hidden: 28}
          - elemwise_mul: {name: next, inputs: [flat, fc]}
        outputs: [next]
"""
VARIABLES = """\
network:
  variables: {rnn/of_all_parameters: {init: {uniform: {scale: 0.2}}}}
"""
CASES = {
    "convolutions": (CONVOLUTIONS, "[7, 4, 3]"),
    "output is a view of what backward reads": (VIEWS, "[7, 2, 3]"),
    "gradient of a last value": (LAST_VALUE.replace(", OFFSET", ""), "[8, 5]"),
    "gradient of last values": (LAST_VALUE.replace("OFFSET", "offset: 2"), "[9, 5]"),
    "memory of a sequence": (DELAYED_SEQUENCE, "[7, 5]"),
    "memory of a layer outside": (OUTSIDE, "[7, 5]"),
    "invariant operator with further outputs": (INVARIANT, "[7, 28]"),
}


@pytest.mark.parametrize("case", CASES)
def test_L7_a_body_equals_its_unrolled_form(case: str, tmp_path: Path) -> None:
    layers, target = CASES[case]
    text = config(f"{{data: [7, 3], target: {target}}}", layers + TARGETS)
    text = text.replace("network:\n", VARIABLES if layers is INVARIANT else "network:\n")
    found = outcome(tmp_path, text)
    unroll = UNROLL.replace("[0]", f"[{layers[: layers.index('- recurrent')].count('- ')}]")
    assert_same_bits(found, outcome(tmp_path, text, unroll))
    for segment in (1, 3):
        assert_same_bits(found, outcome(tmp_path, text, segment=segment))
    assert all(value.any() for value in found.values())


UNREAD = """\
    - recurrent:
        name: rnn
        sequences: {x: data}
        memories: {h: {layer: next, shape: [5]}}
        layers:
          - _mul_scalar: {name: half, data: x, scalar: 0.5}
          - Concat: {name: both, inputs: [x, h]}
          - FullyConnected: {name: next, num_hidden: 5}
        outputs: [half, next]
    - FullyConnected: {name: out, data: rnn, num_hidden: 3, flatten: false}
"""


# The weights that no loss depends on through the recurrence are those of a layer outside as well.
SHARED = f"""\
{UNREAD}\
    - FullyConnected: {{name: wide, data: data, num_hidden: 8, flatten: false}}
    - FullyConnected: {{name: outside, num_hidden: 5, flatten: false, weight: rnn/next_weight,
        bias: rnn/next_bias}}
    - Concat: {{name: all, inputs: [out, outside], dim: 2}}
"""


def test_weights_get_no_gradient_from_a_recurrence_of_which_none_is_read(tmp_path: Path) -> None:
    text = config("{data: [7, 3], target: [7, 8]}", SHARED + TARGETS)
    found = outcome(tmp_path, text)
    assert found["train rnn/next_weight_grad"].any()
    assert_same_bits(found, outcome(tmp_path, text, UNROLL))
    assert_same_bits(found, outcome(tmp_path, text, segment=2))


@pytest.mark.parametrize("unroll", ["false", "true"])
@pytest.mark.parametrize("read", ["h", "fixed"])
def test_weights_that_change_no_output_are_refused_in_both_forms(
    tmp_path: Path, read: str, unroll: str
) -> None:
    """Memories that nothing else reads, or only where no gradient passes."""
    layers = UNREAD.replace("[half, next]", "[half]")
    if read == "fixed":
        layers = layers.replace("[half]", "[fixed]").replace(
            "          - Concat",
            "          - BlockGrad: {name: fixed, data: h}\n          - Concat",
        )
        layers = layers.replace("          - _mul_scalar: {name: half, data: x, scalar: 0.5}\n", "")
    text = config("{data: [7, 3], target: [7, 3]}", layers + TARGETS)
    with pytest.raises(UserError, match="no loss depends on 'rnn/next_weight', 'rnn/next_bias'"):
        symbol_of(tmp_path, text, f"network.layers[0].recurrent.unroll={unroll}")


PACKED_TWICE = """\
    - recurrent:
        name: rnn
        sequences: {x: data}
        layers:
          - FullyConnected: {name: fc, num_hidden: 8}
        outputs: [fc]
    - FullyConnected: {name: out, data: data, num_hidden: 8, flatten: false, weight: rnn/fc_weight}
    - elemwise_mul: {name: product, inputs: [rnn, out]}
"""


def test_a_weight_shared_with_a_layer_outside_is_packed_for_both(tmp_path: Path) -> None:
    path = config_file(tmp_path, config("{data: [4, 8], target: [4, 8]}", PACKED_TWICE + TARGETS))
    report = verified(path, ["threads=2"], steps=2)
    assert report["passed"], [each for each in report["variants"] if not each["passed"]]


# The state around the inner recurrence begins its memory, and is read at each of its steps.
NESTED = """\
    - recurrent:
        name: outer
        sequences: {x: data}
        memories: {h: {layer: after, shape: [3]}}
        layers:
          - recurrent:
              name: inner
              steps: 3
              memories: {k: {layer: next, shape: [3], initial: h}}
              layers:
                - add_n: {name: sum, inputs: [k, h, x]}
                - FullyConnected: {name: fc, num_hidden: 3}
                - Activation: {name: next, act_type: tanh}
              outputs: [next]
              final: [k]
          - FullyConnected: {name: after, data: "inner[k]", num_hidden: 3}
        outputs: [after]
"""


def test_an_unrolled_recurrence_within_a_loop_sums_gradients_as_a_loop_does(tmp_path: Path) -> None:
    text = config("{data: [7, 3], target: [7, 3]}", NESTED + TARGETS)
    found = outcome(tmp_path, text)
    inner = "network.layers[0].recurrent.layers[0].recurrent.unroll=true"
    assert_same_bits(found, outcome(tmp_path, text, inner))
