"""Size of the thread team for a network, by a fixed cost model.

The model uses no measurement and ignores the machine's load. The team size decides the last bits of
weight gradients, so the same config must get the same team on every machine of this kind.

The time of a step is the sum over its kernels of max(operations / speed, bytes / bandwidth) / team,
plus a synchronisation cost for each kernel that is large enough for a team. Backward takes the time
of forward once per requested gradient. An update reads and writes each parameter and its state.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from mxrun.base.device import team_for_elements, team_for_flops
from mxrun.base.dtype import BFLOAT16
from mxrun.graph.infer import InferredSpecs
from mxrun.graph.node import Node, NodeEntry
from mxrun.graph.symbol import Symbol

# Operations per second of products on one core, in float32 and in bfloat16, by the
# instruction set; the first entry contained in its name applies.
_PRODUCTS = (
    ("avx512_core_amx", 110e9, 600e9),
    ("avx512_core_bf16", 110e9, 200e9),
    ("avx512_core_fp16", 110e9, 200e9),
    ("avx512", 110e9, 70e9),
    ("avx2", 55e9, 35e9),
)
_OTHER_PRODUCTS = 10e9, 5e9
# Bytes per second of one core, from caches and memory together, and the number of cores beyond
# which the bandwidth does not grow.
_BANDWIDTH, _BANDWIDTH_CORES = 20e9, 8
# Synchronisation cost. A team of two synchronises in 2 us if each thread has its own core, and in
# milliseconds if another process occupies one. The value keeps steps of a few tenths of a
# millisecond, of which a second thread saves a quarter at best, on one thread: beside other
# processes they took 1 to 30 ms on two threads and 0.4 ms on one.
_MEETING_S = 20e-6
# Fraction of the fastest team's speed at which a smaller team is preferred.
_ENOUGH = 0.9
# An update reads the parameter, its gradient and its state, and writes two of them.
_UPDATE_PASSES = 5


@dataclass(frozen=True)
class _Kernel:
    """Seconds of a kernel's operations and memory traffic on one thread, and its largest team."""

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
    """Return the smallest team of `team_sizes` with at least 90 % of the fastest team's speed.

    trained: the parameters that a step updates; empty for inference. instruction_set: the
    device's; empty if its kernels use none. precision: dtype of products, `float32` or `bfloat16`.
    largest: the largest team allowed.
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
    """Return the candidate team sizes: 1, 2, 4, ... and `largest`."""
    return [*(1 << power for power in range(largest.bit_length()) if 1 << power < largest), largest]


def _speed(instruction_set: str, precision: str) -> float:
    for name, float32, bfloat16 in _PRODUCTS:
        if name in instruction_set:
            return bfloat16 if precision == BFLOAT16 else float32
    return _OTHER_PRODUCTS[precision == BFLOAT16]


def _kernels(
    node: Node, inference: InferredSpecs, trained: frozenset[str], speed: float
) -> Iterator[_Kernel]:
    """Yield the kernels of a node in one step: forward, each gradient, each update."""
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
        # Each gradient of a product is a product itself; other operators have one backward pass.
        for _ in range(weights + data if weights else data):
            yield forward
