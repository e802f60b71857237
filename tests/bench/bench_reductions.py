"""Reductions, scans, updates and broadcasting against PyTorch: `bench_reductions.py --only NAME`.

Every case alternates with its counterpart in one process. The table gives the medians, their ratio
and the ratio of the best times. The gradients of PyTorch are its formulas, written into an existing
tensor. Needs torch in the same environment.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import alternate
import torch

ops: Any = torch.ops.aten
Shape = tuple[int, ...]
Axes = tuple[int, ...]

# 3 M floats along few and many axes, in long and in short runs.
REDUCED: tuple[tuple[Shape, tuple[Axes, ...]], ...] = (
    ((3000, 1000), ((0,), (1,), (0, 1))),
    ((300, 100, 100), ((0,), (1,), (2,), (0, 2), (1, 2), (0, 1, 2))),
    ((64, 50, 30, 32), ((0, 2, 3),)),
    ((3, 1_000_000), ((1,),)),
    ((1_000_000, 3), ((0,), (1,))),
)


@dataclass(frozen=True)
class Reduction:
    """PyTorch's functions: forward(x, axes) with axes kept, gradient(g, x, y, axes, out)."""

    forward: Callable[..., Any]
    gradient: Callable[..., Any] | None = None
    single: bool = False  # One axis or none, not several.


def count(x: Any, axes: Axes) -> int:
    """Elements of x in each output of a reduction over the axes."""
    return math.prod(x.shape[axis] for axis in axes)


def kept(x: Any, axes: Axes) -> Shape:
    """The output's shape with the reduced axes as ones."""
    return tuple(1 if axis in axes else size for axis, size in enumerate(x.shape))


def one(x: Any, axes: Axes) -> int | None:
    """PyTorch's form of a single axis; None for all."""
    return None if len(axes) == x.ndim > 1 else axes[0]


def product(x: Any, axes: Axes, out: Any) -> None:
    """Return PyTorch's product along one axis, or over all elements without `out`."""
    if len(axes) == 1:
        torch.prod(x, axes[0], keepdim=True, out=out)
    else:
        out.copy_(torch.prod(x).reshape(out.shape))


REDUCTIONS: dict[str, Reduction] = {
    "sum": Reduction(
        lambda x, a, o: torch.sum(x, a, keepdim=True, out=o),
        lambda g, x, y, a, o: o.copy_(g.expand(x.shape)),
    ),
    "mean": Reduction(
        lambda x, a, o: torch.mean(x, a, keepdim=True, out=o),
        lambda g, x, y, a, o: torch.div(g.expand(x.shape), count(x, a), out=o),
    ),
    "prod": Reduction(
        product, lambda g, x, y, a, o: torch.div(torch.mul(g, y), x, out=o), single=True
    ),
    "nansum": Reduction(
        lambda x, a, o: torch.nansum(x, a, keepdim=True, out=o),
        lambda g, x, y, a, o: torch.mul(g, x.isnan().logical_not_(), out=o),
    ),
    "max": Reduction(
        lambda x, a, o: torch.amax(x, a, keepdim=True, out=o),
        lambda g, x, y, a, o: torch.mul(g, x == y, out=o),
    ),
    "min": Reduction(
        lambda x, a, o: torch.amin(x, a, keepdim=True, out=o),
        lambda g, x, y, a, o: torch.mul(g, x == y, out=o),
    ),
    "norm": Reduction(
        lambda x, a, o: torch.linalg.vector_norm(x, 2, a, keepdim=True, out=o),
        lambda g, x, y, a, o: torch.mul(x, g / y, out=o),
    ),
    "argmax": Reduction(lambda x, a, o: torch.argmax(x, one(x, a), keepdim=True), single=True),
    "argmin": Reduction(lambda x, a, o: torch.argmin(x, one(x, a), keepdim=True), single=True),
}


def reductions() -> Iterator[alternate.Case]:
    """Every reduction over all axes of all shapes, forward and backward."""
    for name, reduction in REDUCTIONS.items():
        for shape, choices in REDUCED:
            for axes in choices:
                if reduction.single and 1 < len(axes) < len(shape):
                    continue
                title = f"{name} {sized(shape)} over {listed(axes, shape)}"
                yield title, lambda n=name, r=reduction, s=shape, a=axes: reduce(n, r, s, a)
                if reduction.gradient is not None:
                    yield (
                        f"{title} backward",
                        lambda n=name, r=reduction, s=shape, a=axes: reduce_back(n, r, s, a),
                    )


def sized(shape: Shape) -> str:
    """A shape as it is read."""
    return "x".join(map(str, shape))


def listed(axes: Axes, shape: Shape) -> str:
    """Axes as they are read."""
    return "all" if len(axes) == len(shape) > 1 else ",".join(map(str, axes))


