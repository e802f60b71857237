"""autograd.Function, and differentiation of graphs that it cuts or that are on several contexts."""

from __future__ import annotations

import os
import subprocess

import numpy as np
import pytest
from imperative import array, call, variable

from mxrun import nd
from mxrun.base.context import Context
from mxrun.base.errors import UserError
from mxrun.imperative.arrays.ndarray import NDArray
from mxrun.imperative.differentiation import autograd

# The same program in both libraries; `nd`, `autograd` and `report` are given.
PROGRAM = """
class Sigmoid(autograd.Function):
    def forward(self, x):
        y = 1 / (1 + nd.exp(-x))
        self.save_for_backward(y)
        return y

    def backward(self, dy):
        (y,) = self.saved_tensors
        return dy * y * (1 - y)


class Scaled(autograd.Function):
    def forward(self, x, y):
        return x * 2, y * 3

    def backward(self, dx, dy):
        return dx * 2, dy * 3


x, w = nd.array([[0.5, -1], [2, 0]]), nd.array([[1, 2], [3, 4]])
x.attach_grad()
w.attach_grad("add")
for _ in range(2):
    with autograd.record():
        h = nd.tanh(x * w)
        s = Sigmoid()(h)
        p, q = Scaled()(s * w, h)
        z = nd.elemwise_add(p * x, q) + s
    z.backward(nd.array([[1, 2], [3, 4]]))
report(x.grad, w.grad)
"""


def run_program() -> list[np.ndarray]:
    found: list[np.ndarray] = []
    given = {
        "nd": nd,
        "autograd": autograd,
        "report": lambda *arrays: found.extend(each.asnumpy() for each in arrays),
    }
    exec(PROGRAM, given)
    return found


def by_differences() -> list[np.ndarray]:
    """The same gradients by central differences of the function in float64."""
    x, w = np.array([[0.5, -1], [2, 0]]), np.array([[1.0, 2], [3, 4]])
    weights = np.array([[1.0, 2], [3, 4]])

    def value(x: np.ndarray, w: np.ndarray) -> float:
        h = np.tanh(x * w)
        s = 1 / (1 + np.exp(-h))
        return float((weights * (s * w * 2 * x + h * 3 + s)).sum())

    gradients = []
    for position in range(2):
        gradient = np.zeros((2, 2))
        for index in np.ndindex(2, 2):
            step = np.zeros((2, 2))
            step[index] = 1e-5
            up, down = [x, w], [x, w]
            up[position], down[position] = up[position] + step, down[position] - step
            gradient[index] = (value(*up) - value(*down)) / 2e-5
        gradients.append(gradient)
    return [gradients[0], 2 * gradients[1]]


def test_functions_cut_the_graph() -> None:
    for found, expected in zip(run_program(), by_differences(), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.skipif("MXRUN_MXNET_PYTHON" not in os.environ, reason="MXRUN_MXNET_PYTHON is not set")
def test_functions_compute_what_mxnet_s_do() -> None:
    script = (
        "from mxnet import nd, autograd\n"
        "def report(*arrays):\n"
        "    print([each.asnumpy().tolist() for each in arrays])\n" + PROGRAM
    )
    command = [os.environ["MXRUN_MXNET_PYTHON"], "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    expected = np.array(eval(done.stdout.splitlines()[-1]))
    np.testing.assert_allclose(np.array(run_program()), expected, rtol=1e-4, atol=1e-4)


class Doubled(autograd.Function):
    """Function of which the gradient is given."""

    def __init__(self, gradient: object = 2.0) -> None:
        super().__init__()
        self.gradient = gradient

    def forward(self, x: NDArray) -> NDArray:
        return x * 2

    def backward(self, dy: NDArray) -> object:
        return dy * self.gradient if isinstance(self.gradient, float) else self.gradient


def test_a_loss_before_a_function_is_differentiated_once() -> None:
    """Its gradient does not depend on how often backward passes through."""
    x = variable([[1, 2]])
    with autograd.record():
        loss = call("SoftmaxOutput", x, array([1]))
        z = Doubled()(loss) + loss
    autograd.backward(z)
    expected = [[0.26894143, -0.26894143]]
    np.testing.assert_allclose(x.grad.asnumpy(), expected, rtol=1e-5)


def test_outputs_without_a_gradient_have_zeros() -> None:
    seen = []

    class Split(autograd.Function):
        def forward(self, x: NDArray) -> tuple[NDArray, NDArray]:
            return x * 2, x * 3

        def backward(self, first: NDArray, second: NDArray) -> NDArray:
            seen.append(second.asnumpy().tolist())
            return first * 2

    x = variable([1, 2])
    with autograd.record():
        first, _ = Split()(x)
    autograd.backward(first)
    assert seen == [[0, 0]]
    assert x.grad.asnumpy().tolist() == [2, 2]


def test_none_is_no_gradient() -> None:
    x = variable([1, 2])
    with autograd.record():
        y = Doubled(None)(x)
    autograd.backward(y)
    assert x.grad.asnumpy().tolist() == [0, 0]


def test_functions_are_freed_like_operators() -> None:
    x = variable([1, 2])
    with autograd.record():
        y = Doubled()(x)
    autograd.backward(y, retain_graph=True)
    autograd.backward(y)
    with pytest.raises(UserError, match="retain_graph"):
        autograd.backward(y)


def test_faults_of_functions_are_explained() -> None:
    x = variable([1, 2])
    function = Doubled()
    function(x)
    with pytest.raises(UserError, match="twice"):
        function(x)
    for wrong, message in (((1, 2), "2 gradients"), (array([1, 2, 3]), r"float32\[3\]")):
        with autograd.record():
            y = Doubled(wrong)(x)
        with pytest.raises(UserError, match=message):
            autograd.backward(y)


def test_heads_on_several_contexts() -> None:
    """As data-parallel training has them: one call of backward for the losses of all contexts."""
    variables = [variable([1, 2]), array([3, 4], context=Context("cpu", 1))]
    autograd.attach_grad(variables[1])
    with autograd.record():
        heads = [call("elemwise_mul", each, each) for each in variables]
    autograd.backward(heads)
    assert [each.grad.asnumpy().tolist() for each in variables] == [[2, 4], [6, 8]]
    assert variables[1].grad.context == Context("cpu", 1)


def test_heads_that_are_variables_of_two_shapes() -> None:
    for values in ([1, 2], [1, 2, 3]):
        x = variable(values)
        autograd.backward(x)
        assert x.grad.asnumpy().tolist() == [1] * len(values)
