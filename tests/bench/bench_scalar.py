"""Elementwise maps against PyTorch, alternating in one process: `bench_scalar.py [--elements N]`.

Both write into tensors that exist, on the same number of threads. Every case takes turns with its
counterpart; the table gives the medians and the ratio of the medians. Needs torch beside mxrun.
"""

from __future__ import annotations

import argparse
import math
import os
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

# Both sides bring a team, and a team that waits must not keep the cores from the other.
os.environ.setdefault("GOMP_SPINCOUNT", "2000")

import numpy as np
import torch

from mxrun.executor.tape import Tape, TapeEntry
from mxrun.operator import scalar
from mxrun.operator.kernel import Buffers
from mxrun.operator.native_kernel import source, target

THREADS = 2
WIDTH = 1 / math.sqrt(2 * math.pi)
ops: Any = torch.ops.aten


@dataclass(frozen=True)
class Case:
    """A map of (g, x, y), x the input and y the forward output, and PyTorch's way to do it."""

    name: str
    function: Callable[..., Any]
    peer: Callable[[Any, Any, Any, Any], Any]


def cases() -> Iterator[Case]:
    """Forward and backward of the functions that networks use, and an expression of five."""
    for name in ("exp", "log", "tanh", "sigmoid", "erf"):
        peer = getattr(torch, name)
        word = getattr(scalar, name)
        yield Case(name, lambda g, x, y, f=word: f(x), lambda g, x, y, o, f=peer: f(x, out=o))
    yield Case("gelu", lambda g, x, y: scalar.gelu(x), lambda g, x, y, o: ops.gelu.out(x, out=o))
    yield Case(
        "softplus",
        lambda g, x, y: scalar.softplus(x),
        lambda g, x, y, o: ops.softplus.out(x, 1, 20, out=o),
    )
    yield Case("exp_backward", lambda g, x, y: g * y, lambda g, x, y, o: torch.mul(g, y, out=o))
    yield Case("log_backward", lambda g, x, y: g / x, lambda g, x, y, o: torch.div(g, x, out=o))
    yield Case(
        "tanh_backward",
        lambda g, x, y: g * (1 - y * y),
        lambda g, x, y, o: ops.tanh_backward.grad_input(g, y, grad_input=o),
    )
    yield Case(
        "sigmoid_backward",
        lambda g, x, y: g * (y * (1 - y)),
        lambda g, x, y, o: ops.sigmoid_backward.grad_input(g, y, grad_input=o),
    )
    yield Case("erf_backward", erf_gradient, erf_gradient_peer)
    yield Case(
        "gelu_backward",
        gelu_gradient,
        lambda g, x, y, o: ops.gelu_backward.grad_input(g, x, grad_input=o),
    )
    yield Case(
        "softplus_backward",
        lambda g, x, y: g * scalar.sigmoid(x),
        lambda g, x, y, o: ops.softplus_backward.grad_input(g, x, 1, 20, grad_input=o),
    )
    yield Case("five operations", five, five_peer)


def erf_gradient(g: Any, x: Any, y: Any) -> Any:
    """g * 2 / sqrt(pi) * e^(-x^2)."""
    return g * (scalar.exp(-x * x) * (2 / math.sqrt(math.pi)))


def erf_gradient_peer(g: Any, x: Any, y: Any, out: Any) -> None:
    """PyTorch's derivative formula, with its temporaries in one tensor."""
    torch.mul(x, x, out=out).neg_().exp_().mul_(2 / math.sqrt(math.pi)).mul_(g)


def gelu_gradient(g: Any, x: Any, y: Any) -> Any:
    """g * (P(a normal variable < x) + x * its density)."""
    density = scalar.exp(x * x * -0.5) * WIDTH
    return g * (0.5 + 0.5 * scalar.erf(x * math.sqrt(0.5)) + x * density)


def five(g: Any, x: Any, y: Any) -> Any:
    """g * tanh(x * y + 0.5) - x."""
    return g * scalar.tanh(x * y + 0.5) - x


def five_peer(g: Any, x: Any, y: Any, out: Any) -> None:
    """The same five operations, one after the other in one tensor."""
    torch.mul(x, y, out=out).add_(0.5).tanh_().mul_(g).sub_(x)


def bound(function: Callable[..., Any], tensors: list[Any], out: Any) -> Tape:
    """The map on the tape, over tensors of PyTorch's."""
    part = scalar.compile(function).part(
        target(0), [source(i) for i in range(len(tensors))], out.numel(), threads=THREADS
    )
    buffers = Buffers(tuple(t.data_ptr() for t in tensors), (out.data_ptr(),))
    return Tape([TapeEntry("map", call) for call in part.calls(buffers, 0)])


def seconds(run: Callable[[], Any], repeat: int) -> float:
    """Time of one call, the best of three after each other, when the other side's team sleeps."""
    times = []
    time.sleep(0.001)
    for _ in range(3):
        begin = time.perf_counter()
        for _ in range(repeat):
            run()
        times.append((time.perf_counter() - begin) / repeat)
    return min(times)


def main() -> None:
    """Print a line for each case."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--elements", type=int, default=3_000_000)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--only", default="")
    arguments = parser.parse_args()
    torch.set_num_threads(THREADS)
    count, repeat = arguments.elements, max(1, 30_000 // arguments.elements)
    random = np.random.default_rng(0)
    g, x = (torch.from_numpy(random.standard_normal(count, np.float32)) for _ in range(2))
    print(f"{'':20}{'mxrun us':>10}{'PyTorch us':>12}{'ratio':>8}{'best':>8}{'error':>10}")
    for case in cases():
        if arguments.only not in case.name:
            continue
        data = x.abs() if case.name.startswith("log") else x
        y, mine, theirs = torch.sigmoid(data), torch.empty(count), torch.empty(count)
        tape = bound(case.function, [g, data, y], mine)
        pairs = []
        for _ in range(arguments.rounds):
            own = seconds(tape.run, repeat)
            peer = seconds(lambda c=case, d=data, y=y, o=theirs: c.peer(g, d, y, o), repeat)
            pairs.append((own, peer))
        own, peer = (statistics.median(column) * 1e6 for column in zip(*pairs, strict=True))
        fastest = [min(column) for column in zip(*pairs, strict=True)]
        error = float((mine - theirs).abs().max())
        print(
            f"{case.name:20}{own:10.1f}{peer:12.1f}{peer / own:8.2f}"
            f"{fastest[1] / fastest[0]:8.2f}{error:10.1e}"
        )


if __name__ == "__main__":
    main()
