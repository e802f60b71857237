"""Softmax, losses, norms and activations against PyTorch: `bench_operators.py --only NAME`.

Every case alternates with its counterpart in one process. The table gives the medians, their ratio
and the ratio of the best times. PyTorch's kernels write into existing tensors, except those that
only autograd reaches. Needs torch in the same environment.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import alternate
import torch
from torch.nn import functional

ops: Any = torch.ops.aten
Shape = tuple[int, int]

SOFTMAXES: tuple[Shape, ...] = ((700, 10_000), (30_000, 100), (3000, 1000))
NORMS: tuple[Shape, ...] = ((2048, 384), (768, 128), (8192, 768))
LOSSES: tuple[Shape, ...] = ((700, 10_000), (256, 50_000), (64, 10), (4096, 1000))
ACTIVATIONS: tuple[Shape, ...] = ((2048, 1536), (768, 512))


def sized(shape: Shape) -> str:
    """A shape as it is read."""
    return "x".join(map(str, shape))


def phases(title: str) -> Iterator[tuple[str, bool]]:
    """Return the titles of forward and of backward, and whether it is backward."""
    return iter(((title, False), (f"{title} backward", True)))


def softmaxes() -> Iterator[alternate.Case]:
    """softmax and log_softmax of rows."""
    for name, shape in itertools.product(("softmax", "log_softmax"), SOFTMAXES):
        title = f"{name} {sized(shape)}"
        for place, words in enumerate(("", " backward", " and backward")):
            yield f"{title}{words}", lambda n=name, s=shape, p=place: softmax_matches(n, s)[p]


def softmax_matches(name: str, shape: Shape) -> tuple[alternate.Match, ...]:
    """PyTorch's kernels of the same names: forward, backward, and both in turn."""
    bound = alternate.Bound(name, {"axis": -1}, [torch.randn(shape)], [torch.randn(shape)])
    (x,), (g,), (y,) = bound.inputs, bound.out_grad, bound.outputs
    (dx,), peer, peer_dx = bound.gradients, torch.empty(shape), torch.empty(shape)
    word = "grad_input" if name == "softmax" else "out"
    call = getattr(ops, f"_{name}").out
    back = getattr(ops, f"_{name}_backward_data").out
    forward = alternate.Match(
        bound.forward(),
        lambda: call(x, -1, False, out=peer),
        lambda: alternate.difference(y, peer),
    )
    forward.own()
    backward = alternate.Match(
        bound.backward(),
        lambda: back(g, y, -1, torch.float32, **{word: peer_dx}),
        lambda: alternate.difference(dx, peer_dx),
    )

    def own() -> None:
        forward.own()
        backward.own()

    def both() -> None:
        call(x, -1, False, out=peer)
        back(g, peer, -1, torch.float32, **{word: peer_dx})

    return forward, backward, alternate.Match(own, both, backward.error)


def losses() -> Iterator[alternate.Case]:
    """Cross-entropies of rows; backward alone is no call of PyTorch's."""
    for name, shape in itertools.product(("softmax_cross_entropy", "SoftmaxOutput"), LOSSES):
        title = f"{name} {sized(shape)}"
        yield title, lambda n=name, s=shape: loss_match(n, s, False)
        yield f"{title} and backward", lambda n=name, s=shape: loss_match(n, s, True)


def loss_match(name: str, shape: Shape, trains: bool) -> alternate.Match:
    """F.cross_entropy, with its backward if `trains`."""
    label = torch.randint(0, shape[1], shape[:1])
    bound = alternate.Bound(name, {}, [torch.randn(shape), label.to(torch.int32)], None)
    x = bound.inputs[0].clone().requires_grad_()
    forward, backward = bound.forward(), bound.backward()

    def peer() -> Any:
        with torch.set_grad_enabled(trains):
            return functional.cross_entropy(x, label, reduction="sum")

    if not trains:
        loss = bound.outputs[-1]
        return alternate.Match(forward, peer, lambda: alternate.difference(loss, peer()))

    def own() -> None:
        forward()
        backward()

    def trained() -> None:
        x.grad = None
        peer().backward()

    return alternate.Match(own, trained, lambda: alternate.difference(bound.gradients[0], x.grad))


