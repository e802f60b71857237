"""Configs with `recurrent:`: both directions, lengths, nesting, budgets and runs."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from layer_configs import config_file, problems
from recurrent_networks import (
    CELL,
    LOSS,
    TARGETS,
    Arrays,
    assert_same_bits,
    config,
    drawn,
    outcome,
    plan_of,
    results_of,
    symbol_of,
)

from mxrun.graph.phases import TRAIN
from mxrun.planner.remat.budget import Budget, OverBudget

Array = npt.NDArray[Any]

FINAL = f'{CELL}        final: [h]\n    - Flatten: {{name: last, data: "rnn[h]"}}\n{LOSS}'
KEYS = "network.layers[0].recurrent"
STEPS, BATCH = 7, 4


def with_keys(layers: str, keys: str) -> str:
    """Return layers whose first recurrence has further keys."""
    return layers.replace("        outputs: [next]\n", f"        outputs: [next]\n{keys}", 1)


def records() -> Array:
    return np.random.default_rng(0).normal(size=(BATCH, STEPS, 3)).astype(np.float32)


def equals_unrolled(folder: Path, text: str, *overrides: str, **options: Any) -> Arrays:
    """Assert that a config equals its unrolled form bit for bit; return its results."""
    found = outcome(folder, text, *overrides, **options)
    unrolled = outcome(folder, text, f"{KEYS}.unroll=true", *overrides, **options)
    assert_same_bits(found, unrolled)
    return found


def test_X9_a_recurrence_equals_numpy_and_its_unrolled_form(tmp_path: Path) -> None:
    text = config(f"{{data: [{STEPS}, 3], target: [{STEPS}, 5]}}", CELL + TARGETS)
    values = {
        "data": records(),
        "rnn/fc_weight": np.random.default_rng(1).normal(size=(5, 8)).astype(np.float32),
        "rnn/fc_bias": np.zeros(5, np.float32),
    }
    found = equals_unrolled(tmp_path, text, given=values)["evaluate loss_output"]
    h = np.zeros((BATCH, 5))
    for t in range(STEPS):
        h = np.tanh(np.concatenate([values["data"][:, t], h], 1) @ values["rnn/fc_weight"].T)
        np.testing.assert_allclose(found[:, t], h, atol=1e-5)


def test_reversed_steps_are_those_of_reversed_records(tmp_path: Path) -> None:
    text = config(f"{{data: [{STEPS}, 3], target: [{STEPS}, 5]}}", CELL + TARGETS)
    backwards = equals_unrolled(tmp_path, text, f"{KEYS}.reverse=true", given={"data": records()})
    reversed_records = {"data": records()[:, ::-1]}
    forwards = outcome(tmp_path, text, given=reversed_records)
    assert np.array_equal(
        backwards["evaluate loss_output"], forwards["evaluate loss_output"][:, ::-1]
    )


def test_both_directions_are_two_recurrences_side_by_side(tmp_path: Path) -> None:
    both = config(
        f"{{data: [{STEPS}, 3], target: [{STEPS}, 10]}}",
        with_keys(CELL, "        bidirectional: true\n") + TARGETS,
    )
    given = {"data": records()}
    found = equals_unrolled(tmp_path, both, given=given)
    one = config(f"{{data: [{STEPS}, 3], target: [{STEPS}, 5]}}", CELL + TARGETS)
    specs = plan_of(*symbol_of(tmp_path, both)).specs
    for way, part in (("forward", slice(0, 5)), ("backward", slice(5, 10))):
        own = {
            f"rnn/fc_{kind}": drawn(f"rnn/{way}/fc_{kind}", specs[f"rnn/{way}/fc_{kind}"])
            for kind in ("weight", "bias")
        }
        overrides = [f"{KEYS}.reverse=true"] if way == "backward" else []
        alone = outcome(tmp_path, one, *overrides, given={**given, **own})
        assert np.array_equal(
            found["evaluate loss_output"][..., part], alone["evaluate loss_output"]
        )


GENERATOR = """\
    - recurrent:
        name: rnn
        steps: 7
        memories: {h: {layer: next, shape: [5], initial: first}}
        layers:
          - FullyConnected: {name: fc, num_hidden: 5}
          - Activation: {name: next, act_type: tanh}
        outputs: [next]
