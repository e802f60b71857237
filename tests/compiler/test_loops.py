"""Loops: a body of plain steps is planned once and repeated natively."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from loop_graphs import Place, executor_of, loop_graph, run_on

from mxrun.base.dtype import BFLOAT16, FLOAT32
from mxrun.base.errors import InternalError
from mxrun.base.tensor import TensorSpec
from mxrun.compiler.compile import compile_graphs
from mxrun.compiler.request import CompileRequest
from mxrun.device.registry import device_kind
from mxrun.executor.executor import Executor
from mxrun.graph.graph import (
    Graph,
    GraphBuilder,
    GraphLoop,
    MemoryClass,
    Slice,
    Step,
    StepKind,
    writes,
)
from mxrun.graph.infer import infer
from mxrun.graph.lower import lower
from mxrun.graph.phases import EVALUATE
from mxrun.graph.symbol import apply, fresh_names, variable
from mxrun.operator.register import create
from mxrun.planner.plan import Plan

Array = npt.NDArray[Any]

STEPS, BATCH, WIDTH, HIDDEN = 7, 3, 5, 16
SHAPES = {
    "x": (STEPS, BATCH, WIDTH),
    "history": (STEPS + 1, BATCH, HIDDEN),
    "w": (HIDDEN, WIDTH),
    "b": (HIDDEN,),
    "u": (HIDDEN, HIDDEN),
}


def cell() -> Graph:
    """Return tanh(x w' + b + state u') + state as a graph of one iteration."""
    with fresh_names():
        x, state = variable("x"), variable("state")
        w, b, u = variable("w"), variable("b"), variable("u")
        dense = {"num_hidden": HIDDEN}
        inputs = {"data": x, "weight": w, "bias": b}
        first = apply("FullyConnected", inputs, dense, "first")
        plain = {**dense, "no_bias": True}
        second = apply("FullyConnected", {"data": state, "weight": u}, plain, "second")
        total = apply("elemwise_add", {"lhs": first, "rhs": second}, name="total")
        active = apply("Activation", {"data": total}, {"act_type": "tanh"}, "active")
        symbol = apply("elemwise_add", {"lhs": active, "rhs": state}, name="next")
    shapes = {"x": (BATCH, WIDTH), "state": (BATCH, HIDDEN)}
    shapes |= {name: SHAPES[name] for name in ("w", "b", "u")}
    return lower(symbol, infer(symbol.heads, shapes), ("x", "state"), is_train=False)


def recurrence(body: Graph, count: int = STEPS, stride: int = 4 * BATCH * HIDDEN) -> Graph:
    """Return doubled = 2 x, the recurrence over it, and the negative history."""
    builder = GraphBuilder(Graph())
    kinds = {"x": MemoryClass.IO, "history": MemoryClass.IO}
    given = {
        name: builder.source(name, TensorSpec(shape), kinds.get(name, MemoryClass.PARAMETERS))
        for name, shape in SHAPES.items()
    }

    def value(name: str, like: str) -> int:
        return builder.value(name, TensorSpec(SHAPES[like]), MemoryClass.ACTIVATIONS)

    doubled, after, negative = value("doubled", "x"), value("after", "history"), 0
    negative = value("negative", "history")
    loop = GraphLoop(
        count=count,
        body=body,
        reads={
            "x": Slice(0, stride=4 * BATCH * WIDTH),
            "state": Slice(1, stride=stride),
            "w": Slice(2),
            "b": Slice(3),
            "u": Slice(4),
        },
        writes={"next_output": Slice(0, begin=stride, stride=stride)},
        inputs=tuple(TensorSpec(SHAPES[name]) for name in ("x", "history", "w", "b", "u")),
        outputs=(TensorSpec(SHAPES["history"]),),
    )

    def step(name: str, operator: str, inputs: list[int], output: int, **given: Any) -> None:
        prop = create(operator, given.get("parameters", {}))
        requests = writes((output,))
        made = Step(name, StepKind.FORWARD, prop, tuple(inputs), (output,), requests)
        builder.step(replace(made, loop=given.get("loop")))

    step("double", "_mul_scalar", [given["x"]], doubled, parameters={"scalar": 2.0})
    reads = [doubled, given["history"], given["w"], given["b"], given["u"]]
    step("cells", "_loop", reads, after, parameters={"num_inputs": 5}, loop=loop)
    builder.mutations[after] = given["history"]
    step("minus", "negative", [after], negative)
    builder.results.update(history=after, negative=negative)
    return builder.build()


def planned(kind: str, graph: Graph, **options: Any) -> Executor:
    description = device_kind(kind).describe(0, 2)
    plan = compile_graphs(
        {EVALUATE: graph},
        CompileRequest(inputs={}, phases=(EVALUATE,), device=description, **options),
    )
    return Executor(plan, device_kind(kind)(description))


def values() -> dict[str, Array]:
    random = np.random.default_rng(3)
    found = {name: random.normal(size=shape).astype(FLOAT32) for name, shape in SHAPES.items()}
    found["history"][1:] = np.nan
    return found


def expected(given: dict[str, Array]) -> Array:
    history = given["history"].copy()
    for t in range(STEPS):
        product = 2 * given["x"][t] @ given["w"].T + given["b"] + history[t] @ given["u"].T
        history[t + 1] = np.tanh(product) + history[t]
    return history


def run(executor: Executor) -> tuple[Array, Array]:
    given = values()
    for name, value in given.items():
        executor.tensor(name).write(value)
    executor.run(EVALUATE)
    found = executor.result(EVALUATE, "history").read()
    return found, executor.result(EVALUATE, "negative").read()


@pytest.mark.parametrize("kind", ["cpu", "reference"])
def test_a_recurrence_is_planned_once_and_repeated(kind: str) -> None:
    executor = planned(kind, recurrence(cell()))
    for _ in range(2):
        history, negative = run(executor)
        assert np.allclose(history, expected(values()), rtol=2e-5, atol=2e-5)
        assert np.array_equal(negative, -history)


def workspace(plan: Plan) -> int:
    (kernel,) = (s.kernel for s in plan.phases[EVALUATE].steps if s.loop is not None)
    assert kernel is not None
    return kernel.workspace_bytes


def test_the_body_has_a_liveness_of_its_own() -> None:
    shared = planned("cpu", recurrence(cell())).plan
    unshared = planned("cpu", recurrence(cell()), reuse=False, in_place=False).plan
    # Two products, their sum and its tanh are live one or two at a time.
    tensor = 4 * BATCH * HIDDEN
    assert 2 * tensor <= workspace(shared) < workspace(unshared)


def test_a_native_loop_is_one_call_of_the_tape() -> None:
    executor = planned("cpu", recurrence(cell()))
    assert [*executor.programs[EVALUATE].names].count("cells") == 1
    assert len(planned("reference", recurrence(cell())).programs[EVALUATE].names) > STEPS


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"count": STEPS + 1}, "cells: 'x' leaves the tensor 0"),
        ({"count": 0}, "cells: a loop runs at least once, not 0 times"),
        ({"stride": 4 * BATCH * HIDDEN + 64}, "cells: 'state' leaves the tensor 1"),
    ],
)
def test_slices_stay_within_their_tensors(changes: dict[str, int], message: str) -> None:
    with pytest.raises(InternalError, match=message):
        planned("cpu", recurrence(cell(), **changes))


def test_poisoned_memory_changes_nothing() -> None:
    executor = planned("cpu", recurrence(cell()))
    plain = run(executor)[0]
    for name, value in values().items():
        executor.tensor(name).write(value)
    executor.run_poisoned(EVALUATE)
    assert np.array_equal(executor.result(EVALUATE, "history").read(), plain)


ROWS, ROW = 8, 4 * BATCH * HIDDEN


def halved(count: int, read: tuple[int, int], made: tuple[int, int], mutated: bool = True) -> Graph:
    """Return a loop that writes half of what it reads, both given as (stride, begin) in bytes.

    mutated: whether it writes to the tensor that it reads.
    """
    with fresh_names():
        symbol = apply("_mul_scalar", {"data": variable("state")}, {"scalar": 0.5}, "next")
    body = lower(symbol, infer(symbol.heads, {"state": (BATCH, HIDDEN)}), ("state",), False)
    rows = TensorSpec((ROWS, BATCH, HIDDEN))
    places = {"state": Place("rows", *read)}, {"next_output": Place("after", *made)}
    if mutated:
        return loop_graph(body, count, {"rows": rows}, *places, {"after": "rows"})
    return loop_graph(body, count, {"rows": rows}, *places, outputs={"after": rows})


OVERLAPPING = {
    "both stay": (ROWS, (0, 0), (0, 0)),
    "both move": (ROWS, (ROW, 0), (ROW, 0)),
    "in part": (ROWS - 1, (ROW, 0), (ROW, 64)),
    "in a later iteration": (4, (ROW, 0), (0, 3 * ROW)),
    "in opposite directions": (ROWS, (ROW, 0), (-ROW + 64, (ROWS - 1) * ROW)),
}


@pytest.mark.parametrize("case", OVERLAPPING)
def test_an_iteration_cannot_write_where_it_reads(case: str) -> None:
    graph = halved(*OVERLAPPING[case])
    with pytest.raises(InternalError, match="loop: 'next_output' is written where 'state' is read"):
        executor_of(graph)


@pytest.mark.parametrize("case", OVERLAPPING)
def test_a_view_of_the_memory_is_the_memory(case: str) -> None:
    graph = halved(*OVERLAPPING[case])
    builder, (loop,), given = GraphBuilder(graph), graph.steps, graph.sources["rows"]
    view = builder.value("view", graph.spec(given), MemoryClass.IO)
    prop = create("Reshape", {"shape": (ROWS, BATCH, HIDDEN)})
    same = Step("same", StepKind.FORWARD, prop, (given,), (view,), writes((view,)))
    builder.steps = [same, replace(loop, inputs=(view,))]
    with pytest.raises(InternalError, match="loop: 'next_output' is written where 'state' is read"):
        executor_of(builder.build())


@pytest.mark.parametrize(
    "places",
    [
        (ROWS - 1, (ROW, 0), (ROW, ROW)),
        (ROWS - 1, (-ROW, (ROWS - 1) * ROW), (-ROW, (ROWS - 2) * ROW)),
        (3, (ROW, 0), (0, 3 * ROW)),
        (4, (ROW, 0), (-ROW, (ROWS - 1) * ROW)),
    ],
)
def test_iterations_write_what_later_ones_read(
    places: tuple[int, tuple[int, int], tuple[int, int]],
) -> None:
    rows = np.random.default_rng(1).normal(size=(ROWS, BATCH, HIDDEN)).astype(FLOAT32)
    expected = rows.copy()
    count, read, made = places
    for iteration in range(count):
        source, target = ((begin + iteration * stride) // ROW for stride, begin in (read, made))
        expected[target] = expected[source] / 2
    found = run_on(executor_of(halved(*places)), {"rows": rows})
    assert np.array_equal(found["after"], expected)


@pytest.mark.parametrize("case", ["both stay", "both move"])
def test_slices_of_other_tensors_may_have_any_places(case: str) -> None:
    count, *places = OVERLAPPING[case]
    rows = np.random.default_rng(1).normal(size=(ROWS, BATCH, HIDDEN)).astype(FLOAT32)
    found = run_on(executor_of(halved(count, *places, mutated=False)), {"rows": rows})
    assert np.array_equal(found["after"][0], rows[0] / 2)


def with_loop(graph: Graph, **changes: Any) -> Graph:
    (step,) = graph.steps
    assert step.loop is not None
    return replace(graph, steps=(replace(step, loop=replace(step.loop, **changes)),))


def test_results_have_places_of_their_own() -> None:
    graph = halved(1, (0, 0), (0, ROW))
    (step,) = graph.steps
    assert step.loop is not None
    body, place = step.loop.body, step.loop.writes["next_output"]
    value, state = body.results["next_output"], body.sources["state"]
    twice = {"writes": {"next_output": place, "again": place}}
    again = replace(body, results={"next_output": value, "again": value})
    with pytest.raises(InternalError, match="'next_output' is written where 'again' is"):
        executor_of(with_loop(graph, body=again, **twice))
    apart = {"writes": {"next_output": place, "again": replace(place, begin=2 * ROW)}}
    with pytest.raises(InternalError, match="the result 'again' of a loop has no place of its own"):
        executor_of(with_loop(graph, body=again, **apart))
    source = replace(body, results={"next_output": state})
    with pytest.raises(InternalError, match="'next_output' overwrites 'state' in the body, but no"):
        executor_of(with_loop(graph, body=source))
    changed = replace(body, mutations={value: state})
    with pytest.raises(InternalError, match="'next_output' overwrites 'state' in the body, but no"):
        executor_of(with_loop(graph, body=changed))
    with pytest.raises(InternalError, match="the body overwrites 'state', which is no result"):
        executor_of(with_loop(graph, body=changed, writes={}))


def test_an_overwritten_tensor_is_read_in_its_own_memory() -> None:
    graph = halved(2, (ROW, 0), (ROW, ROW))
    more = TensorSpec((ROWS + 1, BATCH, HIDDEN))
    with pytest.raises(InternalError, match="the output 0 overwrites a tensor of another size"):
        executor_of(with_loop(graph, outputs=(more,)))
    values = list(graph.values)
    given = graph.sources["rows"]
    values[given] = replace(values[given], spec=replace(values[given].spec, dtype=BFLOAT16))
    with pytest.raises(InternalError, match="overwrites the input 0, which is a copy in another"):
        executor_of(replace(graph, values=tuple(values)))