def normalizations() -> Iterator[alternate.Case]:
    """LayerNorm and RMSNorm of rows."""
    for name, shape in itertools.product(("LayerNorm", "RMSNorm"), NORMS):
        make = layer_norm_match if name == "LayerNorm" else rms_norm_match
        for title, backward in phases(f"{name} {sized(shape)}"):
            yield title, lambda m=make, s=shape, b=backward: m(s, b)


def layer_norm_match(shape: Shape, backward: bool) -> alternate.Match:
    """PyTorch's kernels."""
    x, g, scales = torch.randn(shape), torch.randn(shape), [torch.randn(shape[1]) for _ in "gb"]
    bound = alternate.Bound("LayerNorm", {}, [x, *scales], [g, None, None], range(3))
    forward, size, peer = bound.forward(), shape[1:], torch.empty(shape)
    forward()
    if not backward:
        others = {"out1": torch.empty(shape[0], 1), "out2": torch.empty(shape[0], 1)}
        call = ops.native_layer_norm.out
        return alternate.Match(
            forward,
            lambda: call(x, size, *scales, 1e-5, out0=peer, **others),
            lambda: alternate.difference(bound.outputs[0], peer),
        )
    _, mean, factor = ops.native_layer_norm(x, size, *scales, 1e-5)
    back = ops.native_layer_norm_backward.out
    found = {"out0": peer, "out1": torch.empty(size), "out2": torch.empty(size)}
    return alternate.Match(
        bound.backward(),
        lambda: back(g, x, size, mean, factor, *scales, [True] * 3, **found),
        lambda: alternate.difference(bound.gradients[0], peer),
    )


def rms_norm_match(shape: Shape, backward: bool) -> alternate.Match:
    """PyTorch's function; backward is autograd's, of the retained graph."""
    inputs = [torch.randn(shape), torch.randn(shape[1])]
    g = torch.randn(shape)
    bound = alternate.Bound("RMSNorm", {}, inputs, [g, None], range(2))
    forward, size = bound.forward(), shape[1:]
    forward()
    if not backward:

        def peer() -> Any:
            return functional.rms_norm(inputs[0], size, inputs[1], 1e-5)

        return alternate.Match(
            forward, peer, lambda: alternate.difference(bound.outputs[0], peer())
        )
    leaves = [each.clone().requires_grad_() for each in inputs]
    output = functional.rms_norm(leaves[0], size, leaves[1], 1e-5)

    def gradients() -> Any:
        return torch.autograd.grad(output, leaves, g, retain_graph=True)

    return alternate.Match(
        bound.backward(),
        gradients,
        lambda: alternate.difference(bound.gradients[0], gradients()[0]),
    )


def activations() -> Iterator[alternate.Case]:
    """gelu, in both forms, and silu."""
    forms = (("gelu", "none"), ("gelu", "tanh"), ("silu", ""))
    for (name, form), shape in itertools.product(forms, ACTIVATIONS):
        for title, backward in phases(" ".join(filter(None, (name, form, sized(shape))))):
            yield title, lambda n=name, f=form, s=shape, b=backward: activation_match(n, f, s, b)


def activation_match(name: str, form: str, shape: Shape, backward: bool) -> alternate.Match:
    """PyTorch's kernels of the same names; form: of the normal distribution."""
    given: dict[str, Any] = {"approximate": form} if form else {}
    bound = alternate.Bound(name, given, [torch.randn(shape)], [torch.randn(shape)])
    (x,), (g,), (y,), peer = bound.inputs, bound.out_grad, bound.outputs, torch.empty(shape)
    forward = bound.forward()
    forward()
    if not backward:
        call = getattr(ops, name).out
        return alternate.Match(
            forward, lambda: call(x, **given, out=peer), lambda: alternate.difference(y, peer)
        )
    call = getattr(ops, f"{name}_backward").grad_input
    return alternate.Match(
        bound.backward(),
        lambda: call(g, x, **given, grad_input=peer),
        lambda: alternate.difference(bound.gradients[0], peer),
    )


def cases() -> Iterator[alternate.Case]:
    """Yield all cases."""
    yield from softmaxes()
    yield from losses()
    yield from normalizations()
    yield from activations()


if __name__ == "__main__":
    alternate.main(__doc__, cases())
