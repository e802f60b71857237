"""Every registered operator is a function whose results are those of the operator's own tests."""

from __future__ import annotations

from contextlib import nullcontext
from functools import cache
from typing import Any

import numpy as np
import pytest
from operator_harness import forward
from operator_row import Row, agree
from operator_rows import ROWS

from mxrun import autograd, nd
from mxrun.base.errors import UserError
from mxrun.imperative.calls.functions import operator_function, public_names
from mxrun.operator.numpy_kernel import NUMPY
from mxrun.operator.property import ResourceKind
from mxrun.operator.register import OPERATORS, AnyProperty
from mxrun.operator.signature import COUNT, signature_of

PUBLIC = [name for name in OPERATORS if not OPERATORS.get(name).is_internal]


@cache
def rows_of(operator: str) -> list[Row]:
    return [row for row in ROWS if row.operator == operator]


def draws(prop: AnyProperty, row: Row) -> bool:
    """Return whether the operator draws random numbers in the row's mode."""
    requests = prop.forward_resource([nd.array(each).spec for each in row.inputs("float32")])
    return any(request.kind is ResourceKind.RANDOM for request in requests)


@pytest.mark.parametrize("operator", PUBLIC)
def test_functions_give_what_the_operators_give(operator: str) -> None:
    for row in rows_of(operator):
        prop, inputs = row.create(), row.inputs("float32")
        run = forward(NUMPY, prop, inputs, row.blank_outputs("float32"), is_train=row.is_train)
        assert run is not None
        arrays = [nd.array(value, dtype=value.dtype) for value in inputs]
        parameters = {name: value for name, value in row.parameters.items() if name != COUNT}
        with autograd.train_mode() if row.is_train else nullcontext():
            results = operator_function(operator)(*arrays, **parameters)
        results = results if isinstance(results, list) else [results]
        assert len(results) == prop.num_visible_outputs
        for result, want in zip(results, run.outputs, strict=False):
            got = result.asnumpy()
            assert (got.shape, got.dtype) == (want.shape, want.dtype), row
            if not draws(prop, row):
                agree(got, want, row.agreement, str(row))
        check_inputs(row, prop, inputs, arrays, run.outputs)


def check_inputs(row: Row, prop: AnyProperty, before: Any, arrays: Any, outputs: Any) -> None:
    """N4: inputs are unchanged, but for the states that an update or a call replaces."""
    replaced = {source: outputs[target] for source, target in prop.list_mutated_inputs().items()}
    # The new weight goes to `out`.
    replaced.pop(0, None)
    arguments = len(prop.list_arguments())
    updated = {update.state for update in prop.list_state_updates()} if row.is_train else set()
    updated |= {carried.state for carried in prop.list_carried_states()}
    for index, (array, value) in enumerate(zip(arrays, before, strict=True)):
        if index in replaced:
            agree(array.asnumpy(), replaced[index], row.agreement, str(row))
        elif index < arguments or row.names[index] not in updated:
            assert array.asnumpy().tobytes() == value.tobytes(), row
        else:
            assert array.asnumpy().tobytes() != value.tobytes(), row


def test_functions_have_the_registrys_names_and_documents() -> None:
    assert {*public_names()} <= {*dir(nd)}
    for name in public_names():
        function = operator_function(name)
        kind = OPERATORS.get(name)
        assert function.__name__ == kind.type_string
        assert function.__doc__.splitlines()[0] == (kind.__doc__ or "").strip().splitlines()[0]
        for field in signature_of(name).fields:
            assert f"    {field}: " in function.__doc__


@pytest.mark.parametrize("operator", PUBLIC)
def test_tensors_may_be_given_by_name(operator: str) -> None:
    signature = signature_of(operator)
    if signature.is_variadic:
        return
    row = rows_of(operator)[0]
    arrays = [nd.array(value, dtype=value.dtype) for value in row.inputs("float32")]
    function = operator_function(operator)
    by_name = function(**dict(zip(row.names, arrays, strict=True)), **row.parameters)
    assert isinstance(by_name, (nd.NDArray, list))
    if len(arrays) > 1:
        with pytest.raises(UserError, match="is missing"):
            function(arrays[0], **row.parameters)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("nd.FullyConnected(X, W, B, num_hiden=2)", "'num_hiden'\n.*num_hidden"),
        ("nd.FullyConnected(X, W, B, num_hidden=2.5)", "num_hidden.*\n *expected: integer"),
        ("nd.FullyConnected(X, W, B)", "num_hidden"),
        ("nd.FullyConnected(X, W, num_hidden=2)", "input 'bias' is missing"),
        ("nd.FullyConnected(X, W, B, num_hidden=2, no_bias=True)", "no input 'bias'"),
        ("nd.FullyConnected([[1.0]], W, B, num_hidden=2)", "'data' is not an array.*\n.*NDArray"),
        ("nd.FullyConnected(X, W, B, X, num_hidden=2)", "too many positional"),
        ("nd.FullyConnected(X, X, B, data=X, num_hidden=2)", "'data' is given twice"),
        ("nd.Activation(X, act_type='rely')", "act_type.*\n(.*\n)*.*relu"),
        ("nd.clip(X, 0)", "a_max"),
        ("nd.relu(X, 1)", "too many positional"),
        ("nd.norm(X, 2)", "too many positional.*\n(.*\n)*.*by name"),
        ("nd.concat(dim=0)", "no inputs"),
        ("nd.concat(X, 3)", "argument 1 is not an array"),
        ("nd.concat(X, X, num_args=3)", "num_args"),
        ("nd.elemwise_add(X, B)", "elemwise_add"),
        ("nd.broadcast_add(X, nd.ones((4,)))", "broadcast_add"),
        ("nd.relu(X, out=B)", "out does not fit"),
        ("nd.moments(X, axes=(0,), out=X)", "outputs"),
        ("X + B.astype('float64')", "elemwise|broadcast"),
        ("X.reshape((5, 5))", "reshape"),
        ("X.astype('float23')", "float23.*float32"),
        ("nd.zeros((-1, 2))", "invalid shape"),
        ("nd.array(['a'])", "not an array of numbers"),
    ],
)
def test_calls_that_do_not_fit_are_explained(call: str, message: str) -> None:
    arrays = {"X": nd.ones((2, 3)), "W": nd.ones((2, 3)), "B": nd.ones((2,))}
    with pytest.raises(UserError, match=message):
        eval(call, {"nd": nd, **arrays})


def test_unknown_functions_name_the_nearest() -> None:
    with pytest.raises(AttributeError, match="FullyConnected"):
        _ = nd.FullyConected
    assert not hasattr(nd, "_basic_index")


def test_equal_parameters_find_the_same_operator_and_zeros_keep_their_sign() -> None:
    x = nd.array([1.0])
    assert np.signbit((x * -0.0).asnumpy()).all()
    assert not np.signbit((x * 0.0).asnumpy()).any()
    assert np.signbit(nd._mul_scalar(x, scalar=-0.0).asnumpy()).all()
    assert not np.signbit(nd._mul_scalar(x, scalar=0.0).asnumpy()).any()
    with pytest.raises(UserError, match="keepdims"):
        nd.sum(nd.ones((2, 2)), axis=0, keepdims=nd.sum(x, axis=0, keepdims=True) and 1)