"""


def test_X9_a_recurrence_without_sequences_runs_a_number_of_steps(tmp_path: Path) -> None:
    text = config(f"{{first: [5], target: [{STEPS}, 5]}}", GENERATOR + TARGETS)
    found = equals_unrolled(tmp_path, text)["evaluate loss_output"]
    specs = plan_of(*symbol_of(tmp_path, text)).specs
    h, weight, bias = (
        drawn(name, specs[name]) for name in ("first", "rnn/fc_weight", "rnn/fc_bias")
    )
    for t in range(STEPS):
        h = np.tanh(h @ weight.T + bias)
        np.testing.assert_allclose(found[:, t], h, atol=1e-5)
    assert_same_bits(outcome(tmp_path, text), outcome(tmp_path, text, segment=3))


def test_X9_records_without_sequences_have_numbers_of_steps(tmp_path: Path) -> None:
    inputs = f"{{first: [5], lengths: [], target: [{STEPS}, 5]}}"
    text = config(inputs, with_keys(GENERATOR, "        lengths: lengths\n") + TARGETS)
    found = equals_unrolled(tmp_path, text, given={"lengths": LENGTHS})["evaluate loss_output"]
    for record, length in enumerate(LENGTHS):
        assert found[record, :length].all()
        assert not found[record, length:].any()


LENGTHS = np.array([3, 5, 1, 2])
RAGGED = with_keys(CELL, "        lengths: lengths\n")
STACKED = config(f"{{data: [{STEPS}, 3], target: [{STEPS}, 5], lengths: []}}", RAGGED + TARGETS)
LAST = config(
    f"{{data: [{STEPS}, 3], lengths: [], label: []}}",
    FINAL.replace("        final", "        lengths: lengths\n        final"),
)


@pytest.mark.parametrize("way", ["reverse=false", "reverse=true", "bidirectional=true"])
@pytest.mark.parametrize("text", [STACKED, LAST], ids=["stacked", "last"])
def test_L8_padding_changes_no_result(tmp_path: Path, text: str, way: str) -> None:
    """Not even NaN does, nor is any step beyond the longest record read."""
    if text is STACKED and way.startswith("bidirectional"):
        text = text.replace("target: [7, 5]", "target: [7, 10]")
    for kind in ("cpu", "reference"):
        data = records()
        given = {"data": data, "lengths": LENGTHS}
        clean = equals_unrolled(tmp_path, text, f"{KEYS}.{way}", given=given, kind=kind)
        for record, length in enumerate(LENGTHS):
            data[record, length:] = np.nan
        padded = outcome(tmp_path, text, f"{KEYS}.{way}", given=given, kind=kind)
        assert_same_bits(clean, padded)
        assert all(np.isfinite(value).all() for value in padded.values())


@pytest.mark.parametrize("way", ["reverse=false", "reverse=true"])
@pytest.mark.parametrize("offset", [1, 2])
def test_L8_a_record_without_steps_keeps_its_initial_memory(
    tmp_path: Path, offset: int, way: str
) -> None:
    block = [5] if offset == 1 else [offset, 5]
    inputs = f"{{data: [{STEPS}, 3], first: {block}, lengths: [], target: {block}}}"
    memory = f"h: {{layer: next, shape: [5], offset: {offset}, initial: first}}"
    cell = RAGGED.replace("h: {layer: next, shape: [5]}", memory) + "        final: [h]\n"
    loss = '    - LinearRegressionOutput: {name: loss, data: "rnn[h]", label: target}\n'
    first = np.random.default_rng(0).normal(size=(BATCH, *block)).astype(np.float32)
    given = {"first": first, "lengths": np.array([0, STEPS, 0, 2])}
    found = equals_unrolled(tmp_path, config(inputs, cell + loss), f"{KEYS}.{way}", given=given)
    output = found["evaluate loss_output"]
    assert np.array_equal(output[::2], first[::2])
    assert not np.isin(output[1::2], first).any()


@pytest.mark.parametrize("way", ["reverse=false", "reverse=true"])
@pytest.mark.parametrize("lengths", [LENGTHS, np.ones(4)], ids=["several", "shorter than offset"])
def test_L8_memories_of_earlier_steps_have_no_gradient_from_steps_that_do_not_run(
    tmp_path: Path, lengths: npt.NDArray[Any], way: str
) -> None:
    inputs = f"{{data: [{STEPS}, 3], first: [3, 5], lengths: [], target: [{STEPS}, 5]}}"
    memory = "h: {layer: next, shape: [5], offset: 3, initial: first}"
    cell = RAGGED.replace("h: {layer: next, shape: [5]}", memory)
    wanted = ("first", "rnn/fc_weight", "rnn/fc_bias")
    found = []
    for unroll in ("false", "true"):
        (tmp_path / unroll).mkdir()
        keys = (f"{KEYS}.{way}", f"{KEYS}.unroll={unroll}")
        symbol = symbol_of(tmp_path / unroll, config(inputs, cell + TARGETS), *keys)
        plan = plan_of(*symbol, gradients=wanted)
        found.append(results_of(plan, {"lengths": lengths}, poisoned=True))
    assert_same_bits(*found)


def test_L8_results_are_those_of_shorter_batches(tmp_path: Path) -> None:
    shorter = STACKED.replace(f"[{STEPS}, ", "[5, ")
    given = {"data": records(), "lengths": LENGTHS}
    target = np.random.default_rng(2).normal(size=(BATCH, STEPS, 5)).astype(np.float32)
    # The loss is the mean over all targets, also of padding, where they are what is predicted.
    target[:, 5:] = 0
    long = outcome(tmp_path, STACKED, given={**given, "target": target})
    cut = {"data": records()[:, :5], "lengths": LENGTHS, "target": target[:, :5]}
    short = outcome(tmp_path, shorter, given=cut)
    assert np.array_equal(long["evaluate loss_output"][:, :5], short["evaluate loss_output"])
    assert not long["evaluate loss_output"][:, 5:].any()
    for record, length in enumerate(LENGTHS):
        assert not long["evaluate loss_output"][record, length:].any()
        assert long["evaluate loss_output"][record, :length].all()
    for name in ("fc_weight", "fc_bias"):
        scaled = short[f"train rnn/{name}_grad"] * np.float32(5 / STEPS)
        np.testing.assert_allclose(long[f"train rnn/{name}_grad"], scaled, rtol=1e-5, atol=1e-7)


LOGARITHMS = """\
    - recurrent:
        name: rnn
        sequences: {x: data}
        memories: {h: {layer: next, shape: [5], initial: first}}
        lengths: lengths
        layers:
          - log: {name: of_x, data: x}
          - log: {name: of_h, data: h}
          - Concat: {name: both, inputs: [of_x, of_h]}
          - FullyConnected: {name: fc, num_hidden: 5}
          - exp: {name: next}
        outputs: [next]