def values(name: str, shape: Shape) -> Any:
    """Return normal numbers; for products, numbers near one."""
    torch.manual_seed(0)
    return torch.rand(shape) * 0.002 + 0.999 if name == "prod" else torch.randn(shape)


def bound_reduction(name: str, shape: Shape, axes: Axes) -> alternate.Bound:
    """The operator on values, its output's gradient normal numbers."""
    x = values(name, shape)
    given: object = axes if not name.startswith("arg") else one(x, axes)
    return alternate.Bound(
        name, {"axis": given, "keepdims": True}, [x], [torch.randn(kept(x, axes))]
    )


def reduce(name: str, reduction: Reduction, shape: Shape, axes: Axes) -> alternate.Match:
    """Forward."""
    bound = bound_reduction(name, shape, axes)
    (x,), (y,), peer = bound.inputs, bound.outputs, torch.empty(kept(bound.inputs[0], axes))
    run = bound.forward()
    if name.startswith("arg"):
        return alternate.Match(
            run,
            lambda: reduction.forward(x, axes, peer),
            lambda: alternate.difference(y.flatten(), reduction.forward(x, axes, peer).flatten()),
        )
    return alternate.Match(
        run,
        lambda: reduction.forward(x, axes, peer),
        lambda: alternate.difference(y.reshape(peer.shape), peer),
    )


def reduce_back(name: str, reduction: Reduction, shape: Shape, axes: Axes) -> alternate.Match:
    """Backward, from the output of a forward call."""
    bound = bound_reduction(name, shape, axes)
    (x,), (g,), peer = bound.inputs, bound.out_grad, torch.empty(shape)
    bound.forward()()
    y = bound.outputs[0].reshape(g.shape)
    assert reduction.gradient is not None
    return alternate.Match(
        bound.backward(),
        lambda: reduction.gradient(g, x, y, axes, peer),
        lambda: alternate.difference(bound.gradients[0], peer),
    )


def moments() -> Iterator[alternate.Case]:
    """Mean and variance, and their gradient."""
    for shape, choices in REDUCED:
        for axes in choices:
            title = f"moments {sized(shape)} over {listed(axes, shape)}"
            yield title, lambda s=shape, a=axes: moments_match(s, a, False)
            yield f"{title} backward", lambda s=shape, a=axes: moments_match(s, a, True)


def moments_match(shape: Shape, axes: Axes, backward: bool) -> alternate.Match:
    """PyTorch's var_mean, or its formula for the gradient."""
    x = torch.randn(shape) + 1
    heads = [torch.randn(kept(x, axes)) for _ in range(2)]
    bound = alternate.Bound("moments", {"axes": axes, "keepdims": True}, [x], heads)
    forward = bound.forward()
    forward()
    mean, variance = bound.outputs
    results = [torch.empty_like(variance), torch.empty_like(mean)]
    if not backward:
        return alternate.Match(
            forward,
            lambda: ops.var_mean.correction_out(
                x, axes, correction=0, keepdim=True, out0=results[0], out1=results[1]
            ),
            lambda: max(
                alternate.difference(variance, results[0]), alternate.difference(mean, results[1])
            ),
        )
    peer, elements = torch.empty(shape), count(x, axes)
    return alternate.Match(
        bound.backward(),
        lambda: (
            torch.sub(x, mean, out=peer).mul_(heads[1] * (2 / elements)).add_(heads[0] / elements)
        ),
        lambda: alternate.difference(bound.gradients[0], peer),
    )


def cumulative() -> Iterator[alternate.Case]:
    """cumsum along every axis."""
    for shape, choices in REDUCED:
        for (axis,) in (axes for axes in choices if len(axes) == 1):
            title = f"cumsum {sized(shape)} along {axis}"
            yield title, lambda s=shape, a=axis: cumsum_match(s, a, False)
            yield f"{title} backward", lambda s=shape, a=axis: cumsum_match(s, a, True)


def cumsum_match(shape: Shape, axis: int, backward: bool) -> alternate.Match:
    """PyTorch's cumsum; backward, that of the flipped gradient."""
    bound = alternate.Bound("cumsum", {"axis": axis}, [torch.randn(shape)], [torch.randn(shape)])
    (x,), (g,), (y,), peer = bound.inputs, bound.out_grad, bound.outputs, torch.empty(shape)
    forward = bound.forward()
    if not backward:
        return alternate.Match(
            forward, lambda: torch.cumsum(x, axis, out=peer), lambda: alternate.difference(y, peer)
        )
    return alternate.Match(
        bound.backward(),
        lambda: peer.copy_(g.flip(axis).cumsum(axis).flip(axis)),
        lambda: alternate.difference(bound.gradients[0], peer),
    )


