"""Attention against PyTorch's scaled_dot_product_attention: `bench_attention.py --only NAME`.

Every case alternates with its counterpart in one process. PyTorch reads heads of contiguous tensors
and heads side by side in rows, as mxrun does; its time is that of the faster one. Needs torch in
the same environment.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import alternate
import torch
from torch.nn import functional

# Sequences, heads, queries, and size of a head.
Sizes = tuple[int, int, int, int]
CASES: tuple[tuple[Sizes, bool], ...] = (
    ((8, 6, 256, 64), True),
    ((8, 6, 256, 64), False),
    ((2, 12, 1024, 64), True),
    ((2, 12, 1024, 64), False),
    ((12, 4, 64, 32), True),
)
TYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
OPERATOR = "scaled_dot_product_attention"
_TRIALS = 5


def cases() -> Iterator[alternate.Case]:
    """Forward alone, and forward and backward, of every size and type."""
    for dtype in TYPES:
        for sizes, causal in CASES:
            name = f"{dtype} {'x'.join(map(str, sizes))} {'causal' if causal else 'all'}"
            for trains in (False, True):
                title = f"{name} {'train' if trains else 'forward'}"
                yield title, lambda d=dtype, s=sizes, c=causal, t=trains: match(d, s, c, t)


def match(dtype: str, sizes: Sizes, causal: bool, trains: bool) -> alternate.Match:
    """Calls over the same numbers; the error is that of the output or of all gradients."""
    sequences, heads, steps, size = sizes
    torch.manual_seed(0)
    shape = (sequences, steps, heads * size)
    tensors = [torch.randn(shape).to(TYPES[dtype]) for _ in range(3)]
    grad = torch.randn(shape).to(TYPES[dtype])
    bound = alternate.Bound(
        OPERATOR,
        {"num_heads": heads, "causal": causal},
        tensors,
        [grad, None],
        wanted=(0, 1, 2) if trains else (),
    )
    forward = bound.forward()
    peer = fastest(Peer([split(tensor, heads) for tensor in (*tensors, grad)], causal, trains))
    if not trains:
        return alternate.Match(
            forward, peer, lambda: alternate.difference(bound.outputs[0].float(), joined(peer()[0]))
        )
    backward = bound.backward()

    def both() -> None:
        forward()
        backward()

    return alternate.Match(
        both,
        peer,
        lambda: max(
            alternate.difference(own.float(), joined(other))
            for own, other in zip(bound.gradients, peer(), strict=True)
        ),
    )


def split(tensor: Any, heads: int) -> Any:
    """Heads of rows, in front of the steps, without a copy."""
    return tensor.unflatten(-1, (heads, -1)).transpose(1, 2)


def joined(tensor: Any) -> Any:
    """Heads side by side in rows, in float32."""
    return tensor.detach().transpose(1, 2).flatten(2).float()


class Peer:
    """PyTorch's output, or the gradients of query, key and value."""

    def __init__(self, tensors: list[Any], causal: bool, trains: bool) -> None:
        *self.inputs, self.grad = tensors
        self.causal, self.trains = causal, trains

    def contiguous(self) -> Peer:
        """The same heads in contiguous tensors."""
        copies = [tensor.detach().contiguous() for tensor in (*self.inputs, self.grad)]
        return Peer(copies, self.causal, self.trains)

    def __call__(self) -> Any:
        attention = functional.scaled_dot_product_attention
        if not self.trains:
            with torch.no_grad():
                return [attention(*self.inputs, is_causal=self.causal)]
        inputs = [tensor.detach().requires_grad_() for tensor in self.inputs]
        return torch.autograd.grad(attention(*inputs, is_causal=self.causal), inputs, self.grad)


def fastest(peer: Peer) -> Callable[[], Any]:
    """Return the faster of both forms of PyTorch's tensors."""
    forms = (peer, peer.contiguous())
    times = {}
    for form in forms:
        form()
        for _ in range(_TRIALS):
            begin = time.perf_counter()
            form()
            taken = time.perf_counter() - begin
            times[form] = min(taken, times.get(form, taken))
    return min(times, key=lambda form: times[form])


def main() -> None:
    """Print the table."""
    options = alternate.arguments(__doc__).parse_args()
    torch.set_num_threads(alternate.THREADS)
    alternate.table(cases(), options.rounds, options.only)


if __name__ == "__main__":
    main()
