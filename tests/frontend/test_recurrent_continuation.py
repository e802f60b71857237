"""Final memories as the initial ones of another recurrence, which goes on where the first ended."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from recurrent_networks import Arrays, assert_same_bits, config, plan_of, results_of, symbol_of

Array = npt.NDArray[Any]
Part = dict[str, str]

BATCH, HALF = 4, 3
# Records end in either half; one has fewer steps than an offset, one has none in the first half.
LENGTHS = {"one": np.array([3, 1, 0, 2]), "two": np.array([2, 0, 2, 3])}
RECURRENCE = """\
    - recurrent:
        name: {name}
        sequences: {{x: x_{name}}}
        memories:
          h: {{layer: next, shape: [5], offset: 3, initial: "{h}"}}
          p: {{layer: fc, shape: [5], offset: 2{p}}}
          q: {{layer: next, shape: [5], initial: "{q}"}}
{keys}        layers:
          - Concat: {{name: both, inputs: [x, h, p, q]}}
          - FullyConnected: {{name: fc, num_hidden: 5, no_bias: true{weight}}}
          - Activation: {{name: next, act_type: {activation}}}
        outputs: [next]
        final: [h, p, q]
"""
FIRST = {"h": "first_h", "p": "", "q": "first_q", "weight": ""}
SECOND = {
    "h": "one[h]",
    "p": ', initial: "one[p]"',
    "q": "one[q]",
    "weight": ", weight: one/fc_weight",
}
WEIGHTED = """\
    - elemwise_mul: {{name: weighted_{name}, lhs: "{value}", rhs: weights_{name}}}
    - MakeLoss: {{name: loss_{name}}}
"""
SHAPES = {
    "first_h": (3, 5),
    "first_q": (5,),
    "weights_h": (3, 5),
    "weights_p": (2, 5),
    "weights_q": (5,),
}


def network(steps: int, lengths: bool, keys: str, activation: str, **parts: Part) -> str:
    """Return a config with losses of each recurrence's output and of the last final memories."""
    layers, shapes = "", {name: [*shape] for name, shape in SHAPES.items()}
    for name, part in parts.items():
        shapes |= {f"x_{name}": [steps, 3], f"weights_{name}": [steps, 5]}
        shapes |= {f"n_{name}": []} if lengths else {}
        more = f"{keys}        lengths: n_{name}\n" if lengths else keys
        layers += RECURRENCE.format(name=name, keys=more, activation=activation, **part)
        layers += WEIGHTED.format(name=name, value=name)
    for memory in "hpq":
        layers += WEIGHTED.format(name=memory, value=f"{name}[{memory}]")
    inputs = ", ".join(f"{name}: {shape}" for name, shape in shapes.items())
    losses = ", ".join(f"loss_{name}" for name in (*parts, *"hpq"))
    return config(f"{{{inputs}}}\n  outputs: [{losses}]", layers)


def results(folder: Path, text: str, given: Arrays) -> Arrays:
    """Return weighted values, and the gradients of weights, sequences and first values.

    Those of the unrolled form are equal bit for bit.
    """
    found = []
    for keys in ("", "        unroll: true\n"):
        own = text.replace("        layers:", f"{keys}        layers:")
        symbol, inputs = symbol_of(folder, own)
        sequences = tuple(name for name in inputs if name.startswith("x_"))
        requested = ("first_h", "first_q", "one/fc_weight", *sequences)
        found.append(results_of(plan_of(symbol, inputs, gradients=requested), given))
    assert_same_bits(*found)
    return {name: value for name, value in found[0].items() if not name.endswith("_loss")}


def drawn(is_exact: bool) -> Arrays:
    """Return values of all tensors; if exact, small integers, whose sums need no rounding."""
    random, found = np.random.default_rng(0), {"sample_weight": np.ones(BATCH, np.float32)}
    halves = {f"x_{name}": (HALF, 3) for name in ("one", "two")}
    halves |= {f"weights_{name}": (HALF, 5) for name in ("one", "two")}
    shapes = {name: (BATCH, *shape) for name, shape in {**SHAPES, **halves}.items()}
    for name, shape in {**shapes, "one/fc_weight": (5, 18)}.items():
        values = random.choice([-1, 0, 0, 1], shape) if is_exact else random.normal(size=shape)
        found[name] = values.astype(np.float32)
    return found


def followed(parts: list[Array], lengths: list[Array]) -> Array:
    """Return the first steps of each record of two arrays, one after the other, and zeros."""
    whole = np.zeros((BATCH, 2 * HALF, *parts[0].shape[2:]), np.float32)
    for record, (n, m) in enumerate(zip(*lengths, strict=True)):
        whole[record, :n] = parts[0][record, :n]
        whole[record, n : n + m] = parts[1][record, :m]
    return whole


@pytest.mark.parametrize(
    ("has_lengths", "reverse", "activation"),
    [(False, False, "tanh"), (True, False, "tanh"), (True, True, "tanh"), (True, False, "relu")],
)
def test_L8_two_halves_are_one_recurrence(
    tmp_path: Path, has_lengths: bool, reverse: bool, activation: str
) -> None:
    """Bit for bit, but for weights, whose gradients are sums over the steps of each half.

    These are equal where they are exact.
    """
    is_exact, order = activation == "relu", ("two", "one") if reverse else ("one", "two")
    keys = "        reverse: true\n" if reverse else ""
    by_half = LENGTHS if has_lengths else dict.fromkeys(order, np.full(BATCH, HALF))
    lengths, given = [by_half[half] for half in order], drawn(is_exact)
    one_run = {**given, "n_one": lengths[0] + lengths[1]}
    for name in ("x", "weights"):
        one_run[f"{name}_one"] = followed([given[f"{name}_{half}"] for half in order], lengths)
    given |= {f"n_{half}": count for half, count in by_half.items()}
    halves = network(HALF, has_lengths, keys, activation, one=FIRST, two=SECOND)
    found = results(tmp_path, halves, given)
    whole = network(2 * HALF, has_lengths, keys, activation, one=FIRST)
    expected = results(tmp_path, whole, one_run)
    for name in ("evaluate loss_{}_output", "train loss_{}_output", "train x_{}_grad"):
        parts = [found.pop(name.format(half)) for half in order]
        found[name.format("one")] = followed(parts, lengths)
    assert max(np.abs(value).max() for value in expected.values()) < 2**24
    assert all(value.any() for value in expected.values())
    if not is_exact:
        sums = (each.pop("train one/fc_weight_grad") for each in (found, expected))
        np.testing.assert_allclose(*sums, rtol=1e-5, atol=1e-6)
    assert_same_bits(found, expected)
