"""Networks that compute one position a run give what all positions at once give."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from generation_runs import all_positions, embedded, layer, position_by_position
from refusals import only_problem

from mxrun.base.errors import UserError
from mxrun.base.params import Parameters
from mxrun.base.tensor import TensorSpec
from mxrun.compiler.verify import verify_plan
from mxrun.device.cpu.device import CpuDevice
from mxrun.device.interface import Device
from mxrun.device.reference.device import ReferenceDevice
from mxrun.graph.carried import carrying
from mxrun.graph.graph import MemoryClass
from mxrun.graph.node import NodeEntry
from mxrun.graph.phases import GENERATE, PREFILL
from mxrun.graph.recurrence.node import recurrent_node
from mxrun.graph.recurrence.parameters import RecurrenceParameters
from mxrun.graph.symbol import Symbol, apply, variable
from mxrun.operator.incremental import IncrementalForm, SequenceArguments
from mxrun.operator.operator import ForwardCall, Operator
from mxrun.operator.property import (
    InPlaceProperty,
    OperatorProperty,
    PartialInference,
    PartialShapes,
    same_shape,
)
from mxrun.operator.register import register
from mxrun.passes.incremental import incremental

TOKENS, WIDTH = 13, 24
IDS = np.random.default_rng(1).integers(0, TOKENS, (2, 21)).astype(np.int32)


def head(data: Symbol) -> Symbol:
    return layer("FullyConnected", "head", data, num_hidden=TOKENS, flatten=False)


def dense(name: str, data: Symbol, width: int) -> Symbol:
    return layer("FullyConnected", name, data, num_hidden=width, flatten=False)


def transformer() -> Symbol:
    """Two blocks: packed heads with learned positions."""
    x = layer("position_embedding", "positions", embedded(TOKENS, WIDTH), max_length=32)
    for number in range(2):
        h = layer("LayerNorm", f"norm{number}", x)
        h = dense(f"qkv{number}", h, 3 * WIDTH)
        h = layer(
            *("scaled_dot_product_attention", f"attention{number}", h),
            num_heads=3,
            causal=True,
            packed=True,
        )
        h = layer("Dropout", f"dropout{number}", dense(f"out{number}", h, WIDTH), p=0.5)
        x = apply("elemwise_add", {"lhs": x, "rhs": h}, {}, f"sum{number}")
        h = layer("gated_activation", f"gate{number}", dense(f"wide{number}", x, 4 * WIDTH))
        x = apply("elemwise_add", {"lhs": x, "rhs": dense(f"narrow{number}", h, WIDTH)}, {})
    return head(layer("RMSNorm", "norm", x))


def grouped_heads() -> Symbol:
    """Rotated queries and keys; two heads of queries share one of keys; odd sizes of values."""
    x = embedded(TOKENS, WIDTH)
    query = layer("rotary_embedding", "rotated_query", dense("query", x, 24), num_heads=4)
    key = layer("rotary_embedding", "rotated_key", dense("key", x, 12), num_heads=2)
    given = {"query": query, "key": key, "value": dense("value", x, 10)}
    parameters = {"num_heads": 4, "num_kv_heads": 2, "causal": True, "scale": 0.7}
    return head(apply("scaled_dot_product_attention", given, parameters, "attention")[0])


def reshaped() -> Symbol:
    """Positions move between axes, and are merged with the batch and taken apart again."""
    x = layer("transpose", "steps_first", embedded(TOKENS, WIDTH), axes=(1, 0, 2))
    x = layer("Reshape", "rows", x, shape=(-1, WIDTH))
    x = layer("FullyConnected", "dense", x, num_hidden=WIDTH)
    x = layer("softmax", "softmax", layer("Reshape", "apart", x, shape=(-1, 2, WIDTH)))
    x = layer("expand_dims", "expanded", layer("SwapAxis", "back", x, dim1=0, dim2=1), axis=2)
    parts = apply("SliceChannel", {"data": x}, {"num_outputs": 2, "axis": 3}, "halves")
    x = apply("Concat", {"arg0": parts[1], "arg1": parts[0]}, {"num_args": 2, "dim": 3}, "joined")
    x = layer("sum", "squeezed", x, axis=2)
    total = layer("sum", "total", x, axis=-1, keepdims=True)
    return head(apply("broadcast_mul", {"lhs": total, "rhs": x}, {}, "scaled"))


def fused_rnn(mode: str, layout: str, **further: object) -> Symbol:
    x = embedded(TOKENS, WIDTH)
    steps_first = layout == "TNC"
    if steps_first:
        x = layer("transpose", "steps_first", x, axes=(1, 0, 2))
    sizes = {"state_size": 7, "num_layers": 2, "p": 0.3, **further}
    x = layer("RNN", "rnn", x, mode=mode, layout=layout, initial_state="zeros", **sizes)
    return head(layer("transpose", "back", x, axes=(1, 0, 2)) if steps_first else x)


def last_state(x: Symbol) -> Symbol:
    """Return the state [1, batch, WIDTH] of a recurrence after all positions."""
    sizes = {"state_size": WIDTH, "num_layers": 1, "mode": "gru", "layout": "NTC"}
    given = {**sizes, "initial_state": "zeros", "state_outputs": True}
    return apply("RNN", {"data": x}, given, "rnn")[1]


def recurrence(offset: int, x: Symbol | None = None) -> Symbol:
    """h(t) = tanh(W h(t - offset) + x(t)), in a body of its own."""
    x = layer(
        "transpose", "steps_first", embedded(TOKENS, WIDTH) if x is None else x, axes=(1, 0, 2)
    )
    step, memory = variable("body/x"), variable("body/h")
    h = layer("FullyConnected", "body/dense", memory, num_hidden=WIDTH)
    h = layer(
        "Activation",
        "body/tanh",
        apply("elemwise_add", {"lhs": h, "rhs": step}, {}),
        act_type="tanh",
    )
    parameters = RecurrenceParameters(
        sequences=("body/x",), memories=("body/h",), offsets=(offset,), num_outputs=1
    )
    node = recurrent_node("body", [h.heads[0]] * 2, parameters, {"body/x": x.heads[0]})
    return head(layer("transpose", "back", Symbol([NodeEntry(node)]), axes=(1, 0, 2)))


def carried_apart(x: Symbol) -> Symbol:
    """Add sums over the rows of a parameter, which begin with a state that is carried."""
    h = apply("elemwise_add", {"lhs": variable("own/x"), "rhs": variable("own/h")}, {})
    memories = ("own/h",)
    parameters = RecurrenceParameters(
        sequences=("own/x",), memories=memories, offsets=(1,), initial=memories, final=memories
    )
    state = variable("own_carried_h").heads[0]
    given = {"own/x": variable("table").heads[0], "own/h": state}
    node = recurrent_node("own", [h.heads[0]] * 2, parameters, given)
    marked = carrying("own", [NodeEntry(node)], [(state, NodeEntry(node, 1))], None)
    return apply("broadcast_add", {"lhs": x, "rhs": Symbol(marked)}, {}, "shift")


NETWORKS: dict[str, Callable[[], Symbol]] = {
    "transformer": transformer,
    "grouped heads": grouped_heads,
    "reshaped": reshaped,
    "lstm": lambda: fused_rnn("lstm", "NTC"),
    "lstm with last states": lambda: fused_rnn("lstm", "NTC", state_outputs=True),
    "gru, steps first": lambda: fused_rnn("gru", "TNC"),
    "recurrence": lambda: recurrence(1),
    "recurrence, 3 steps back": lambda: recurrence(3),
}


def device(kind: type[Device], threads: int = 1) -> Device:
    return kind(kind.describe(0, threads))


@pytest.mark.parametrize("kind", [CpuDevice, ReferenceDevice])
@pytest.mark.parametrize("name", NETWORKS)
def test_one_position_a_run_equals_all_at_once(name: str, kind: type[Device]) -> None:
    symbol = NETWORKS[name]()
    expected, parameters = all_positions(symbol, IDS, device(kind))
    found, executor = position_by_position(symbol, IDS, device(kind), parameters)
    np.testing.assert_allclose(found, expected, atol=1e-5, rtol=1e-5)
    carried = [b for b in executor.plan.pinned if b.memory_class is MemoryClass.CARRIED]
    assert bool(carried) == (name != "reshaped")
    # What is stored of earlier positions is overwritten in place: no step has a copy of it.
    largest = max((block.nbytes for block in carried), default=1 << 30)
    made = [block.nbytes for block in executor.plan.phases[GENERATE].blocks]
    assert name != "grouped heads" or max(made) < largest


@pytest.mark.parametrize("kind", [CpuDevice, ReferenceDevice])
@pytest.mark.parametrize("name", NETWORKS)
def test_chunks_leave_what_their_positions_leave_one_by_one(name: str, kind: type[Device]) -> None:
    symbol = NETWORKS[name]()
    expected, parameters = all_positions(symbol, IDS, device(kind))
    found, executor = position_by_position(symbol, IDS, device(kind), parameters, 7, 2)
    np.testing.assert_allclose(found, expected[:, 14:], atol=1e-5, rtol=1e-5)
    plan = verify_plan(executor.plan)
    assert plan.planned_bytes == plan.lower_bound_bytes
    phase = plan.phases[PREFILL]
    # Of the layers that nothing later reads, none is computed.
    assert not phase.graph.results
    assert "head" not in {step.name for step in phase.steps}


def test_what_both_phases_compute_of_parameters_is_stored_once() -> None:
    """Products of eight rows and of more read one packed weight."""
    ids = np.concatenate([IDS] * 4)
    symbol = transformer()
    _, parameters = all_positions(symbol, ids, device(CpuDevice))
    plan = position_by_position(symbol, ids, device(CpuDevice), parameters, 7, 2)[1].plan
    alone = position_by_position(symbol, ids, device(CpuDevice), parameters)[1].plan
    constants = [b.name for b in plan.pinned if b.memory_class is MemoryClass.CONSTANTS]
    assert constants == [b.name for b in alone.pinned if b.memory_class is MemoryClass.CONSTANTS]
    assert constants


def test_a_row_does_not_depend_on_the_other_rows_nor_on_the_threads() -> None:
    symbol = transformer()
    _, parameters = all_positions(symbol, IDS, device(CpuDevice))
    both, _ = position_by_position(symbol, IDS, device(CpuDevice), parameters)
    alone, _ = position_by_position(symbol, IDS[1:], device(CpuDevice), parameters)
    np.testing.assert_array_equal(both[1:], alone)
    shared, _ = position_by_position(symbol, IDS, device(CpuDevice, 2), parameters)
    np.testing.assert_array_equal(shared, both)


def halves(x: Symbol) -> Symbol:
    """Two rows for each position: [batch, 2 * positions, width / 2]."""
    return layer("Reshape", "halves", x, shape=(0, -1, WIDTH // 2))


def one_sequence(x: Symbol) -> Symbol:
    """The batch as a single sequence: [1, batch * positions, width]."""
    return layer("expand_dims", "one", layer("Reshape", "rows", x, shape=(-3, 0)), axis=0)


def gru(x: Symbol) -> Symbol:
    sizes = {"state_size": 3, "num_layers": 1, "mode": "gru", "layout": "NTC"}
    return layer("RNN", "gru", x, initial_state="zeros", **sizes)


def convert(
    symbol: Symbol, shapes: dict[str, tuple[int, ...]] | None = None, chunk: int = 1
) -> None:
    inputs = {"data": TensorSpec(IDS.shape, "int32")}
    incremental(symbol, inputs, ["data"], shapes or {}, IDS.shape[1], chunk)


@pytest.mark.parametrize(
    ("layers", "named"),
    [
        (lambda x: layer("mean", "average", x, axis=1), "mean 'average'"),
        (lambda x: layer("Reshape", "fixed", x, shape=(-1, 21, 2, 12)), "Reshape 'fixed'"),
        (lambda x: layer("LayerNorm", "norm", x, axis=1)[0], "LayerNorm 'norm'"),
        (lambda x: dense("merged", layer("Flatten", "flat", x), 5), "FullyConnected 'merged'"),
        (lambda x: apply("cumsum", {"a": x}, {"axis": 1}, "sums"), "cumsum 'sums'"),
        (
            lambda x: layer("expand_dims", "last", last_state(x), axis=1),
            "expand_dims 'last'",
        ),
        (
            lambda x: apply("broadcast_add", {"lhs": x, "rhs": variable("table")}, {}, "shift"),
            "broadcast_add 'shift'",
        ),
        # An axis of positions and of something else beside.
        (
            lambda x: layer("position_embedding", "table", halves(x), max_length=64),
            "position_embedding 'table'",
        ),
        (
            lambda x: layer("rotary_embedding", "rotated", halves(x), num_heads=1),
            "rotary_embedding 'rotated'",
        ),
        (
            lambda x: layer(
                *("scaled_dot_product_attention", "look", halves(x)),
                num_heads=2,
                packed=True,
                causal=True,
            ),
            "scaled_dot_product_attention 'look'",
        ),
        (lambda x: gru(one_sequence(x)), "RNN 'gru'"),
        (lambda x: recurrence(1, one_sequence(x)), "recurrent 'body'"),
        (carried_apart, "recurrent 'own'"),
    ],
)
def test_a_layer_that_needs_all_positions_is_named(
    layers: Callable[[Symbol], Symbol], named: str
) -> None:
    symbol = dense("head", layers(embedded(TOKENS, WIDTH)), 3)
    with pytest.raises(UserError, match="needs all positions of the sequence at once") as raised:
        convert(symbol, {"table": (1, 21, WIDTH)})
    # Layers after it are not blamed.
    (diagnostic,) = raised.value.diagnostics
    assert diagnostic.problem.startswith(named)
    assert "position_axis" in diagnostic.hint


@pytest.mark.parametrize(
    ("symbol", "problem", "remedy"),
    [
        (
            lambda: layer(
                "scaled_dot_product_attention", "look", embedded(13, 24), num_heads=1, packed=True
            ),
            "scaled_dot_product_attention 'look': attention that reads later positions",
            "causal: true",
        ),
        (
            lambda: apply(
                "scaled_dot_product_attention",
                {"data": embedded(13, 24), "mask": variable("mask")},
                {"num_heads": 1, "packed": True, "causal": True, "use_mask": True},
                "look",
            ),
            "scaled_dot_product_attention 'look': attention with a mask or lengths",
            "causal: true alone",
        ),
        (
            lambda: layer(
                *("RNN", "both", embedded(13, 24)),
                state_size=3,
                num_layers=1,
                mode="gru",
                layout="NTC",
                initial_state="zeros",
                bidirectional=True,
            ),
            "RNN 'both': the layer cannot compute one position after the other",
            "one direction",
        ),
    ],
)
def test_layers_that_read_later_positions_say_so(
    symbol: Callable[[], Symbol], problem: str, remedy: str
) -> None:
    diagnostic = only_problem(convert, symbol(), {"mask": (1, 1, 21, 21)})
    assert diagnostic.problem.startswith(problem)
    assert remedy in f"{diagnostic.hint} {diagnostic.expected}"


@pytest.mark.usefixtures("separate_registry")
def test_an_operator_of_ones_own_says_its_form() -> None:
    """The sum of the positions so far: a running total in a state."""

    @register("own_sums")
    class OwnSums(InPlaceProperty[OwnSumsParameters]):
        type_string = "own_sums"
        parameter_type = OwnSumsParameters

        def infer_shape(self, inputs: PartialShapes, outputs: PartialShapes) -> PartialInference:
            data, output = same_shape(("data", "output"), [*inputs, *outputs], "sums")
            return PartialInference([data], [output], [])

        def incremental(
            self, sequences: SequenceArguments
        ) -> IncrementalForm[OperatorProperty[Any]] | None:
            assert (sequences.axes, sequences.positions, sequences.length) == ((1,), 21, 21)
            if sequences.chunk > 1:
                return None
            return IncrementalForm(OwnTotal(self.parameters), 1, {"lhs": 0})

        def create_operator(self) -> Operator:
            return OwnSumsBody()

    class OwnTotal(OwnSums):
        def list_arguments(self) -> tuple[str, ...]:
            return ("data", "lhs")

        def infer_shape(self, inputs: PartialShapes, outputs: PartialShapes) -> PartialInference:
            names = ("data", "lhs", "output")
            *both, output = same_shape(names, [*inputs, *outputs], "total")
            return PartialInference(both, [output], [])

        def create_operator(self) -> Operator:
            return OwnTotalBody()

    own = layer("own_sums", "own", embedded(TOKENS, WIDTH))
    expected, parameters = all_positions(own, IDS, device(CpuDevice))
    found, executor = position_by_position(own, IDS, device(CpuDevice), parameters)
    np.testing.assert_allclose(found, expected, atol=1e-5)
    assert executor.plan.specs["own:lhs"].shape == (2, 1, WIDTH)
    # It has no form for chunks.
    with pytest.raises(UserError, match="own_sums 'own' needs all positions"):
        convert(own, chunk=7)


class OwnSumsParameters(Parameters):
    """No parameters."""


class OwnSumsBody(Operator):
    def forward(self, call: ForwardCall) -> None:
        call.store(output=call.inputs.data.cumsum(axis=1))


class OwnTotalBody(Operator):
    def forward(self, call: ForwardCall) -> None:
        call.store(output=call.inputs.data + call.inputs.lhs)
