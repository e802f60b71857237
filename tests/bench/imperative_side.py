"""One side of `bench_imperative.py`: `python imperative_side.py mxrun|mxnet|torch`.

Reads the name of a case and a number of seconds from each line of standard input, calls the case
for that long, and prints the seconds of the fastest call. A call that is timed ends when its
results are there, except in the cases `small`, of which 100 calls are timed at a time, and
`chained`, of which 5 are made before the last one is awaited.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

SMALL, LARGE, BATCH, THREADS = 10, 3_000_000, 64, 2
_CHAIN = 5
_CALLS = {"small": 100}

Case = Callable[[], object]


def arrays(size: int) -> tuple[Any, Any]:
    generator = np.random.default_rng(0)
    return tuple(generator.uniform(0.1, 1, size).astype("float32") for _ in range(2))


def mxnet_cases(nd: Any) -> dict[str, Case]:
    """Return the operators through MXNet's functions, of mxrun or of MXNet."""
    made: dict[str, Case] = {}
    for name, size in (("small", SMALL), ("large", LARGE)):
        a, b = map(nd.array, arrays(size))
        target = nd.zeros((size,))

        def ended(call: Case, name: str = name) -> Case:
            return call if name == "small" else lambda: call().wait_to_read()

        def in_place(target: Any = target, b: Any = b) -> Any:
            target += b
            return target

        made |= {
            f"{name} a + b": ended(lambda a=a, b=b: a + b),
            f"{name} a += b": ended(in_place),
            f"{name} exp": ended(lambda a=a: nd.exp(a)),
            f"{name} tanh": ended(lambda a=a: nd.tanh(a)),
            f"{name} a * 2": ended(lambda a=a: a * 2),
            f"{name} sum": ended(lambda a=a: nd.sum(a)),
        }

    def chained() -> None:
        for _ in range(_CHAIN):
            result = a + b
        result.wait_to_read()

    made["chained large a + b"] = chained
    return made


def torch_cases(torch: Any) -> dict[str, Case]:
    made: dict[str, Case] = {}
    for name, size in (("small", SMALL), ("large", LARGE)):
        a, b = map(torch.from_numpy, arrays(size))
        target = torch.zeros(size)
        made |= {
            f"{name} a + b": lambda a=a, b=b: a + b,
            f"{name} a += b": lambda target=target, b=b: target.add_(b),
            f"{name} exp": lambda a=a: torch.exp(a),
            f"{name} tanh": lambda a=a: torch.tanh(a),
            f"{name} a * 2": lambda a=a: a * 2,
            f"{name} sum": lambda a=a: a.sum(),
        }

    def chained() -> None:
        for _ in range(_CHAIN):
            result = a + b
        assert len(result) == LARGE

    made["chained large a + b"] = chained
    return made


def lenet_batch() -> tuple[Any, Any]:
    generator = np.random.default_rng(0)
    data = generator.normal(size=(BATCH, 1, 28, 28)).astype("float32")
    return data, generator.integers(0, 10, BATCH).astype("float32")


_SHAPES = {
    "conv1": (20, 1, 5, 5),
    "conv2": (50, 20, 5, 5),
    "fc1": (500, 800),
    "fc2": (10, 500),
}


