"""Failures of operators as programs see them."""

from __future__ import annotations

import gc
import traceback
import weakref

import numpy as np
import pytest
from memory_in_use import bytes_in_use

import mxrun
from mxrun import nd
from mxrun.operator.property import ResourceKind, ResourceRequest
from mxrun.operator.simple import simple_operator


class Held(np.ndarray):
    """Array that can be watched."""


watched: list[weakref.ref[Held]] = []


@pytest.fixture(autouse=True)
def _operators(separate_registry: None) -> None:
    """Register the operators of this file for one test."""
    for function in (fails_holding_an_array, changes_its_input):
        simple_operator(function.__name__)(function)
    space = ResourceRequest(ResourceKind.TEMP_SPACE, 5_000)
    simple_operator("fails_with_space", resource=space)(fails_with_space)


def fails_holding_an_array(env, data):  # type: ignore[no-untyped-def]
    """Raise an exception whose traceback refers to an array. No gradient."""
    held = np.zeros(8).view(Held)
    watched.append(weakref.ref(held))
    raise ValueError("broken")


def changes_its_input(env, data):  # type: ignore[no-untyped-def]
    """output = data + 1, computed in the wrong place. No gradient."""
    data += 1
    return data


def fails_with_space(env, data):  # type: ignore[no-untyped-def]
    """Raise an exception while temporary space is in use. No gradient."""
    assert env.call.space(0).nbytes >= 5_000
    raise ValueError("broken")


@pytest.mark.full
def test_a_failing_operator_releases_its_temporary_space() -> None:
    x = nd.ones((2,))
    before = bytes_in_use()
    for _ in range(2):
        with pytest.raises(mxrun.MxrunError, match="broken"):
            nd.fails_with_space(x).asnumpy()
    assert bytes_in_use() == before


def test_a_body_that_changes_its_input_fails_at_that_line() -> None:
    x = nd.ones((2,))
    with pytest.raises(mxrun.MxrunError, match="read-only") as raised:
        nd.changes_its_input(x).asnumpy()
    assert "data += 1" in "".join(traceback.format_exception(raised.value))
    assert x.asnumpy().tolist() == [1, 1]


def test_waitall_raises_only_what_no_wait_has_raised() -> None:
    first, second = (nd.fails_holding_an_array(nd.ones((n,))) for n in (2, 3))
    for _ in range(2):
        with pytest.raises(mxrun.MxrunError, match="broken"):
            first.asnumpy()
    with pytest.raises(mxrun.MxrunError) as raised:
        nd.waitall()
    assert str(raised.value) == "fails_holding_an_array failed: broken"
    nd.waitall()
    with pytest.raises(mxrun.MxrunError, match="broken"):
        second.asnumpy()


@pytest.mark.full
def test_a_failure_that_was_raised_is_forgotten_with_its_arrays() -> None:
    watched.clear()
    failed = nd.fails_holding_an_array(nd.ones((2,)))
    with pytest.raises(mxrun.MxrunError, match="broken"):
        failed.asnumpy()
    del failed
    gc.collect()
    assert [reference() for reference in watched] == [None]
