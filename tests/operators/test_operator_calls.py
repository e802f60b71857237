"""Calls give operator bodies their tensors by name, and store results according to requests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from executors import cpu
from launches import bound, handles_of
from operator_harness import forward, spec_of

from mxrun.operator.kernel import (
    BackwardRequest,
    ForwardRequest,
    Kernel,
    OpReqType,
)
from mxrun.operator.numpy_kernel import NUMPY
from mxrun.operator.operator import BackwardCall, ByName, ForwardCall, Operator
from mxrun.operator.register import AnyProperty, create

Array = np.ndarray[Any, Any]
DATA, WEIGHT = np.arange(3, dtype="float32"), np.ones((2, 3), "float32")
INPUTS: ByName[Array] = ByName("input", ("data", "weight"), (DATA, WEIGHT))


def stored(requests: Sequence[OpReqType], outputs: Sequence[Array]) -> ForwardCall:
    """A call with outputs called `output` and `loss`."""
    names = ("output", "loss")[: len(outputs)]
    return ForwardCall(
        inputs=INPUTS,
        outputs=ByName("output", names, outputs),
        requests=ByName("output", names, requests),
        is_train=True,
        resources=(),
        auxiliary=ByName("auxiliary state", (), ()),
    )


def test_O11_a_tensor_is_found_by_name_and_by_index() -> None:
    assert INPUTS.weight is INPUTS["weight"] is INPUTS[1] is INPUTS[-1] is WEIGHT
    assert [tensor.shape for tensor in INPUTS] == [(3,), (2, 3)]
    assert len(INPUTS) == 2
    assert "weight" in INPUTS
    assert "bias" not in INPUTS


def test_an_unknown_name_is_an_error_that_lists_the_known_ones() -> None:
    expected = "no input 'bias'; it has: data, weight"
    with pytest.raises(AttributeError, match=expected):
        _ = INPUTS.bias
    with pytest.raises(AttributeError, match=expected):
        _ = INPUTS["bias"]
    call = stored([OpReqType.WRITE], [DATA.copy()])
    for action in (lambda: call.store(bias=0), lambda: call.is_requested("bias")):
        with pytest.raises(AttributeError, match="no output 'bias'; it has: output"):
            action()
    with pytest.raises(AttributeError, match="it has: none"):
        _ = call.auxiliary.moving_mean
    with pytest.raises(IndexError):
        _ = INPUTS[2]


def test_tensors_cannot_be_replaced() -> None:
    call = stored([OpReqType.WRITE], [DATA.copy()])
    with pytest.raises(AttributeError, match=r"store results with call\.store\(output=\.\.\.\)"):
        call.outputs.output = DATA
    with pytest.raises(AttributeError):
        call.outputs = INPUTS  # type: ignore[misc]


@pytest.mark.parametrize(
    ("request_type", "expected"),
    [
        (OpReqType.NULL, [5, 6]),
        (OpReqType.WRITE, [1, 2]),
        (OpReqType.INPLACE, [1, 2]),
        (OpReqType.ADD, [6, 8]),
    ],
)
def test_Q13_store_knows_the_four_requests(request_type: OpReqType, expected: list[float]) -> None:
    memory = np.array([5, 6], "float32")
    call = stored([request_type], [memory])
    assert call.is_requested("output") is (request_type is not OpReqType.NULL)
    call.store(output=[1, 2])
    assert memory.tolist() == expected


@pytest.mark.parametrize("request_type", [OpReqType.WRITE, OpReqType.ADD])
def test_a_value_of_another_shape_is_not_repeated(request_type: OpReqType) -> None:
    memory = np.full(6, 2.0, "float32")
    call = stored([request_type], [memory])
    for shape in ((1,), (1, 6), (2, 3), (3,)):
        with pytest.raises(ValueError, match=r"for output, a tensor of shape \(6,\)"):
            call.store(output=np.ones(shape, "float32"))
    assert memory.tolist() == [2.0] * 6
    # A scalar is stored in every element.
    call.store(output=1.0)
    assert memory.tolist() == [1.0 + 2.0 * (request_type is OpReqType.ADD)] * 6


def test_all_results_can_be_stored_in_order() -> None:
    outputs = np.zeros(3, "float32"), np.zeros(1, "float32")
    call = stored([OpReqType.WRITE, OpReqType.ADD], outputs)
    call.store(DATA, 2)
    call.store(DATA, 3)
    assert [array.tolist() for array in outputs] == [[0, 1, 2], [5]]
    with pytest.raises(ValueError, match="1 values for output, loss"):
        call.store(DATA)


class Recorder(Operator):
    """Body that keeps the calls it gets."""

    def __init__(self) -> None:
        self.forwards: list[ForwardCall] = []
        self.backwards: list[BackwardCall] = []

    def forward(self, call: ForwardCall) -> None:
        self.forwards.append(call)

    def backward(self, call: BackwardCall) -> None:
        self.backwards.append(call)


def recorded(operator: str, parameters: dict[str, object]) -> tuple[AnyProperty, Recorder]:
    """The property of an operator with a recorder as its body."""
    prop, body = create(operator, parameters), Recorder()
    members = {"create_operator": lambda self: body}
    return type("Recorded", (type(prop),), members)(prop.parameters), body


def run_twice(kernel: Kernel, inputs: Sequence[Array | None], outputs: Sequence[Array]) -> None:
    run = bound(kernel, handles_of(inputs, outputs))
    run()
    run()


def test_an_output_with_a_null_request_has_a_shape_and_cannot_be_written() -> None:
    prop, body = recorded("SoftmaxOutput", {})
    inputs = np.ones((2, 3), "float32"), np.zeros(2, "int32")
    outputs = np.full((2, 3), 5, "float32"), np.zeros(1, "float32")
    specs = (tuple(map(spec_of, arrays)) for arrays in (inputs, outputs))
    request = ForwardRequest(*specs, (OpReqType.NULL, OpReqType.WRITE), True, cpu())
    run_twice(NUMPY.prepare_forward(prop, request), inputs, outputs)
    # The tensors of a kernel are made once.
    call, again = body.forwards
    assert call is again
    assert (call.outputs.output.shape, call.outputs.output.dtype) == ((2, 3), np.float32)
    with pytest.raises(ValueError, match="read-only"):
        call.outputs.output[...] = 1
    call.store(output=1, loss=7)
    assert outputs[0].tolist() == [[5] * 3] * 2
    assert outputs[1].tolist() == [7]


def test_what_forward_reads_cannot_be_written() -> None:
    prop, body = recorded("elemwise_add", {})
    lhs, rhs = np.ones(3, "float32"), np.full(3, 2, "float32")
    request = ForwardRequest(
        (spec_of(lhs), spec_of(rhs)), (spec_of(lhs),), (OpReqType.INPLACE,), True, cpu()
    )
    run_twice(NUMPY.prepare_forward(prop, request), [lhs, rhs], [lhs])
    call, _ = body.forwards
    for name in ("lhs", "rhs"):
        with pytest.raises(ValueError, match="read-only"):
            call.inputs[name] += 1
    # The output is an array of its own, in the memory of an input.
    call.outputs.output[...] = 4
    assert call.inputs.lhs.tolist() == lhs.tolist() == [4, 4, 4]


def test_what_backward_reads_cannot_be_written() -> None:
    prop, body = recorded("elemwise_mul", {})
    lhs, rhs, gradient = (np.full(3, value, "float32") for value in (2, 3, 5))
    run = forward(NUMPY, prop, [lhs, rhs], [np.zeros_like(lhs)])
    assert run is not None
    spec = spec_of(lhs)
    requests = (OpReqType.INPLACE, OpReqType.WRITE)
    request = BackwardRequest(
        (spec,), (spec, spec), (None,), (spec, spec), requests, run.kernel, cpu()
    )
    outputs = [gradient, np.zeros_like(lhs)]
    kernel = NUMPY.prepare_backward(prop, request)
    run_twice(kernel, [gradient, lhs, rhs, None], outputs)
    call, _ = body.backwards
    for array in (call.output_gradients.output, call.inputs.lhs, call.inputs.rhs):
        with pytest.raises(ValueError, match="read-only"):
            array += 1
    call.input_gradients.lhs[...] = 7
    assert gradient.tolist() == [7, 7, 7]


def test_mutated_inputs_can_be_written() -> None:
    prop, body = recorded("_moving_average", {"momentum": 0.5})
    average, value = np.ones(3, "float32"), np.ones(3, "float32")
    specs = (spec_of(average), spec_of(value))
    request = ForwardRequest(specs, specs[:1], (OpReqType.INPLACE,), True, cpu())
    run_twice(NUMPY.prepare_forward(prop, request), [average, value], [average])
    call, _ = body.forwards
    call.inputs.average[...] = 8
    assert average.tolist() == [8, 8, 8]
    with pytest.raises(ValueError, match="read-only"):
        call.inputs.value[...] = 8


def test_reading_an_absent_tensor_is_an_error_that_names_it_and_the_reason() -> None:
    reason = "a tensor that declare_backward_dependency does not name"
    absent: ByName[Array] = ByName("input", ("data", "weight"), (DATA, None), reason)
    assert "weight" not in absent
    assert absent.data is DATA
    reads = (lambda: absent.weight, lambda: absent["weight"], lambda: absent[1], lambda: [*absent])
    for read in reads:
        with pytest.raises(TypeError, match=f"backward reads the input 'weight', {reason}"):
            read()


def test_backward_sees_the_declared_tensors_and_the_gradients_that_are_there() -> None:
    prop, body = recorded("SliceChannel", {"num_outputs": 2})
    data, part = np.zeros((2, 4), "float32"), np.full((2, 2), 3, "float32")
    run = forward(NUMPY, prop, [data], [part, part])
    assert run is not None
    spec = spec_of(part)
    request = BackwardRequest(
        (None, spec), (None,), (None, None), (spec_of(data),), (OpReqType.WRITE,), run.kernel, cpu()
    )
    run_twice(NUMPY.prepare_backward(prop, request), [None, part, None, None, None], [data])
    call, again = body.backwards
    assert call is again
    assert call.is_train
    assert "output0" not in call.output_gradients
    assert call.output_gradients.output1.tolist() == [[3, 3]] * 2
    with pytest.raises(TypeError, match=r"gradient of 'output0', .* or .* that nothing reads"):
        _ = call.output_gradients.output0
    with pytest.raises(TypeError, match="reads the output 'output1', a tensor that declare_"):
        _ = call.outputs.output1
    call.store(data=4)
    assert data.tolist() == [[4] * 4] * 2
    assert call.input_gradients.data.ctypes.data == data.ctypes.data
