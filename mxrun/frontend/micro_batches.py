"""Check that a network's batches can be split, as `memory.micro_batches` requests."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from mxrun.base.errors import Diagnostic, UserError
from mxrun.config import RunOptions
from mxrun.frontend.model import Model
from mxrun.graph.node import Node, NodeEntry
from mxrun.operator.property import ResourceKind

_HINT = "leave memory.micro_batches out: memory.budget alone recomputes forward steps"


def micro_batch_problems(options: RunOptions, model: Model) -> list[Diagnostic]:
    """Return diagnostics if gradients of micro-batches would not add up to the batch's.

    They name the first layer that prevents it. Empty if the config does not request micro-batches.
    """
    if not options.memory.micro_batches:
        return []
    place = options.key_place("memory", "micro_batches")
    if options.memory.budget is None:
        return [
            Diagnostic(
                "memory.micro_batches splits batches to fit into memory.budget, which is not given",
                place=place,
                hint="add a budget, such as memory.budget=50%, or leave memory.micro_batches out",
            )
        ]
    try:
        twice = model.resized(2 * model.batch_size)
    except UserError as error:
        return one_batch_size(error, "memory.micro_batches", _HINT)
    problem = "memory.micro_batches cannot split the batches of this network"
    return coupled(coupling(model, twice), Diagnostic(problem, place, hint=_HINT))


def one_batch_size(error: UserError, key: str, hint: str) -> list[Diagnostic]:
    """Return the diagnostics of a network that cannot be built with another batch size.

    key: of the config, which needs that.
    """
    return one_size(error, key, "batch size", hint)


def one_size(error: UserError, key: str, size: str, hint: str) -> list[Diagnostic]:
    """Return the diagnostics of a network that cannot be built with another size of its inputs."""
    return [
        replace(each, problem=f"{key}: a layer requires one {size}: {each.problem}", hint=hint)
        for each in error.diagnostics
    ]


def coupled(layers: Iterable[tuple[Node, str]], problem: Diagnostic) -> list[Diagnostic]:
    """Return the problem with the first of the layers that cause it; nothing without layers.

    layers: each with the reason.
    """
    found = list(layers)
    if not found:
        return []
    node, reason = found[0]
    more = f", and {len(found) - 1} more layers" if len(found) > 1 else ""
    got = f"{node.place}: {node.operator} {node.name!r}{more}"
    return [replace(problem, problem=f"{problem.problem}: {reason}", got=got)]


def coupling(
    model: Model, twice: Model, may_mix: bool = False, may_carry: bool = False
) -> Iterator[tuple[Node, str]]:
    """Yield the layers whose outputs depend on several samples, and the reason.

    twice: the model with twice the batch size. may_mix: leave out the layers that mix samples in
    training without changing the shapes of outputs. may_carry: leave out those that carry states.
    """
    sampled = {*model.inputs}
    for node in model.symbol.nodes:
        if node.prop is None or not any(entry.node.name in sampled for entry in node.inputs):
            continue
        sampled.add(node.name)
        if node.prop.list_carried_states() and not may_carry:
            yield node, "the layer carries a state of all samples to the next batch"
            continue
        if node.prop.mixes_samples and not may_mix:
            yield node, "in training the layer mixes the samples of a batch"
            continue
        arguments = [model.inference.spec(entry) for entry in node.argument_entries()]
        requests = node.prop.forward_resource(arguments)
        draws = any(request.kind is ResourceKind.RANDOM for request in requests)
        # Hidden outputs, such as statistics, count only if they are random numbers.
        for index in range(node.num_outputs if draws else node.prop.num_visible_outputs):
            entry = NodeEntry(node, index)
            now, then = (each.inference.spec(entry) for each in (model, twice))
            if index != node.prop.loss_output and then.elements != 2 * now.elements:
                yield node, f"the layer computes {list(now.shape)} from all samples of a batch"
                break
