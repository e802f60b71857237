"""Size of the compute team that a network is worth, by a fixed cost model.

Nothing is measured and nothing is asked of the machine's load: the team decides the last bits of
weight gradients, so the same config must have the same team whenever this kind of machine runs it.

A step is the sum of its kernels: max(operations / speed, bytes / bandwidth) / team, and for each
kernel that is large enough for a team the threads' meeting. Backward takes as long again for each
gradient that is asked for, and an update reads and writes each parameter and its state.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from mxrun.backend.team import team_for_elements, team_for_flops
from mxrun.base.dtype import BFLOAT16
from mxrun.graph.infer import InferredSpecs
from mxrun.graph.node import Node, NodeEntry
from mxrun.graph.symbol import Symbol

# Operations per second that products reach on one core, by the instruction set's name as oneDNN
# has it, the first that the name contains; in float32 and in bfloat16.
_PRODUCTS = (
    ("avx512_core_amx", 110e9, 600e9),
    ("avx512_core_bf16", 110e9, 200e9),
    ("avx512_core_fp16", 110e9, 200e9),
    ("avx512", 110e9, 70e9),
    ("avx2", 55e9, 35e9),
)
_OTHER_PRODUCTS = 10e9, 5e9
# Bytes per second that one core moves, from caches and memory together; what so many cores move,
# more do not move faster.
_BANDWIDTH, _BANDWIDTH_CORES = 20e9, 8
# A team of two meets in 2 us where each thread has its core, and in milliseconds where another
# process has it at that moment. Counted is what keeps steps of a few tenths of a millisecond, of
# which a second thread saves a quarter at best, on one thread: beside other work those took 1 to
# 30 ms on two threads and 0.4 on one.
_MEETING_S = 20e-6
# The smallest team that is nearly as fast as the fastest is enough.
_ENOUGH = 0.9
# An update reads the parameter, its gradient and its state, and writes two of them.
_UPDATE_PASSES = 5


@dataclass(frozen=True)
class _Kernel:
    """One kernel: seconds of operations and of moving bytes on one thread, and its largest team."""

    compute_s: float
    memory_s: float
    largest: int

    def seconds(self, threads: int) -> float:
        team = min(self.largest, threads)
        shared = max(self.compute_s / team, self.memory_s / min(team, _BANDWIDTH_CORES))
        return shared + _MEETING_S * math.log2(team)


def team_for(
    symbol: Symbol,
    inference: InferredSpecs,
    trained: frozenset[str],
    instruction_set: str,
    precision: str,
    largest: int,
) -> int:
    """The smallest of the teams 1, 2, 4, ... and `largest` that has 90 % of the fastest's speed.

    trained: the parameters that a step updates; empty for inference. instruction_set: as oneDNN
    names it; empty where there is no oneDNN. precision: of products, `float32` or `bfloat16`.
    """
    kernels = [
        kernel
        for node in symbol.nodes
        for kernel in _kernels(node, inference, trained, _speed(instruction_set, precision))
    ]

    sizes = team_sizes(largest)
    seconds = {size: sum(kernel.seconds(size) for kernel in kernels) for size in sizes}
    fastest = min(seconds.values())
    return next(size for size in sizes if fastest >= _ENOUGH * seconds[size])


def team_sizes(largest: int) -> list[int]:
    """The teams to choose from: 1, 2, 4, ... and `largest`."""
    return [*(1 << power for power in range(largest.bit_length()) if 1 << power < largest), largest]


def _speed(instruction_set: str, precision: str) -> float:
    for name, float32, bfloat16 in _PRODUCTS:
        if name in instruction_set:
            return bfloat16 if precision == BFLOAT16 else float32
    return _OTHER_PRODUCTS[precision == BFLOAT16]


def _kernels(
    node: Node, inference: InferredSpecs, trained: frozenset[str], speed: float
) -> Iterator[_Kernel]:
    """The kernels of a node in one step: forward, each gradient, each update."""
    if node.prop is None:
        if node.name in trained:
            spec = inference.spec(NodeEntry(node))
            memory_s = _UPDATE_PASSES * spec.nbytes / _BANDWIDTH
            yield _Kernel(0.0, memory_s, team_for_elements(spec.elements, spec.elements))
        return
    if node.prop.is_view:
        return
    inputs = [inference.spec(entry) for entry in node.argument_entries()]
    outputs = [inference.spec(NodeEntry(node, index)) for index in range(node.num_outputs)]
    flops = node.prop.flops([spec.shape for spec in inputs], [spec.shape for spec in outputs])
    elements = sum(spec.elements for spec in outputs)
    nbytes = sum(spec.nbytes for spec in (*inputs, *outputs))
    largest = max(team_for_flops(flops, flops), team_for_elements(elements, elements))
    forward = _Kernel(flops / speed, nbytes / _BANDWIDTH, largest)
    yield forward
    if trained:
        weights = sum(entry.name in trained for entry in node.argument_entries()[:2])
        data = any(not entry.node.is_variable for entry in node.argument_entries())
        # A product's gradients are products of their own; other operators have one pass backward.
        for _ in range(weights + data if weights else data):
            yield forward
