"""Gradients that share memory with each other, with head gradients or with saved tensors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from imperative import array, call, variable

from mxrun.base.errors import UserError
from mxrun.imperative.arrays.ndarray import NDArray
from mxrun.imperative.differentiation import autograd


def product_of(a: NDArray, b: NDArray) -> NDArray:
    with autograd.record():
        return a * b


def test_added_gradients_in_one_array_are_summed() -> None:
    a, b, gradient = array([1, 2]), array([3, 4]), array([10, 20])
    autograd.mark_variables([a, b], [gradient, gradient], "add")
    autograd.backward(product_of(a, b))
    assert gradient.asnumpy().tolist() == [10 + 4, 20 + 6]


def test_added_gradients_in_overlapping_parts_are_summed() -> None:
    a, b, gradient = array([1, 2]), array([3, 4]), array([0, 0, 0])
    autograd.mark_variables([a, b], [gradient[:2], gradient[1:]], "add")
    autograd.backward(product_of(a, b))
    assert gradient.asnumpy().tolist() == [3, 4 + 1, 2]


def test_gradients_in_parts_of_one_array_are_computed_in_place() -> None:
    a, b, gradient = array([1, 2]), array([3, 4]), array([0, 0, 0, 0])
    autograd.mark_variables([a, b], [gradient[:2], gradient[2:]])
    autograd.backward(product_of(a, b))
    assert gradient.asnumpy().tolist() == [3, 4, 1, 2]


@pytest.mark.parametrize("requests", [["write", "write"], ["add", "write"], ["write", "add"]])
def test_gradients_that_overwrite_each_other_are_refused(requests: list[str]) -> None:
    a, b, gradient = array([1, 2]), array([3, 4]), array([0, 0])
    autograd.mark_variables([a, b], [gradient, gradient], requests)
    with pytest.raises(UserError, match="gradients of two variables share memory"):
        autograd.backward(product_of(a, b))


def test_the_enclosing_one_of_three_gradients_is_found() -> None:
    """The third overlaps with the first, and not with its neighbour."""
    a, b, c, gradient = array([1, 2, 3, 4]), array([5]), array([6]), array([0, 0, 0, 0])
    autograd.mark_variables([a, b, c], [gradient, gradient[1:2], gradient[3:4]], "add")
    with autograd.record():
        y = a * 2
        heads = [y, b * 3, c * 5]
    autograd.backward(heads)
    assert gradient.asnumpy().tolist() == [2, 2 + 3, 2, 2 + 5]


def test_a_gradient_can_be_the_head_s() -> None:
    x = variable([1, 2])
    with autograd.record():
        y = x * x + x * 3
    autograd.backward(y, retain_graph=True)
    assert x.grad.asnumpy().tolist() == [5, 7]
    autograd.backward(y, x.grad)
    assert x.grad.asnumpy().tolist() == [25, 49]


@pytest.mark.parametrize("name", ["lhs", "rhs"])
def test_a_head_s_gradient_is_read_before_it_is_overwritten(name: str) -> None:
    """The gradients of both variables read the whole head gradient."""
    arrays = {"lhs": variable([[1, 2], [3, 4]]), "rhs": variable([[5, 6], [7, 8]])}
    head = arrays[name].grad
    head[:] = np.array([[1, 2], [3, 5]], np.float32)
    with autograd.record():
        y = call("dot", arrays["lhs"], arrays["rhs"])
    autograd.backward(y, head)
    assert arrays["lhs"].grad.asnumpy().tolist() == [[17, 23], [45, 61]]
    assert arrays["rhs"].grad.asnumpy().tolist() == [[10, 17], [14, 24]]


@pytest.mark.parametrize(("request_", "expected"), [("write", [50, 196]), ("add", [55, 203])])
def test_a_gradient_can_be_read_by_the_graph(request_: str, expected: list[float]) -> None:
    x = variable([1, 2], request_)
    x.grad[:] = np.array([5, 7], np.float32)
    with autograd.record():
        y = x * x.grad * x * x.grad
    autograd.backward(y)
    assert x.grad.asnumpy().tolist() == expected


def test_a_gradient_can_be_the_variable_s_own_memory() -> None:
    x = array([1, 2])
    autograd.mark_variables([x], [x])
    with autograd.record():
        y = x * x * x
    autograd.backward(y)
    assert x.asnumpy().tolist() == [3, 12]


def test_the_backward_of_a_function_reads_gradients_as_they_were() -> None:
    x = variable([1, 2], "add")
    x.grad[:] = np.array([5, 7], np.float32)

    class TimesGradient(autograd.Function):
        def forward(self, data: Any) -> Any:
            return data * 1

        def backward(self, gradient: Any) -> Any:
            return gradient * x.grad

    with autograd.record():
        y = TimesGradient()(x) + TimesGradient()(x)
    autograd.backward(y)
    assert x.grad.asnumpy().tolist() == [15, 21]