def embeddings() -> Iterator[alternate.Case]:
    """The gradient of a table from few and from many ids."""
    for rows, columns, ids in ((10_000, 200, 700), (50_000, 512, 8192)):
        yield (
            f"Embedding {rows}x{columns} of {ids} backward",
            lambda r=rows, c=columns, i=ids: embedding_match(r, c, i),
        )


def embedding_match(rows: int, columns: int, ids: int) -> alternate.Match:
    """PyTorch's embedding_dense_backward."""
    data, gradient = torch.randint(0, rows, (ids,)), torch.randn(ids, columns)
    bound = alternate.Bound(
        "Embedding",
        {"input_dim": rows, "output_dim": columns},
        [data.to(torch.int32), torch.randn(rows, columns)],
        [gradient],
        wanted=[1],
    )
    bound.forward()

    def peer() -> Any:
        return ops.embedding_dense_backward(gradient, data, rows, -1, False)

    return alternate.Match(
        bound.backward(), peer, lambda: alternate.difference(bound.gradients[1], peer())
    )


def updates() -> Iterator[alternate.Case]:
    """Adam and AdamW over 10 M parameters."""
    yield "adamw_update 10000000", lambda: update_match("adamw_update", 10_000_000)
    yield "adam_update 10000000", lambda: update_match("adam_update", 10_000_000)


def update_match(name: str, size: int) -> alternate.Match:
    """PyTorch's fused optimizers."""
    weight, grad = torch.randn(size), torch.randn(size)
    parameter = torch.nn.Parameter(weight.clone())
    parameter.grad = grad.clone()
    kind = torch.optim.AdamW if name == "adamw_update" else torch.optim.Adam
    optimizer = kind([parameter], lr=1e-3, weight_decay=0.01, fused=True)
    eta: dict[str, object] = {"eta": 1.0} if name == "adamw_update" else {}
    given = {"lr": 1e-3, "wd": 0.01, **eta}
    bound = alternate.Bound(name, given, [weight, grad, torch.zeros(size), torch.zeros(size)])
    bound.outputs = [weight, *bound.inputs[2:]]
    # PyTorch's bias correction counts its steps, so the results differ.
    return alternate.Match(bound.forward(), optimizer.step, lambda: math.nan)


BROADCAST: tuple[tuple[Shape, Shape], ...] = (
    ((3000, 1000), (1, 1000)),
    ((3000, 1000), (3000, 1)),
    ((300, 100, 100), (1, 100, 100)),
    ((300, 100, 100), (300, 1, 100)),
    ((300, 100, 100), (300, 100, 1)),
    ((750_000, 4), (1, 4)),
    ((750_000, 4), (750_000, 1)),
)


def broadcasts() -> Iterator[alternate.Case]:
    """A sum and a product with something smaller, and their gradients of both sides."""
    for name, (left, right) in itertools.product(("broadcast_add", "broadcast_mul"), BROADCAST):
        title = f"{name} {sized(left)} {sized(right)}"
        yield title, lambda n=name, x=left, y=right: broadcast_match(n, x, y, ())
        sides = ((1,),) if name == "broadcast_add" else ((0,), (1,))
        for wanted in sides:
            yield (
                f"{title} {'left' if wanted == (0,) else 'right'}",
                lambda n=name, x=left, y=right, w=wanted: broadcast_match(n, x, y, w),
            )


def broadcast_match(name: str, left: Shape, right: Shape, wanted: Sequence[int]) -> alternate.Match:
    """PyTorch's operator, or its formulas for a gradient."""
    x, y, g = torch.randn(left), torch.randn(right), torch.randn(left)
    bound = alternate.Bound(name, {}, [x, y], [g], wanted)
    forward = bound.forward()
    call = torch.add if name == "broadcast_add" else torch.mul
    if not wanted:
        peer = torch.empty(left)
        return alternate.Match(
            forward,
            lambda: call(x, y, out=peer),
            lambda: alternate.difference(bound.outputs[0], peer),
        )
    axes = tuple(axis for axis, (a, b) in enumerate(zip(left, right, strict=True)) if a != b)
    peer = torch.empty((left, right)[wanted[0]])
    between = torch.empty(left)

    def run() -> None:
        if wanted[0] == 0:
            torch.mul(g, y, out=peer)
            return
        product = g if name == "broadcast_add" else torch.mul(g, x, out=between)
        torch.sum(product, axes, keepdim=True, out=peer)

    return alternate.Match(
        bound.backward(), run, lambda: alternate.difference(bound.gradients[wanted[0]], peer)
    )


def cases() -> Iterator[alternate.Case]:
    """Yield all cases."""
    yield from reductions()
    yield from moments()
    yield from cumulative()
    yield from embeddings()
    yield from updates()
    yield from broadcasts()


if __name__ == "__main__":
    alternate.main(__doc__, cases())
