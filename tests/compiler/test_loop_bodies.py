"""Bodies of loops: whatever a body consists of, its iterations compute what it computes alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from loop_graphs import (
    LOOP,
    UNSHARED,
    Arrays,
    Place,
    executor_of,
    interpreted,
    loop_graph,
    loop_kernel,
    run_on,
    run_poisoned,
)
from networks import chain, same_bits

from mxrun.base.dtype import BFLOAT16, FLOAT32, numpy_dtype
from mxrun.base.errors import InternalError
from mxrun.base.layer_options import LayerOptions
from mxrun.base.tensor import TensorSpec
from mxrun.compiler import compile as compiler
from mxrun.device.cpu.onednn import library
from mxrun.graph.gradient import gradient
from mxrun.graph.graph import Graph
from mxrun.graph.infer import infer
from mxrun.graph.lower import lower
from mxrun.graph.phases import EVALUATE
from mxrun.graph.symbol import Symbol, apply, fresh_names, variable
from mxrun.operator.kernel import Candidate, Kernels
from mxrun.passes.precision import precision
from mxrun.passes.updates import accumulate
from mxrun.planner.hint import ADD_TO
from mxrun.planner.plan import PhasePlan

COUNT, BATCH, HIDDEN = 4, 3, 16
STATE = 4 * BATCH * HIDDEN
needs_onednn = pytest.mark.skipif(library.load() is None, reason=library.reason())


def dense(symbol: Symbol, name: str) -> Symbol:
    layer = {"num_hidden": HIDDEN, "no_bias": True}
    return chain(symbol, ("FullyConnected", layer, name))


def act(symbol: Symbol, kind: str, name: str) -> Symbol:
    return chain(symbol, ("Activation", {"act_type": kind}, name))


def both(operator: str, left: Symbol, right: Symbol, name: str) -> Symbol:
    return apply(operator, {"lhs": left, "rhs": right}, {}, name)


def lowered(symbol: Symbol, shapes: Mapping[str, tuple[int, ...]], is_train: bool = False) -> Graph:
    return lower(symbol, infer(symbol.heads, dict(shapes)), tuple(shapes), is_train)


def cell() -> Graph:
    """Return an iteration with tensors of which some live long and others shortly."""
    with fresh_names():
        gate = act(dense(variable("x"), "gate"), "sigmoid", "gate_sigmoid")
        hidden = variable("state")
        for layer in range(3):
            hidden = act(dense(hidden, f"layer{layer}"), "tanh", f"tanh{layer}")
        product = both("elemwise_mul", gate, hidden, "product")
        symbol = both("elemwise_add", product, gate, "next")
    return lowered(symbol, {"x": (BATCH, HIDDEN), "state": (BATCH, HIDDEN)})


def recurrence(body: Graph, count: int = COUNT, dtype: str = FLOAT32) -> Graph:
    """Return the recurrence of a body from `state` to `next_output`."""
    weights = {name: body.spec(v) for name, v in body.sources.items() if "weight" in name}
    return loop_graph(
        body,
        count,
        {
            "xs": TensorSpec((COUNT, BATCH, HIDDEN)),
            "history": TensorSpec((COUNT + 1, BATCH, HIDDEN), dtype),
            **weights,
        },
        {
            "x": Place("xs", STATE),
            "state": Place("history", STATE),
            **{name: Place(name) for name in weights},
        },
        {"next_output": Place("after", STATE, STATE)},
        {"after": "history"},
    )


def random_values(graph: Graph) -> Arrays:
    """Return values of the sources; rows of a history that the loop writes are NaN."""
    random = np.random.default_rng(5)
    found = {}
    for name, value in graph.sources.items():
        spec = graph.spec(value)
        found[name] = random.normal(size=spec.shape).astype(numpy_dtype(spec.dtype))
    if "history" in found:
        found["history"][..., 1:, :, :] = np.nan
    return found


def assert_as_interpreted(graph: Graph, kind: str = "cpu", **options: Any) -> PhasePlan:
    """Check a loop bit for bit against its body alone, poisoned and not; return the body's plan."""
    given = random_values(graph)
    expected = interpreted(graph, given, kind)
    assert all(np.isfinite(array).all() for array in expected.values())
    executor = executor_of(graph, kind, **options)
    for _ in range(2):
        assert same_bits(run_on(executor, given), expected)
    assert same_bits(run_poisoned(executor, given), expected)
    return loop_kernel(executor.plan).body


@pytest.mark.parametrize("kind", ["cpu", "reference"])
@pytest.mark.parametrize("options", [{}, {"in_place": False}, {"order": "depth-first"}, UNSHARED])
def test_the_memory_that_a_body_reuses_changes_nothing(kind: str, options: dict[str, Any]) -> None:
    body = assert_as_interpreted(recurrence(cell()), kind, **options)
    if options.get("reuse", True):
        assert body.reusable_bytes < sum(block.nbytes for block in body.blocks)


