"""Arrays: creation, views, in-place changes, random numbers, files, gradients, functions, threads.

python face_arrays.py
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from face_facts import note, note_error, numbers, write

import mxrun
from mxrun import autograd, nd


def creation() -> None:
    """Arrays of every kind of source and type."""
    note("array of lists", nd.array([[1, 2, 3], [4, 5, 6]]))
    for dtype in ("float16", "float32", "float64", "int8", "uint8", "int32", "int64"):
        x = nd.array([[0, 1.7, 2]], dtype=dtype)
        note(f"array {dtype}", [x, x + x, x * 3, nd.Cast(x, dtype="float32")])
    note("filled", [nd.zeros((2, 3)), nd.ones((2,)), nd.full((2, 2), 7.5), nd.eye(3, 4, 1)])
    note("ranges", [nd.arange(2, 9, 3), nd.arange(4, repeat=2), nd.linspace(0, 1, 5)])
    note("text", [repr(nd.array(numbers("shown", 2, 3))), str(nd.arange(3000))])
    with mxrun.cpu(1):
        there = nd.ones((2, 3))
    note("another context", [str(there.context), there.as_in_context(mxrun.cpu(0))])


def views() -> None:
    """Indices, slices, reshapes and changes in place."""
    x = nd.array(numbers("x", 4, 6))
    rows = x[1:3]
    rows[:] = 2
    x[0, 2] += 1
    x[3, 1:4] = [7, 8, 9]
    x[:, 5] = nd.array([1, 2, 3, 4])
    x *= 2
    x -= 0.25
    x /= nd.array(numbers("divisor", 6))
    x **= 2
    note("changed", [x, rows, x[-1], x[::2], x[:, ::-1], x[..., 1], x[None, 2]])
    x[[0, 2]] = 5
    note("by rows", [x, x[[3, 1]], x[nd.array([1, 1, 0], dtype="int32")]])
    x.reshape((2, 12))[0] = -1
    note("through a reshape", [x, x.reshape((-1, 3)).T, x.reshape((0, 2, 3)), x.flatten()])
    out = nd.empty((4, 6))
    nd.exp(x, out=out)
    note("out", out)
    note("fluent", [x.sum(axis=0), x.mean(), x.max(axis=1), x.argmax(axis=1), x.astype("int32")])
    other = nd.array(numbers("other", 4, 6))
    note("arithmetic", [x + other, x - 1, 1 - x, x / other, 2 / other, x % 3, -x, abs(x), other**x])
    note("comparison", [x > other, x == x, x <= 1, nd.maximum(x, other), nd.logical_and(x, other)])
    note("item", [x[0, 0].asscalar(), x[0, 0].item(), x.tolist(), len(x), x.size, list(x.shape)])


def random_numbers() -> None:
    """Draws after seeds, on two contexts."""
    for seed in (0, 7):
        mxrun.random.seed(seed)
        draws = [nd.random.uniform(-1, 2, (3, 5)), nd.random.normal(1, 3, (7,)), nd.random.randn(4)]
        dropped = nd.ones((6, 5))
        with autograd.record():
            draws.append(nd.Dropout(dropped, p=0.5))
        note(f"draws after seed {seed}", draws)
        note(f"draws on cpu(1) after seed {seed}", nd.random.uniform(0, 1, (4,), ctx=mxrun.cpu(1)))
    filled = nd.zeros((2, 2))
    nd.random.normal(0, 1, out=filled)
    note("filled at random", filled)


def files() -> None:
    """Saved and read again."""
    one = nd.array(numbers("saved", 3, 4))
    two = nd.array([1, 2], dtype="int32")
    nd.save("named.params", {"one": one, "two": two})
    nd.save("listed.params", [one, two])
    for name in ("named.params", "listed.params"):
        with open(name, "rb") as file:
            content = np.frombuffer(file.read(), np.uint8)
        note(f"{name}: file", content)
        note(f"{name}: arrays", nd.load(name))


class Swish(autograd.Function):
    """x * sigmoid(x), with a backward of its own."""

    def forward(self, x: Any) -> Any:
        """Keep x."""
        self.save_for_backward(x)
        return x * nd.sigmoid(x)

    def backward(self, dy: Any) -> Any:
        """Product rule."""
        (x,) = self.saved_tensors
        gate = nd.sigmoid(x)
        return (dy * gate * (1 + x * (1 - gate)),)


def gradients() -> None:
    """Requests, heads, modes, several variables, functions and shared results."""
    for request in ("write", "add", "null"):
        w, b = nd.array(numbers("w", 5, 3)), nd.array(numbers("b", 3))
        w.attach_grad(grad_req=request)
        b.attach_grad()
        for _ in range(2):
            with autograd.record():
                hidden = nd.tanh(nd.dot(nd.array(numbers("rows", 4, 5)), w) + b)
                loss = (hidden * hidden).sum() + nd.log(hidden[1:3]).sum()
            loss.backward()
        note(f"gradients with {request}", [loss, w.grad, b.grad])
    x = nd.array(numbers("heads", 3, 4))
    x.attach_grad()
    with autograd.record():
        y, z = x * 2, nd.exp(x)
    autograd.backward([y, z], [nd.array(numbers("y", 3, 4)), None])
    note("several heads", x.grad)
    with autograd.record():
        y = x * x
        with autograd.pause():
            factor = y + 1
        total = (y * factor).sum()
    note("paused, by grad", autograd.grad(total, [x]))
    with autograd.record(train_mode=False):
        note("modes", [autograd.is_training(), autograd.is_recording(), nd.Dropout(x, p=0.5)])
    with autograd.record():
        value = Swish()(x * 1.5)
        shared = nd.concat(value, value[0:2], dim=0)
        loss = (shared.reshape((-1,)) ** 2).sum()
    loss.backward()
    note("a function of one's own", [value, x.grad])
    data = nd.array(numbers("bn", 4, 3))
    states = [nd.ones((3,)), nd.zeros((3,)), nd.zeros((3,)), nd.ones((3,))]
    data.attach_grad()
    with autograd.record():
        normal = nd.BatchNorm(data, *states, fix_gamma=False)
    normal.backward(nd.array(numbers("bn head", 4, 3)))
    note("moving statistics", [normal, data.grad, *states])


def threads() -> None:
    """Calls of several threads, and large operations that run one behind the other."""

    def chain(number: int) -> Any:
        x = nd.array(numbers(f"thread{number}", 300, 300))
        for _ in range(5):
            x = nd.dot(x, x) / 100
            x[number] = number
            x += 0.01
        return x.asnumpy()

    with ThreadPoolExecutor(4) as pool:
        note("threads", list(pool.map(chain, range(6))))
    total = nd.zeros((700, 700))
    for step in range(30):
        total += step
        total *= 0.5
    nd.waitall()
    note("waited for", total)


def errors() -> None:
    """What bad uses say."""
    x = nd.ones((2, 3))
    note_error("dot of wrong shapes", lambda: nd.dot(x, x))
    note_error("unknown parameter", lambda: nd.sum(x, axes=1))
    note_error("bad parameter", lambda: nd.Activation(x, act_type="rellu"))
    note_error("missing parameter", lambda: nd.FullyConnected(x, x))
    note_error("too many inputs", lambda: nd.exp(x, x))
    note_error("index out of range", lambda: x[4])
    note_error("too many indices", lambda: x[0, 0, 0])
    note_error("wrong size", lambda: x.reshape((4, 2)))
    note_error("broadcast", lambda: x + nd.ones((4,)))
    note_error("contexts", lambda: x + nd.ones((2, 3), ctx=mxrun.cpu(1)))
    note_error("types", lambda: x + nd.ones((2, 3), dtype="int32"))
    note_error("backward unrecorded", lambda: (x * 2).backward())
    note_error("grad request", lambda: x.attach_grad(grad_req="sum"))
    note_error("unknown dtype", lambda: nd.ones((2,), dtype="float33"))
    note_error("unknown operator", lambda: nd.covnolution(x))
    note_error("no file", lambda: nd.load("nowhere.params"))
    note_error("truth of many", lambda: bool(x))
    note_error("item of many", lambda: x.asscalar())
    note_error("unknown name", lambda: mxrun.lod)

    def changed_while_recorded() -> None:
        w = nd.ones((2,))
        w.attach_grad()
        with autograd.record():
            y = w * 2
            y += 1
            y *= w
        y.backward()

    note_error("changed while recorded", changed_while_recorded)


if __name__ == "__main__":
    for part in (creation, views, random_numbers, files, gradients, threads, errors):
        part()
    write()
