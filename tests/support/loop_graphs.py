"""Graphs with one loop, its interpretation, and its run over poisoned memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from mxrun import library
from mxrun.base.dtype import numpy_dtype
from mxrun.base.tensor import TensorSpec, align
from mxrun.compiler.compile import compile_graphs
from mxrun.compiler.request import CompileRequest
from mxrun.device.interface import ProgramStep
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
from mxrun.graph.phases import EVALUATE
from mxrun.operator.launch import Handle, Launch, PythonLaunch, Repeat, Views
from mxrun.operator.register import create
from mxrun.planner.plan import LoopKernel, Plan

library.load()

Array = npt.NDArray[Any]
Arrays = dict[str, Array]
UNSHARED = {"reuse": False, "in_place": False, "add_to": False, "join": False}
LOOP = "loop"


class Place(NamedTuple):
    """Place of a body's tensor: a tensor of the enclosing graph; stride and begin as in Slice."""

    tensor: str
    stride: int = 0
    begin: int = 0


def loop_graph(
    body: Graph,
    count: int,
    sources: Mapping[str, TensorSpec],
    reads: Mapping[str, Place],
    made: Mapping[str, Place],
    overwritten: Mapping[str, str] | None = None,
    outputs: Mapping[str, TensorSpec] | None = None,
) -> Graph:
    """Return a graph with one step, a loop.

    sources: the tensors that the loop reads. reads, made: places of the body's sources and results.
    overwritten: by output, the source that it is a new version of. outputs: specs of the others.
    """
    builder = GraphBuilder(Graph(is_train=body.is_train))
    given = {name: builder.source(name, spec, MemoryClass.IO) for name, spec in sources.items()}
    overwritten = overwritten or {}
    specs = {name: sources[old] for name, old in overwritten.items()} | dict(outputs or {})
    after = {
        name: builder.value(name, spec, MemoryClass.ACTIVATIONS) for name, spec in specs.items()
    }
    builder.mutations.update({after[name]: given[old] for name, old in overwritten.items()})

    def slices(places: Mapping[str, Place], tensors: Mapping[str, int]) -> dict[str, Slice]:
        numbers = {name: number for number, name in enumerate(tensors)}
        return {
            name: Slice(numbers[place.tensor], place.begin, place.stride)
            for name, place in places.items()
        }

    loop = GraphLoop(
        count=count,
        body=body,
        reads=slices(reads, given),
        writes=slices(made, after),
        inputs=tuple(sources.values()),
        outputs=tuple(specs.values()),
    )
    parameters = {"num_inputs": len(given), "num_outputs": len(after)}
    values = tuple(after.values())
    prop, inputs = create("_loop", parameters), tuple(given.values())
    step = Step(LOOP, StepKind.FORWARD, prop, inputs, values, writes(values), loop=loop)
    builder.step(step)
    builder.results.update(after)
    return builder.build()


def executor_of(graph: Graph, kind: str = "cpu", **options: Any) -> Executor:
    """Return an executor of a graph as the phase EVALUATE, for two threads."""
    description = device_kind(kind).describe(0, 2)
    request = CompileRequest(inputs={}, phases=(EVALUATE,), device=description, **options)
    return Executor(compile_graphs({EVALUATE: graph}, request), device_kind(kind)(description))


def loop_kernel(plan: Plan) -> LoopKernel:
    """Return the kernel of a plan's only loop."""
    (kernel,) = (step.kernel for step in plan.phases[EVALUATE].steps if step.loop is not None)
    assert isinstance(kernel, LoopKernel)
    return kernel


def run_on(executor: Executor, given: Arrays) -> Arrays:
    """Write the given tensors, run, and return all results."""
    return _run(executor, given, partial(executor.run, EVALUATE))


def run_poisoned(executor: Executor, given: Arrays) -> Arrays:
    """Run like `run_on`, with the memory of the loop's body poisoned as soon as it is dead."""
    phase, launches = executor.plan.phases[EVALUATE], []
    for step in phase.steps:
        assert step.kernel is not None
        handles = phase.handles(step, partial(Handle, executor.memory))
        bound = step.kernel.bind(handles)
        if isinstance(step.kernel, LoopKernel):
            (repeat,) = bound
            assert isinstance(repeat, Repeat)
            assert handles.workspace is not None
            bound = (_poisoned(step.kernel, repeat, handles.workspace.within(0)),)
        launches.append(ProgramStep(step.name, bound))
    return _run(executor, given, executor.device.bind(launches).run)


def _run(executor: Executor, given: Arrays, run: Callable[[], None]) -> Arrays:
    for name, value in given.items():
        executor.tensor(name).write(value)
    run()
    results = executor.plan.phases[EVALUATE].graph.results
    return {name: executor.result(EVALUATE, name).read() for name in results}


def _poisoned(kernel: LoopKernel, repeat: Repeat, workspace: Handle) -> Repeat:
    """Return the loop, which fills all blocks with NaN at first and each after its last step."""
    body, waiting = kernel.body, list(repeat.program)
    pinned_bytes = sum(align(body.graph.spec(v).nbytes) for v in body.graph.sources.values())
    program: list[Launch] = [_fill(workspace, kernel.workspace_bytes)]
    for number, step in enumerate(body.steps, 1):
        assert step.kernel is not None
        for _ in step.kernel.bind(body.handles(step, lambda offset: workspace)):
            program.append(waiting.pop(0))
        for block in body.blocks:
            if block.last == number:
                program.append(_fill(workspace + (block.offset - pinned_bytes), block.nbytes))
    assert not waiting
    return replace(repeat, program=tuple(program))


def _fill(handle: Handle, nbytes: int) -> PythonLaunch:
    def prepare(views: Views) -> Callable[[], None]:
        return partial(views(handle, TensorSpec((nbytes,), "uint8")).fill, 0xFF)

    return PythonLaunch(prepare)


def interpreted(graph: Graph, given: Arrays, kind: str = "cpu") -> Arrays:
    """Return the results of a graph whose only step is a loop: its body runs on its own.

    The body is planned without any sharing of memory, and slices are copied.
    """
    (step,) = graph.steps
    loop = step.loop
    assert loop is not None
    executor = executor_of(loop.body, kind, **UNSHARED)
    results = executor.plan.phases[EVALUATE].graph
    memory = {value: given[name].copy() for name, value in graph.sources.items()}
    for value in step.writes:
        spec = graph.spec(value)
        old = graph.mutations.get(value)
        made = np.zeros(spec.shape, numpy_dtype(spec.dtype)) if old is None else memory[old]
        memory[value] = made
    for iteration in range(loop.count):

        def part(tensors: tuple[int, ...], place: Slice, spec: TensorSpec) -> Array:
            first = place.begin + iteration * place.stride  # noqa: B023
            nbytes = memory[tensors[place.tensor]].reshape(-1).view(np.uint8)
            own = nbytes[first : first + spec.nbytes].view(numpy_dtype(spec.dtype))
            return own.reshape(spec.shape)

        for name, place in loop.reads.items():
            spec = loop.body.spec(loop.body.sources[name])
            executor.tensor(name).write(part(step.reads, place, spec))
        executor.run(EVALUATE)
        for name, place in loop.writes.items():
            spec = results.spec(results.results[name])
            part(step.writes, place, spec)[...] = executor.result(EVALUATE, name).read()
    return {name: memory[value] for name, value in graph.results.items()}
