"""Gradients at fixed places side by side, for the exchange between contexts.

The gradient of each trained parameter gets a pinned tensor of its own, in the order in which
backward makes them, so that gradients which are complete at the same time are adjacent.

Needs: kernels. Provides: the results `NAME:grad`, and `mutations` of pinned tensors of that name.
"""

from __future__ import annotations

from collections.abc import Mapping

from mxrun.base.device import DeviceDescription
from mxrun.graph.graph import Graph, MemoryClass, ValueId
from mxrun.graph.update_rule import accumulated
from mxrun.passes.pinned_results import PinnedTensor, pinned_results, with_early_reorders


def in_order_of_backward(graph: Graph, gradients: Mapping[str, ValueId]) -> dict[str, ValueId]:
    """Return the gradients by parameter, in the order in which the graph's steps write them."""
    written = {value: at for at, step in enumerate(graph.steps) for value in step.writes}
    names = sorted(gradients, key=lambda name: written.get(gradients[name], -1))
    return {name: gradients[name] for name in names}


def pinned_gradients(graph: Graph, names: tuple[str, ...], device: DeviceDescription) -> Graph:
    """Return the graph with the gradients of parameters `names` in pinned tensors.

    Each gradient is the graph's result `NAME:grad` in the plain layout.
    """
    graph = with_early_reorders(graph)
    gradients = {name: graph.results[accumulated(name)] for name in names}
    ordered = (accumulated(name) for name in in_order_of_backward(graph, gradients))
    targets = {name: PinnedTensor(name, MemoryClass.GRADIENTS) for name in ordered}
    return pinned_results(graph, targets, device)
