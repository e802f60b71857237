"""Elementwise maps against PyTorch, alternating in one process: `bench_scalar.py [--elements N]`.

Both write into existing tensors, on the same number of threads. The table gives the medians and the
ratio of the medians. Needs torch in the same environment.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import alternate
import numpy as np
import torch
from executors import cpu

from mxrun.operator import scalar
from mxrun.operator.native_kernel import source, target

WIDTH = 1 / math.sqrt(2 * math.pi)
ops: Any = torch.ops.aten


@dataclass(frozen=True)
class Scalar:
    """Map of (g, x, y), with input x and forward output y, and PyTorch's counterpart."""

    name: str
    function: Callable[..., Any]
    peer: Callable[[Any, Any, Any, Any], Any]


def cases() -> Iterator[Scalar]:
    """Functions of one number, backward of those that networks use, and an expression of five."""
    names = [
        *("exp", "expm1", "log", "log1p", "log2", "log10", "tanh", "sigmoid", "erf", "erfc"),
        *("sin", "cos", "tan", "arcsin", "arccos", "arctan", "sinh", "cosh"),
        *("arcsinh", "arccosh", "arctanh", "rsqrt"),
    ]
    for name in (*names, "gammaln"):
        peer = torch.lgamma if name == "gammaln" else getattr(torch, name)
        word = getattr(scalar, name)
        yield Scalar(name, lambda g, x, y, f=word: f(x), lambda g, x, y, o, f=peer: f(x, out=o))
    yield Scalar("gelu", lambda g, x, y: scalar.gelu(x), lambda g, x, y, o: ops.gelu.out(x, out=o))
    yield Scalar(
        "softplus",
        lambda g, x, y: scalar.softplus(x),
        lambda g, x, y, o: ops.softplus.out(x, 1, 20, out=o),
    )
    yield Scalar("exp_backward", lambda g, x, y: g * y, lambda g, x, y, o: torch.mul(g, y, out=o))
    yield Scalar("log_backward", lambda g, x, y: g / x, lambda g, x, y, o: torch.div(g, x, out=o))
    yield Scalar(
        "tanh_backward",
        lambda g, x, y: g * (1 - y * y),
        lambda g, x, y, o: ops.tanh_backward.grad_input(g, y, grad_input=o),
    )
    yield Scalar(
        "sigmoid_backward",
        lambda g, x, y: g * (y * (1 - y)),
        lambda g, x, y, o: ops.sigmoid_backward.grad_input(g, y, grad_input=o),
    )
    yield Scalar("erf_backward", erf_gradient, erf_gradient_peer)
    yield Scalar(
        "gelu_backward",
        gelu_gradient,
        lambda g, x, y, o: ops.gelu_backward.grad_input(g, x, grad_input=o),
    )
    yield Scalar(
        "softplus_backward",
        lambda g, x, y: g * scalar.sigmoid(x),
        lambda g, x, y, o: ops.softplus_backward.grad_input(g, x, 1, 20, grad_input=o),
    )
    yield Scalar("five operations", five, five_peer)


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
    """Run the same five operations in sequence in one tensor."""
    torch.mul(x, y, out=out).add_(0.5).tanh_().mul_(g).sub_(x)


def match(case: Scalar, elements: int) -> alternate.Match:
    """Return the map on the tape and PyTorch's, over tensors of PyTorch."""
    random = np.random.default_rng(0)
    g, x = (torch.from_numpy(random.standard_normal(elements, np.float32)) for _ in range(2))
    if case.name in ("arcsin", "arccos", "arctanh"):
        x = torch.erf(x) * 0.99
    elif case.name.startswith("log") or case.name in ("gammaln", "rsqrt"):
        x = x.abs()
    elif case.name == "arccosh":
        x = x.abs() + 1
    tensors = [g, x, torch.sigmoid(x)]
    own, peer = torch.empty(elements), torch.empty(elements)
    sources = [source(index) for index in range(len(tensors))]
    part = scalar.compile(case.function).part(
        target(0), sources, elements, device=cpu(alternate.THREADS)
    )
    run = alternate.run_of(part, tensors, [own])
    return alternate.Match(
        run, lambda: case.peer(*tensors, peer), lambda: alternate.difference(own, peer)
    )


def main() -> None:
    """Print the table."""
    parser = alternate.arguments(__doc__)
    parser.add_argument("--elements", type=int, default=3_000_000)
    options = parser.parse_args()
    named = ((case.name, partial(match, case, options.elements)) for case in cases())
    alternate.table(named, options.rounds, options.only)


if __name__ == "__main__":
    main()