def lenet_nd(nd: Any, autograd: Any) -> Case:
    """Return a training step of LeNet by operators, autograd and the update operator."""
    data, label = map(nd.array, lenet_batch())
    generator = np.random.default_rng(1)
    w, b = {}, {}
    for name, shape in _SHAPES.items():
        w[name] = nd.array(generator.normal(size=shape).astype("float32") * 0.05)
        b[name] = nd.zeros((shape[0],))
    parameters = [*w.values(), *b.values()]
    for each in parameters:
        each.attach_grad()

    def step() -> None:
        with autograd.record():
            h = nd.Convolution(data, w["conv1"], b["conv1"], kernel=(5, 5), num_filter=20)
            h = nd.Activation(h, act_type="tanh")
            h = nd.Pooling(h, kernel=(2, 2), stride=(2, 2), pool_type="max")
            h = nd.Convolution(h, w["conv2"], b["conv2"], kernel=(5, 5), num_filter=50)
            h = nd.Activation(h, act_type="tanh")
            h = nd.Pooling(h, kernel=(2, 2), stride=(2, 2), pool_type="max")
            h = nd.FullyConnected(nd.Flatten(h), w["fc1"], b["fc1"], num_hidden=500)
            h = nd.Activation(h, act_type="tanh")
            h = nd.FullyConnected(h, w["fc2"], b["fc2"], num_hidden=10)
            out = nd.SoftmaxOutput(h, label)
        out.backward()
        for each in parameters:
            nd.sgd_update(each, each.grad, out=each, lr=0.01, rescale_grad=1 / BATCH)
        for each in parameters:
            each.wait_to_read()

    return step


def lenet_gluon(mx: Any) -> Case:
    """Return a training step of LeNet as a Gluon block, called imperatively."""
    nn = mx.gluon.nn
    net = nn.Sequential()
    net.add(
        nn.Conv2D(20, 5, activation="tanh"),
        nn.MaxPool2D(2, 2),
        nn.Conv2D(50, 5, activation="tanh"),
        nn.MaxPool2D(2, 2),
        nn.Flatten(),
        nn.Dense(500, activation="tanh"),
        nn.Dense(10),
    )
    net.initialize()
    loss = mx.gluon.loss.SoftmaxCrossEntropyLoss()
    trainer = mx.gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.01})
    data, label = map(mx.nd.array, lenet_batch())

    def step() -> None:
        with mx.autograd.record():
            value = loss(net(data), label)
        value.backward()
        trainer.step(BATCH)
        mx.nd.waitall()

    return step


def lenet_torch(torch: Any) -> Case:
    """Return a training step of LeNet in eager PyTorch."""
    nn = torch.nn
    net = nn.Sequential(
        nn.Conv2d(1, 20, 5),
        nn.Tanh(),
        nn.MaxPool2d(2, 2),
        nn.Conv2d(20, 50, 5),
        nn.Tanh(),
        nn.MaxPool2d(2, 2),
        nn.Flatten(),
        nn.Linear(800, 500),
        nn.Tanh(),
        nn.Linear(500, 10),
    )
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    given, targets = lenet_batch()
    data, label = torch.from_numpy(given), torch.from_numpy(targets).long()
    loss = nn.CrossEntropyLoss()

    def step() -> None:
        optimizer.zero_grad()
        loss(net(data), label).backward()
        optimizer.step()

    return step


def cases_of(side: str) -> dict[str, Case]:
    if side == "torch":
        import torch

        torch.set_num_threads(THREADS)
        return torch_cases(torch) | {"LeNet step": lenet_torch(torch)}
    if side == "mxnet":
        import mxnet as mx

        return mxnet_cases(mx.nd) | {"LeNet step": lenet_gluon(mx)}
    from mxrun import autograd, nd

    return mxnet_cases(nd) | {"LeNet step": lenet_nd(nd, autograd)}


def fastest(case: Case, calls: int, seconds: float) -> float:
    """Return the seconds of a call in the fastest of many groups of `calls`."""
    end, best = time.perf_counter() + seconds, float("inf")
    while time.perf_counter() < end:
        begin = time.perf_counter()
        for _ in range(calls):
            case()
        best = min(best, (time.perf_counter() - begin) / calls)
    return best


def main() -> None:
    cases = cases_of(sys.argv[1])
    print(" ".join(name.replace(" ", "_") for name in cases), flush=True)
    for line in sys.stdin:
        name, seconds = line.rsplit(maxsplit=1)
        kind = name.split()[0]
        found = fastest(cases[name], _CALLS.get(kind, 1), float(seconds))
        print(found / _CHAIN if kind == "chained" else found, flush=True)


if __name__ == "__main__":
    main()