"""


@pytest.mark.parametrize("way", ["reverse=false", "reverse=true"])
@pytest.mark.parametrize("kind", ["cpu", "reference"])
def test_L8_layers_that_are_not_finite_at_0_have_finite_gradients(
    tmp_path: Path, kind: str, way: str
) -> None:
    inputs = f"{{data: [{STEPS}, 3], first: [5], target: [{STEPS}, 5], lengths: []}}"
    text = config(inputs, LOGARITHMS + TARGETS)
    weight = np.random.default_rng(1).normal(size=(5, 8)).astype(np.float32)
    given = {
        "data": np.exp(records()),
        "first": np.ones((BATCH, 5), np.float32),
        "rnn/fc_weight": 0.1 * weight,
        "lengths": LENGTHS,
    }
    found = equals_unrolled(tmp_path, text, f"{KEYS}.{way}", given=given, kind=kind)
    assert all(np.isfinite(value).all() for value in found.values())
    assert np.abs(found["train rnn/fc_weight_grad"]).min() > 0
    # No value of the padding is read.
    for record, length in enumerate(LENGTHS):
        given["data"][record, length:] = np.nan
    assert_same_bits(found, outcome(tmp_path, text, f"{KEYS}.{way}", given=given, kind=kind))


TAGGER = """\
    - recurrent:
        name: document
        sequences: {words: data, count: counts}
        memories: {d: {layer: after, shape: [4]}}
        lengths: sentences
        layers:
          - FullyConnected: {name: start, data: d, num_hidden: 5}
          - recurrent:
              name: sentence
              sequences: {w: words}
              memories: {h: {layer: next, shape: [5], initial: start}}
              lengths: count
              layers:
                - Concat: {name: both, inputs: [w, h]}
                - FullyConnected: {name: fc, num_hidden: 5}
                - Activation: {name: next, act_type: tanh}
              outputs: [next]
              final: [h]
          - Concat: {name: both, inputs: ["sentence[h]", d]}
          - FullyConnected: {name: fc, num_hidden: 4}
          - Activation: {name: after, act_type: tanh}
          - Reshape: {name: tags, data: sentence, shape: [0, -1]}
        outputs: [tags, after]
    - Concat: {name: all, inputs: ["document[0]", "document[1]"], dim: 2}
    - LinearRegressionOutput: {name: loss, label: target}
