"""Indices: views where elements are contiguous, assignment, and gradients through both."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mxrun import autograd, nd
from mxrun.base.errors import UserError
from mxrun.runtime.engine.failure import JobError

VALUES = np.arange(24, dtype="float32").reshape(2, 3, 4)

VIEWS = (
    *("x[0]", "x[-1]", "x[1:]", "x[0:1]", "x[1, 2]", "x[1, 1:3]", "x[0, 2, 1:3]", "x[...]"),
    *("x[None]", "x[0:1, 1]", "x[1, :, :]", "x[1][2]", "x[:]", "x[1, 2, 3]", "x[0:1, 0:1, 1:3]"),
    *("x.reshape(4, 6)", "x.reshape((-1,))[5:7]", "x.reshape_like(x)", "x.detach()"),
)
COPIES = (
    *("x[:, 1]", "x[..., 0]", "x[:, 1:3]", "x[::-1]", "x[:, ::2]", "x[0, :, 1]", "x.copy()"),
    *("x[[1, 0]]", "x[nd.array([1])]", "x[np.array([True, False])]", "x.T", "x.astype('float32')"),
    *("nd.Flatten(x)", "nd.Reshape(x, shape=(4, 6))", "x.flatten()"),
    *("x.slice_axis(axis=0, begin=0, end=1)", "x.slice((0,), (1,))", "x.broadcast_to(x.shape)"),
)


@pytest.mark.parametrize("text", VIEWS)
def test_contiguous_parts_share_memory(text: str) -> None:
    x = nd.array(VALUES)
    part = eval(text, {"x": x})
    assert part.chunk is x.chunk
    before = part.asnumpy()
    part += 100
    assert (x.asnumpy() >= 100).sum() == before.size
    np.testing.assert_array_equal(part.asnumpy(), before + 100)


@pytest.mark.parametrize("text", COPIES)
def test_other_parts_are_copies(text: str) -> None:
    x = nd.array(VALUES)
    part = eval(text, {"x": x, "nd": nd, "np": np})
    part[:] = -1
    np.testing.assert_array_equal(x.asnumpy(), VALUES)


def index_parts(size: int) -> st.SearchStrategy[Any]:
    bound = st.one_of(st.none(), st.integers(-size - 1, size + 1))
    step = st.one_of(st.none(), st.sampled_from([1, 2, -1, -2]))
    return st.one_of(st.integers(-size, size - 1), st.builds(slice, bound, bound, step))


KEYS = st.one_of(
    st.tuples(*map(index_parts, VALUES.shape)),
    st.tuples(*map(index_parts, VALUES.shape[:2])),
    st.tuples(index_parts(2), st.just(Ellipsis), index_parts(4)),
    st.tuples(st.none(), index_parts(2), st.none(), index_parts(3)),
    index_parts(2),
)


@given(KEYS)
def test_every_basic_index_is_numpys(key: Any) -> None:
    x = nd.array(VALUES)
    want = VALUES[key]
    np.testing.assert_array_equal(x[key].asnumpy(), np.reshape(want, np.shape(want) or (1,)))


@given(KEYS)
def test_assignment_is_numpys(key: Any) -> None:
    x, want = nd.array(VALUES), VALUES.copy()
    x[key], want[key] = -1, -1
    np.testing.assert_array_equal(x.asnumpy(), want)
    new = np.random.default_rng(0).random(np.shape(want[key]), "float32")
    want[key] = new
    for value in (new, nd.array(new)):
        x[key] = value
        np.testing.assert_array_equal(x.asnumpy(), want)


@given(KEYS)
def test_recorded_indices_have_gradients(key: Any) -> None:
    x = nd.array(VALUES)
    x.attach_grad()
    with autograd.record():
        part = x[key] * 3
    part.backward()
    want = np.zeros_like(VALUES)
    want[key] = 3
    np.testing.assert_array_equal(x.grad.asnumpy(), want)


def test_recorded_shapes_have_gradients() -> None:
    x = nd.array(VALUES)
    x.attach_grad()
    with autograd.record():
        y = x.reshape((6, 4))[1:5].T.reshape(-1).slice_axis(axis=0, begin=0, end=3) * 2
    y.backward()
    want = np.zeros((6, 4), "float32")
    want[1:4, 0] = 2
    np.testing.assert_array_equal(x.grad.asnumpy(), want.reshape(VALUES.shape))


@pytest.mark.parametrize("value", [5, 2.5, [1, 2, 3, 4], np.ones((3, 1)), np.ones((1, 1, 3, 4))])
def test_values_are_broadcast(value: Any) -> None:
    x, want = nd.array(VALUES), VALUES.copy()
    x[1] = value
    want[1] = np.asarray(value).reshape(np.shape(value)[-2:])
    np.testing.assert_array_equal(x.asnumpy(), want)


def test_assignment_converts_the_data_type() -> None:
    x = nd.zeros((3,), dtype="int32")
    x[:] = nd.array([1.7, -2.5, 3.2])
    x[0] = 7.9
    np.testing.assert_array_equal(x.asnumpy(), [7, -2, 3])


def test_index_arrays_are_numpys() -> None:
    x = nd.array(VALUES)
    for key in ([1, 0, 1], np.array([[0, 1]]), (slice(None), [2, 0]), ([0, 1], [2, 1], [3, 0])):
        np.testing.assert_array_equal(x[key].asnumpy(), VALUES[key])
    np.testing.assert_array_equal(x[nd.array([1, 0])].asnumpy(), VALUES[[1, 0]])
    rows = nd.array([0, 2], dtype="int32")
    np.testing.assert_array_equal(x[0, rows].asnumpy(), VALUES[0, [0, 2]])
    want = VALUES.copy()
    x[:, rows] = 7
    want[:, [0, 2]] = 7
    np.testing.assert_array_equal(x.asnumpy(), want)
    with pytest.raises(JobError, match=r"getitem.*out of bounds"):
        x[nd.array([5])].asnumpy()


@pytest.mark.parametrize(
    ("key", "message"),
    [
        (2, "index 2 is out of bounds for axis 0 with size 2"),
        ((0, -4), "index -4 is out of bounds for axis 1"),
        ((0, 0, 0, 0), "too many indices"),
        ((..., ...), "single ellipsis"),
    ],
)
def test_indices_out_of_range_raise(key: Any, message: str) -> None:
    x = nd.array(VALUES)
    with pytest.raises(IndexError, match=message):
        x[key]
    with pytest.raises(IndexError, match=message):
        x[key] = 0


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_indices_that_are_not_finite_are_refused(value: float) -> None:
    x = nd.array(VALUES)
    with pytest.raises(UserError, match="an index is not finite"):
        x[np.array([0, value])]
    with pytest.raises(JobError, match="an index is not finite"):
        x[nd.array([0, value])].asnumpy()


@pytest.mark.parametrize("value", [np.ones((5,)), np.ones((2, 3, 4)), nd.ones((2, 4)), ["a"], None])
def test_values_that_do_not_fit_are_refused(value: Any) -> None:
    x = nd.array(VALUES)
    with pytest.raises(UserError):
        x[1] = value
    np.testing.assert_array_equal(x.asnumpy(), VALUES)


def test_recorded_arrays_cannot_be_changed() -> None:
    x = nd.ones((3,))
    x.attach_grad()
    with autograd.record():
        y = x * 2
        for change in (
            lambda: y.__setitem__(0, 1),
            lambda: y.__iadd__(1),
            lambda: nd.ones((3,)).copyto(y),
            lambda: y[[0, 1]],
            lambda: nd.ones((3,)).__setitem__(0, y[1]),
        ):
            with pytest.raises(UserError, match="record"):
                change()
        with pytest.raises(UserError, match=r"make a new array with nd\.concat, nd\.stack"):
            nd.ones((3,))[:] = y
    y[0] = 5
    np.testing.assert_array_equal(y.asnumpy(), [5, 2, 2])


def test_an_assignment_takes_the_callers_values_at_once() -> None:
    values = np.zeros(100_000, "float32")
    x = nd.ones(values.shape)
    x[:] = values
    values[:] = 5
    assert not x.asnumpy().any()


def test_empty_parts() -> None:
    x = nd.array(VALUES)
    for key in (slice(0, 0), (0, slice(2, 1)), (slice(None), slice(3, None))):
        assert x[key].shape == VALUES[key].shape
        assert x[key].asnumpy().shape == VALUES[key].shape
        x[key] = 1
    np.testing.assert_array_equal(x.asnumpy(), VALUES)


LINEAR = (
    *("x.slice((0, 1), (2, 3))", "x.slice_axis(axis=1, begin=1, end=3)", "x.flip(axis=2)"),
    *("x.repeat(2)", "x.repeat(3, axis=1)", "x.tile((2, 1, 1))", "x.take(i)", "x.take(i, axis=2)"),
    *("x.pick(nd.ones((2, 3)))", "x[0:1].broadcast_to((5, 3, 4))", "nd.stack(x, x, axis=1)"),
    *("x.T", "x.reshape((0, -1))", "x[:, None, 1:]", "x.expand_dims(1)", "x.swapaxes(0, 2)"),
)


@pytest.mark.parametrize("text", LINEAR)
def test_gradients_of_linear_functions(text: str) -> None:
    """<gradient of <f(x), w>, v> is <f(v), w> for every linear function f."""
    random = np.random.default_rng(4)

    def function(x: Any) -> Any:
        return eval(text, {"x": x, "nd": nd, "i": nd.array([1, 0, 1])})

    x, v = (nd.array(random.standard_normal(VALUES.shape)) for _ in range(2))
    x.attach_grad()
    with autograd.record():
        y = function(x)
    weights = nd.array(random.standard_normal(y.shape))
    y.backward(weights)
    got, want = (x.grad * v).sum().item(), (function(v) * weights).sum().item()
    assert got == pytest.approx(want, rel=1e-4, abs=1e-4)


@pytest.mark.parametrize(
    "text",
    ["x.broadcast_to((2, 5, 4))", "x.flip(axis=3)", "x.take(x, axis=-4)", "x.repeat(2, axis=3)"],
)
def test_composites_that_do_not_fit_are_explained(text: str) -> None:
    with pytest.raises(UserError, match=r"broadcast_to|axis 3|axis -4"):
        eval(text, {"x": nd.array(VALUES)})
