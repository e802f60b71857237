"""Program on distributed stores, which shares out four gradients a step over its ranks.

python tests/support/rank_store.py FILE [FAULTY_RANK]

Prints what it has computed as JSON, on every rank in one line. FILE receives states. The faulty
rank raises an exception instead of its second push.
"""

from __future__ import annotations

import json
import os
import sys
from hashlib import sha256

import numpy as np

import mxrun
from mxrun import nd

GRADIENTS, STEPS = 4, 5
# The messages of the first have several slices, those of the last fewer than ranks.
SHAPES = {"weight": (300, 70), "bias": (3,)}


def drawn(shape: tuple[int, ...], *seed: int) -> np.ndarray:
    """Return numbers of different sizes, so that the order of additions shows in the last bits."""
    random = np.random.default_rng(seed)
    sizes = 10.0 ** random.integers(-3, 4, shape)
    return (random.standard_normal(shape) * sizes).astype(np.float32)


def run(kind: str, file: str, faulty: int) -> dict[str, object]:
    """Run the program on one kind of store."""
    store = mxrun.kv.create(kind)
    rank, count = store.rank, GRADIENTS // store.num_workers
    own = range(rank * count, (rank + 1) * count)
    keys, shapes = [*SHAPES], [*SHAPES.values()]
    outs = [[nd.zeros(shape, ctx=mxrun.cpu(k)) for k in range(count)] for shape in shapes]
    # Those of the other ranks are not used.
    store.broadcast(keys, [nd.array(drawn(shape, rank)) for shape in shapes], out=outs)
    start = [out[0].asnumpy() for out in outs]

    def gradients(step: int) -> list[list[nd.NDArray]]:
        return [
            [nd.array(drawn(shape, step, part), ctx=mxrun.cpu(k)) for k, part in enumerate(own)]
            for shape in shapes
        ]

    store.pushpull(keys, gradients(1), out=outs)
    sums = [out[-1].asnumpy() for out in outs]
    if rank == faulty:
        raise ZeroDivisionError("planted")
    store.set_optimizer(mxrun.optimizer.create("adam", learning_rate=0.01, wd=0.1))
    for step in range(2, STEPS):
        # Whatever the priority, messages are in the order of the calls.
        store.push(keys, gradients(step), priority=-step if rank else step)
    store.barrier()
    path = f"{file}.{kind}"
    store.save_optimizer_states(path)
    store.load_optimizer_states(path)
    store.push(keys, gradients(STEPS))
    store.pull(keys, out=outs)
    found = [*start, *sums, *(each.asnumpy() for out in outs for each in (out[0], out[-1]))]
    return {
        "type": store.type,
        "workers": store.num_workers,
        "start": start[0].tobytes() == drawn(shapes[0], 0).tobytes(),
        "arrays": [sha256(each.tobytes()).hexdigest() for each in found],
    }


def main() -> None:
    """Run the program on both kinds of stores."""
    faulty = int(sys.argv[2]) if len(sys.argv) > 2 else -1
    results = [run(kind, sys.argv[1], faulty) for kind in ("dist_sync", "dist_device_sync")]
    # One write, so that lines of several ranks do not mix.
    os.write(1, (json.dumps(results) + "\n").encode())


if __name__ == "__main__":
    main()
