"""Graphs of the forward and the backward step of a recurrence.

What backward reads of the iterations is kept for all of them: the histories of the memories, and
one tensor for each value, with a row for every iteration.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from mxrun.base.tensor import TensorSpec
from mxrun.compiler.recurrence.body import (
    BackwardRequestOfBody,
    DividedBody,
    buffer_spec,
    gradient_name,
    output_name,
)
from mxrun.compiler.recurrence.loops import (
    GivenGradients,
    MadeGradients,
    MadeTensors,
    Recurrence,
    backward_loop,
    forward_loop,
    history_name,
    last_values,
    read_arguments,
)
from mxrun.compiler.recurrence.tensors import SurroundingGraph
from mxrun.graph.graph import Graph, StepKind, ValueId


def initial_values(graph: SurroundingGraph, recurrence: Recurrence) -> dict[str, ValueId]:
    """Return the given initial values of memories, as sources."""
    return {
        memory.name: graph.source(memory.name, recurrence.block(memory))
        for memory in recurrence.prop.memories
        if memory.has_initial
    }


def forward_graph(
    recurrence: Recurrence, divided: DividedBody, keeps: bool, is_train: bool
) -> Graph:
    """Return the graph of a recurrence's forward step.

    Its sources are the arguments; its results the outputs that the body has by `output_name`, the
    final memories by name and, if it `keeps` them, what backward reads.
    """
    graph, body = SurroundingGraph(is_train, StepKind.FORWARD), divided.forward
    read = read_arguments(graph, recurrence, body.sources)
    initial = initial_values(graph, recurrence)
    carried = () if keeps else recurrence.carried
    made = forward_loop(graph, recurrence, body, read, initial, divided.kept, carried)
    results = dict(made.others)
    if keeps:
        results |= {history_name(name): value for name, value in made.histories.items()}
    for memory in (memory for memory in recurrence.prop.memories if memory.is_final):
        results[memory.name] = last_values(graph, recurrence, memory, made)
    graph.builder.results.update(results)
    return graph.builder.build()


def backward_graph(
    recurrence: Recurrence,
    divided: DividedBody,
    wanted: BackwardRequestOfBody,
    given: Collection[str],
    requested: Mapping[str, TensorSpec],
    is_train: bool,
) -> Graph:
    """Return the graph of a recurrence's backward step.

    given: names of forward's results whose gradients exist. Its sources are the arguments, what
    forward keeps, and these gradients by `gradient_name`; its results the requested gradients, by
    the names of the arguments.
    """
    graph = SurroundingGraph(is_train, StepKind.BACKWARD)
    read = read_arguments(graph, recurrence, divided.backward.sources)
    made = backward_loop(
        graph,
        recurrence,
        divided,
        wanted,
        read,
        _kept_tensors(graph, recurrence, divided),
        given_gradients(graph, recurrence, wanted, given),
    )
    add_gradients(graph, made, requested)
    return graph.builder.build()


def _kept_tensors(
    graph: SurroundingGraph, recurrence: Recurrence, divided: DividedBody
) -> MadeTensors:
    """Return what forward keeps and the backward body reads, as sources."""
    needed, histories = divided.backward.sources, {}
    for memory in recurrence.prop.memories:
        if memory.name in needed or f"{memory.name}:next" in needed:
            history = recurrence.history(memory)
            histories[memory.name] = graph.source(history_name(memory.name), history)
    others = {
        name: graph.source(
            name,
            # An output may be a view of what the body reads.
            recurrence.stacked(name)
            if name in recurrence.inner
            else buffer_spec(spec, recurrence.steps),
        )
        for name, spec in divided.kept.items()
        if not name.endswith(":next")
    }
    return MadeTensors(histories, others)


def given_gradients(
    graph: SurroundingGraph,
    recurrence: Recurrence,
    wanted: BackwardRequestOfBody,
    given: Collection[str],
) -> GivenGradients:
    """Return the gradients of the outputs, as sources, and sums that begin with zeros."""
    stacked = {
        name: graph.source(gradient_name(name), recurrence.stacked(name))
        for name in map(output_name, range(len(recurrence.prop.stacked)))
        if name in given
    }
    final = {
        memory.name: graph.source(gradient_name(memory.name), recurrence.block(memory))
        for memory in recurrence.prop.memories
        if memory.name in given
    }
    sums = {name: graph.zeros(f"{name}:zero", recurrence.arguments[name]) for name in wanted.others}
    return GivenGradients(stacked, final, sums)


def add_gradients(
    graph: SurroundingGraph, made: MadeGradients, requested: Mapping[str, TensorSpec]
) -> None:
    """Make the requested gradients the results of a graph; those that nothing gives are zeros."""
    known = {**made.sequences, **made.initial, **made.sums}
    graph.builder.results.update(
        {
            name: known[name] if name in known else graph.zeros(gradient_name(name), spec)
            for name, spec in requested.items()
        }
    )
