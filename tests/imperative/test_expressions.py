"""Expressions on arrays give the values of MXNet 1.9.1, and of NumPy where both mean the same."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from array_expressions import ARITHMETIC, COMPARISONS, GROUPS, INDICES, operands
from oracles.peer import MXNet

from mxrun import nd
from mxrun.imperative.calls.functions import operator_function, public_names
from mxrun.operator.signature import signature_of

Array = npt.NDArray[Any]


@cache
def mxnet() -> MXNet:
    return MXNet()


@pytest.fixture(autouse=True, scope="module")
def _stopped_afterwards() -> Iterator[None]:
    yield
    if MXNet.unavailable() is None:
        mxnet().close()
        mxnet.cache_clear()


def evaluated(text: str) -> Array:
    arrays = {name: nd.array(value, dtype=value.dtype) for name, value in operands().items()}
    value: Array = eval(text, {"nd": nd, **arrays}).asnumpy()
    return value


def agree(got: Array, want: Array, text: str) -> None:
    assert (got.shape, got.dtype) == (want.shape, want.dtype), text
    if want.dtype.kind == "f":
        tolerance = 1e-3 if want.dtype == np.float16 else 1e-5
        np.testing.assert_allclose(got, want, tolerance, tolerance / 10, err_msg=text)
    else:
        np.testing.assert_array_equal(got, want, text)


@pytest.mark.parametrize("kind", GROUPS)
def test_expressions_agree_with_mxnet(kind: str) -> None:
    reason = MXNet.unavailable()
    if reason is not None:
        pytest.skip(reason)
    for text, want in zip(GROUPS[kind], mxnet().evaluate(GROUPS[kind], operands()), strict=True):
        agree(evaluated(text), want, text)


@pytest.mark.parametrize("text", [*ARITHMETIC, *COMPARISONS, *INDICES])
def test_expressions_agree_with_numpy(text: str) -> None:
    with np.errstate(all="ignore"):
        want = np.asarray(eval(text, {"nd": np, **operands()}))
    # A comparison has the type of its operands, and a single element one axis.
    want = want.astype("float32") if want.dtype == bool else want
    agree(evaluated(text), want.reshape(want.shape or (1,)), text)


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("X // Y", lambda X, Y, **_: X // Y),  # noqa: N803
        ("X // 0.3", lambda X, **_: X // np.float32(0.3)),  # noqa: N803
        ("7 // X", lambda X, **_: np.float32(7) // X),  # noqa: N803
        ("I // J", lambda I, J, **_: I // J),  # noqa: N803, E741
        ("-I // J", lambda I, J, **_: -I // J),  # noqa: N803, E741
        ("X @ Y.T", lambda X, Y, **_: X @ Y.T),  # noqa: N803
        ("X @ V", lambda X, V, **_: X @ V),  # noqa: N803
        ("Z @ V", lambda Z, V, **_: Z @ V),  # noqa: N803
        ("Z @ Y.T", lambda Z, Y, **_: Z @ Y.T),  # noqa: N803
        ("Z @ Z.transpose((0, 2, 1))", lambda Z, **_: Z @ Z.transpose(0, 2, 1)),  # noqa: N803
    ],
)
def test_operators_that_mxnet_lacks_are_numpys(text: str, want: Any) -> None:
    agree(evaluated(text), want(**operands()), text)


def test_parameters_have_mxnets_positions() -> None:
    """A parameter that may be given by position is the one that MXNet has there."""
    reason = MXNet.unavailable()
    if reason is not None:
        pytest.skip(reason)
    positional = [name for name in public_names() if signature_of(name).positional]
    theirs = mxnet().positions(positional)
    assert len(theirs) > 100
    # Optional inputs and parameters of MXNet that are not here.
    absent = {"length", "forward_stype", "use_length", "out_dtype"}
    for name, listed in theirs.items():
        signature = signature_of(name)
        ours = [*signature.tensor_names, *signature.fields]
        known = [each for each in listed if each not in {*absent, "out", "name", "kwargs"}]
        if known[:1] != ["args"]:
            shared = [each for each in known if each in ours]
            assert ours == shared or ours[: len(known)] == known, name


def test_a_function_is_made_once() -> None:
    assert nd.relu is operator_function("relu")
    assert nd.concat is nd.Concat