"""
DOCUMENTS = config("{data: [3, 6, 2], counts: [3], sentences: [], target: [3, 34]}", TAGGER)
COUNTS = np.array([[1, 4, 2], [3, 0, 0], [5, 1, 0], [2, 2, 2]])
SENTENCES = np.array([3, 1, 2, 3])


def test_L8_a_nested_recurrence_equals_its_flat_reference(tmp_path: Path) -> None:
    random = np.random.default_rng(1)
    words = random.normal(size=(BATCH, 3, 6, 2)).astype(np.float32)
    given = {"data": words, "counts": COUNTS, "sentences": SENTENCES}
    found = outcome(tmp_path, DOCUMENTS, given=given)
    inner = "network.layers[0].recurrent.layers[1].recurrent.unroll=true"
    for unrolled in ([f"{KEYS}.unroll=true"], [inner], [f"{KEYS}.unroll=true", inner]):
        assert_same_bits(found, outcome(tmp_path, DOCUMENTS, *unrolled, given=given))
    specs = plan_of(*symbol_of(tmp_path, DOCUMENTS)).specs
    own = {name: drawn(name, spec).astype(float) for name, spec in specs.items()}

    def dense(name: str, data: Array) -> Array:
        result: Array = data @ own[f"{name}_weight"].T + own[f"{name}_bias"]
        return result

    output = found["evaluate loss_output"]
    for record in range(BATCH):
        d = np.zeros(4)
        for sentence in range(SENTENCES[record]):
            h, tags = dense("document/start", d), np.zeros((6, 5))
            for word in range(COUNTS[record, sentence]):
                both = np.concatenate([words[record, sentence, word], h])
                h = tags[word] = np.tanh(dense("document/sentence/fc", both))
            if COUNTS[record, sentence]:
                d = np.tanh(dense("document/fc", np.concatenate([h, d])))
                expected = np.concatenate([tags.ravel(), d])
                np.testing.assert_allclose(output[record, sentence], expected, atol=1e-5)
        assert not output[record, SENTENCES[record] :].any()


LONG = """\
    - recurrent:
        name: rnn
        sequences: {x: data}
        memories: {h: {layer: next, shape: [32]}}
        layers:
          - FullyConnected: {name: of_x, data: x, num_hidden: 32}
          - FullyConnected: {name: of_h, data: h, num_hidden: 32}
          - elemwise_add: {name: sum, lhs: of_x, rhs: of_h}
          - Activation: {name: first, act_type: tanh}
          - FullyConnected: {name: second, num_hidden: 32}
          - Activation: {name: next, act_type: sigmoid}
        outputs: [next]
        final: [h]
    - Flatten: {name: last, data: "rnn[h]"}
