"""Recurrent layers against PyTorch's modules: `bench_rnn.py --only NAME`.

Every case alternates with its counterpart in one process: forward in training, and forward with the
gradients of data and weights. Needs torch in the same environment, whose LSTM is oneDNN's.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import alternate
import torch

from mxrun.peers.pytorch.parameters import MXNetParameters
from mxrun.peers.pytorch.recurrent import rnn_module

# Mode, layers, size, steps, batch.
SHAPES = (
    ("lstm", 2, 200, 35, 20),
    ("lstm", 1, 512, 35, 20),
    ("lstm", 1, 512, 35, 64),
    ("lstm", 1, 128, 100, 1),
    ("gru", 2, 200, 35, 20),
    ("rnn_tanh", 2, 200, 35, 20),
)


def match(mode: str, layers: int, size: int, steps: int, batch: int, backward: bool) -> Any:
    """Return both sides on data with as many features as the state."""
    torch.manual_seed(0)
    parameters: dict[str, object] = {
        "mode": mode,
        "num_layers": layers,
        "state_size": size,
        "initial_state": "zeros",
    }
    data = torch.randn(steps, batch, size)
    gates = {"lstm": 4, "gru": 3}.get(mode, 1)
    packed = torch.randn(layers * gates * size * (2 * size + 2)) / size**0.5
    out_grad = torch.randn(steps, batch, size)
    own = alternate.Bound("RNN", parameters, [data, packed], [out_grad], wanted=(0, 1))
    forward = own.forward()
    gradients = own.backward() if backward else None
    texts = {name: str(value) for name, value in parameters.items()}
    module = rnn_module(MXNetParameters(texts), [packed])
    read = data.clone().requires_grad_()
    results: dict[str, Any] = {}

    def run() -> None:
        forward()
        if gradients is not None:
            gradients()

    def peer() -> None:
        results["output"] = module(read)
        if backward:
            read.grad = None
            module.zero_grad(set_to_none=True)
            results["output"].backward(out_grad)

    def error() -> float:
        found = alternate.difference(own.outputs[0], results["output"].detach())
        return max(found, alternate.difference(own.gradients[0], read.grad) if backward else 0.0)

    return alternate.Match(run, peer, error)


def cases() -> Iterator[alternate.Case]:
    """Yield forward and forward with backward of all shapes."""
    for shape in SHAPES:
        for backward in (False, True):
            name = " ".join([*map(str, shape), "and backward" if backward else "forward"])
            yield name, lambda shape=shape, backward=backward: match(*shape, backward)


if __name__ == "__main__":
    parser = alternate.arguments(__doc__)
    parser.add_argument("--processor-time", action="store_true", help="one thread, processor time")
    given = parser.parse_args()
    if given.processor_time:
        alternate.use_processor_time()
    alternate.table(cases(), given.rounds, given.only)