def test_a_body_whose_tensors_overlap_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plan all tensors of the body in the same place: then the comparison above must fail."""
    graph, place = recurrence(cell()), compiler.place

    def placed(name: str, body: Graph, storage: Any, pinned: Any, reuse: bool = True) -> PhasePlan:
        plan = place(name, body, storage, pinned, reuse)
        base = sum(block.nbytes for block in pinned)
        if any(block.name.endswith(":slot") for block in pinned):
            offsets = {value: min(offset, base) for value, offset in plan.offsets.items()}
            return replace(plan, offsets=offsets)
        return plan

    monkeypatch.setattr(compiler, "place", placed)
    with pytest.raises(AssertionError):
        assert_as_interpreted(graph)


def test_a_block_that_is_dead_too_early_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    graph, place = recurrence(cell()), compiler.place

    def placed(*arguments: Any) -> PhasePlan:
        plan = place(*arguments)
        early = tuple(replace(block, last=block.first + 1) for block in plan.blocks)
        return replace(plan, blocks=early)

    monkeypatch.setattr(compiler, "place", placed)
    given = random_values(graph)
    executor = executor_of(graph)
    assert np.isfinite(run_on(executor, given)["after"]).all()
    assert not np.isfinite(run_poisoned(executor, given)["after"]).all()


def backward(symbol: Symbol, shapes: Mapping[str, tuple[int, ...]], names: list[str]) -> Graph:
    """Return the gradients of the named sources, each a result `NAME_grad`."""
    found = gradient(lowered(symbol, shapes, is_train=True), names)
    gradients = {f"{name}_grad": value for name, value in found.gradients.items()}
    return found.graph.with_results(gradients)


def regression(symbol: Symbol) -> Symbol:
    label = variable("label")
    return apply("LinearRegressionOutput", {"data": symbol, "label": label}, {}, "loss")


@pytest.mark.parametrize("kind", ["cpu", "reference"])
def test_a_result_that_is_a_sum_of_gradients_leaves_the_loop(kind: str) -> None:
    """An add-to request would put the sum into the memory of its first summand."""
    with fresh_names():
        x = variable("x")
        product = both("elemwise_mul", act(x, "tanh", "left"), act(x, "sigmoid", "right"), "both")
        symbol = regression(product)
    shape = (BATCH, HIDDEN)
    body = backward(symbol, {"x": shape, "label": shape}, ["x"])
    rows = TensorSpec((COUNT, *shape))
    graph = loop_graph(
        body,
        COUNT,
        {"xs": rows, "labels": rows},
        {"x": Place("xs", STATE), "label": Place("labels", STATE)},
        {"x_grad": Place("grads", STATE)},
        outputs={"grads": rows},
    )
    plan = assert_as_interpreted(graph, kind)
    (hint,) = (hint for hint in plan.hints if hint.kind == ADD_TO)
    assert hint.reason == "loop/x_grad_sum overwrites x_grad:slot"


def convolutions() -> tuple[Graph, dict[str, tuple[int, ...]]]:
    """Return the gradients of two convolutions, each added to a running sum, and the shapes."""
    window = {"kernel": (3, 3), "pad": (1, 1), "no_bias": True}
    shapes = {"x": (2, 3, 9, 9), "label": (2, 5, 9, 9)}
    with fresh_names():
        layers = (
            ("Convolution", {"num_filter": 8, **window}, "conv1"),
            ("Activation", {"act_type": "tanh"}, "tanh"),
            ("Convolution", {"num_filter": 5, **window}, "conv2"),
        )
        symbol = regression(chain(variable("x"), *layers))
    names = ["conv1_weight", "conv2_weight"]
    differentiated = backward(symbol, shapes, names)
    gradients = {name: differentiated.results[f"{name}_grad"] for name in names}
    graph, sums = accumulate(differentiated, gradients)
    body = replace(graph, results={f"{name}_sum": value for name, value in sums.items()})
    return body, shapes


def summing_convolutions() -> Graph:
    """Return the gradients of two convolutions, summed over the iterations in place."""
    body, shapes = convolutions()
    specs = {name: body.spec(value) for name, value in body.sources.items()}
    strides = {name: specs[name].nbytes for name in shapes}
    sources = {
        name: TensorSpec((COUNT, *spec.shape)) if name in shapes else spec
        for name, spec in specs.items()
    }
    sums = {name: f"{name}_total" for name in sources if name.endswith(":grad")}
    return loop_graph(
        body,
        COUNT,
        sources,
        {name: Place(name, strides.get(name, 0)) for name in sources},
        {f"{name.removesuffix(':grad')}_sum": Place(total) for name, total in sums.items()},
        {total: name for name, total in sums.items()},
    )


@needs_onednn
def test_primitives_with_scratch_memory_run_in_one_body() -> None:
    plan = assert_as_interpreted(summing_convolutions())
    kernels = {step.name: step.kernel for step in plan.steps if step.kernel is not None}
    native = [name for name, each in kernels.items() if each.implementation.startswith("onednn")]
    assert len(native) >= 4
    assert any(kernels[name].workspace_bytes for name in native)


@pytest.mark.parametrize("kind", ["cpu", "reference"])
def test_a_state_that_every_iteration_overwrites_is_declared_by_the_body(kind: str) -> None:
    graph = summing_convolutions()
    assert_as_interpreted(graph, kind)
    (step,) = graph.steps
    assert step.loop is not None
    undeclared = replace(step.loop, body=replace(step.loop.body, mutations={}))
    with pytest.raises(InternalError, match="'conv1_weight_sum' is written where 'conv1_weight:gr"):
        executor_of(replace(graph, steps=(replace(step, loop=undeclared),)), kind)


def test_a_body_may_have_Python_and_native_steps() -> None:
    body = cell()
    steps = tuple(
        replace(step, options=LayerOptions("numpy")) if step.name in ("tanh1", "product") else step
        for step in body.steps
    )
    graph = recurrence(replace(body, steps=steps))
    plan = assert_as_interpreted(graph)
    names = plan.implementations()
    assert names["loop/tanh1"] == names["loop/product"] == "numpy"
    assert "numpy" not in {names["loop/tanh0"], names["loop/next"]}
    assert [*executor_of(graph).programs[EVALUATE].names].count(LOOP) > COUNT


@pytest.mark.parametrize("kind", ["cpu", "reference"])
@pytest.mark.parametrize("python", [False, True])
def test_loops_may_be_nested(kind: str, python: bool) -> None:
    outer_count = 3
    body = cell()
    if python:
        steps = tuple(replace(step, options=LayerOptions("numpy")) for step in body.steps)
        body = replace(body, steps=steps)
    inner = recurrence(body)
    specs = {name: inner.spec(value) for name, value in inner.sources.items()}
    strides = {name: specs[name].nbytes for name in ("xs", "history")}
    graph = loop_graph(
        inner,
        outer_count,
        {
            name: TensorSpec((outer_count, *spec.shape)) if name in strides else spec
            for name, spec in specs.items()
        },
        {name: Place(name, strides.get(name, 0)) for name in specs},
        {"after": Place("all", strides["history"])},
        {"all": "history"},
    )
    given = random_values(graph)
    executor = executor_of(graph, kind)
    found = run_on(executor, given)["all"]
    for row in range(outer_count):
        own = given | {name: given[name][row] for name in strides}
        assert same_bits({"after": found[row]}, interpreted(inner, own, kind))
    assert_as_interpreted(graph, kind)
    assert "loop/loop/product" in executor.plan.phases[EVALUATE].implementations()


@pytest.mark.parametrize("kind", ["cpu", "reference"])
def test_a_body_computes_in_bfloat16_between_float32_tensors(kind: str) -> None:
    body = precision(cell(), BFLOAT16)
    assert body.spec(body.results["next_output"]).dtype == BFLOAT16
    plan = assert_as_interpreted(recurrence(body), kind)
    dtypes = {plan.graph.spec(value).dtype for step in plan.steps for value in step.writes}
    assert dtypes == {FLOAT32, BFLOAT16}


@pytest.mark.parametrize("kind", ["cpu", "reference"])
def test_a_body_has_the_dtypes_of_the_tensors_around_it(kind: str) -> None:
    """Selection widens bfloat16 results to float32, which are twice as large."""
    body = precision(cell(), BFLOAT16)
    state = body.sources["state"]
    values = list(body.values)
    values[state] = replace(values[state], spec=TensorSpec((BATCH, HIDDEN), BFLOAT16))
    graph = recurrence(replace(body, values=tuple(values)), dtype=BFLOAT16)
    (step,) = graph.steps
    assert step.loop is not None
    half = {
        "reads": dict(step.loop.reads) | {"state": replace(step.loop.reads["state"], stride=96)},
        "writes": {"next_output": replace(step.loop.writes["next_output"], begin=96, stride=96)},
    }
    graph = replace(graph, steps=(replace(step, loop=replace(step.loop, **half)),))
    message = "loop: 'next_output' is float32, but the tensor 0 is bfloat16"
    with pytest.raises(InternalError, match=message):
        executor_of(graph, kind)


@needs_onednn
def test_the_choices_of_a_body_have_names_of_their_own() -> None:
    asked: list[str] = []

    def last_is_fastest(question: str, candidates: Mapping[str, Kernels]) -> dict[str, Candidate]:
        asked.append(question)
        kernels = {name: next(iter(prepare())) for name, prepare in candidates.items()}
        last = [*kernels][-1]
        return {n: Candidate(k.implementation, 2.0 - (n == last)) for n, k in kernels.items()}

    def chosen(**options: Any) -> dict[str, str]:
        return executor_of(graph, **options).plan.phases[EVALUATE].implementations()

    graph, auto = summing_convolutions(), {"implementation": "auto", "chooser": last_is_fastest}
    preferred, timed = chosen(), chosen(**auto)
    assert timed.keys() == preferred.keys()
    assert timed != preferred
    assert asked
    asked.clear()
    assert chosen(**auto, autotuned={EVALUATE: timed}) == timed
    assert asked == []
    # Steps of the enclosing graph may be named like those of the body.
    others = {name.removeprefix("loop/"): each for name, each in timed.items()}
    assert chosen(autotuned={EVALUATE: others}) == preferred