"""


def long_network(folder: Path, steps: int) -> tuple[Any, Any]:
    return symbol_of(folder, config(f"{{data: [{steps}, 2], label: []}}", LONG + LOSS))


def test_L9_a_long_recurrence_trains_within_a_budget_with_the_same_bits(tmp_path: Path) -> None:
    plain = plan_of(*long_network(tmp_path, 1000))
    whole = results_of(plain)
    for share in (0.3, 0.15):
        plan = plan_of(*long_network(tmp_path, 1000), budget=Budget(share=share))
        assert plan.reusable_bytes <= share * plain.reusable_bytes
        assert plan.planned_bytes == plan.lower_bound_bytes
        assert_same_bits(whole, results_of(plan))
        recomputed = plan.phases[TRAIN].recomputed
        assert recomputed is not None
        assert "rnn" in recomputed.steps
    with pytest.raises(OverBudget, match="backward of 'rnn' needs"):
        plan_of(*long_network(tmp_path, 1000), budget=Budget(share=0.02))


def test_L9_memory_grows_less_than_the_number_of_steps(tmp_path: Path) -> None:
    least = Budget(least=True)
    sizes = [
        plan_of(*long_network(tmp_path, steps), budget=least).reusable_bytes
        for steps in (100, 400, 1600)
    ]
    # In proportion to the square root, and the records of the batch.
    assert sizes[1] < 2.2 * sizes[0]
    assert sizes[2] < 2.6 * sizes[1]


BLOCKS = """\
    - FullyConnected: {name: context, data: data, num_hidden: 5}
    - recurrent:
        name: rnn
        sequences: {x: data}
        memories: {h: {layer: next, shape: [5], offset: 2, initial: starts}}
        layers:
          - Concat: {name: both, inputs: [x, h, context]}
          - repeat:
              count: 2
              layers:
                - unit: {name: "unit${i}", width: 5}
          - FullyConnected: {name: again, num_hidden: 5, weight: rnn/unit1/fc_weight}
          - elemwise_add: {name: next, lhs: again, rhs: context}
        outputs: [next, unit0]
        final: [h]
    - Flatten: {name: last, data: "rnn[h]"}
    - Flatten: {name: second, data: "rnn[1]"}
    - Concat: {name: all, inputs: [last, second]}
"""
UNIT = """\
blocks:
  unit:
    parameters: {width: null}
    layers:
      - FullyConnected: {name: fc, num_hidden: "${width}"}
      - Activation: {name: act, act_type: tanh}
"""


def test_X9_blocks_repeats_constants_and_shared_weights(tmp_path: Path) -> None:
    """Within a recurrence with a memory of two steps before, whose first values are given."""
    inputs = f"{{data: [{STEPS}, 3], starts: [2, 5], label: []}}"
    text = config(inputs, BLOCKS + LOSS).replace("network:", f"{UNIT}network:", 1)
    key = "network.layers[1].recurrent.unroll=true"
    found = outcome(tmp_path, text)
    assert_same_bits(found, outcome(tmp_path, text, key))
    assert {name for name in found if name.endswith("fc_weight_grad")} == {
        "train rnn/unit0/fc_weight_grad",
        "train rnn/unit1/fc_weight_grad",
    }


def test_layers_of_a_recurrence_are_edited_by_their_names(tmp_path: Path) -> None:
    (tmp_path / "base.yaml").write_text(
        config(f"{{data: [{STEPS}, 3], target: [{STEPS}, 5]}}", CELL + TARGETS)
    )
    edited = """\
name: net
extends: base.yaml
network:
  layers:
    change: {rnn/next: {act_type: sigmoid}}
    insert_after: {rnn/fc: [LayerNorm: {name: norm}]}
"""
    symbol, inputs = symbol_of(tmp_path, edited)
    assert {"rnn/norm_gamma", "rnn/norm_beta"} < {*symbol.list_arguments()}
    found = results_of(plan_of(symbol, inputs))
    assert found["evaluate loss_output"].min() > 0


def test_the_names_of_outputs_and_memories_are_those_of_references(tmp_path: Path) -> None:
    layers = (
        with_keys(CELL, "        final: [h]\n") + '    - Flatten: {name: flat, data: "rnn[g]"}\n'
    )
    path = config_file(tmp_path, config("{data: [7, 3], target: [7, 5]}", layers + TARGETS))
    found = problems(path)[0]
    assert found.problem == "'rnn' has no output 'g'"
    assert found.expected == "one of rnn[0], rnn[h]"


def test_the_shapes_of_deeply_nested_recurrences_are_inferred_once(tmp_path: Path) -> None:
    # Each level asks for those below it several times: without storing them, for minutes.
    depth, layers = 6, CELL
    for _ in range(depth - 1):
        inner = textwrap.indent(layers.replace("x: data", "x: x"), 6 * " ")
        layers = (
            "    - recurrent:\n        name: rnn\n        sequences: {x: data}\n"
            f"        layers:\n{inner}"
        )
    sizes = ", ".join("2" * depth)
    text = config(f"{{data: [{sizes}, 3], target: [{sizes}, 5]}}", layers + TARGETS)
    symbol, inputs = symbol_of(tmp_path, text)
    assert plan_of(symbol, inputs).specs["rnn/" * depth + "fc_weight"].shape == (5, 8)
