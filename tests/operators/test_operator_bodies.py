"""Every operator row: values, gradients, requests, in-place hints, undeclared inputs."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from families import optimizer_update
from families.softmax_output import softmax_gradient
from operator_harness import (
    SENTINEL,
    BackwardData,
    ForwardRun,
    all_implementations,
    backward,
    default_requests,
    forward,
)
from operator_row import Row
from operator_rows import DIFFERENTIABLE, EVALUATED, OBJECTIVES, REFERENCES, ROWS

from mxrun.backend.onednn import library as onednn
from mxrun.operator.kernel import OpReqType
from mxrun.operator.numpy_kernel import NUMPY
from mxrun.operator.property import GradientKind
from mxrun.operator.register import AnyProperty, Implementation, implementations

Array = npt.NDArray[Any]
NULL, WRITE, INPLACE, ADD = OpReqType

UPDATES = list(optimizer_update.REFERENCES)

every_row = pytest.mark.parametrize("row", ROWS, ids=str)
differentiable = pytest.mark.parametrize("row", DIFFERENTIABLE, ids=str)


def computed(row: Row, inputs: list[Array], implementation: Implementation = NUMPY) -> ForwardRun:
    run = forward(
        implementation,
        row.create(),
        inputs,
        row.blank_outputs(dtype_of(inputs)),
        is_train=row.is_train,
    )
    assert run is not None
    return run


def dtype_of(inputs: list[Array]) -> str:
    """float32 or float64, whichever the row was drawn in."""
    wide = any(array.dtype == np.float64 for array in inputs)
    return "float64" if wide else "float32"


def backward_data(row: Row, inputs: list[Array], run: ForwardRun) -> BackwardData:
    random = np.random.default_rng(7)
    out_grad = [random.standard_normal(output.shape).astype(output.dtype) for output in run.outputs]
    return BackwardData(out_grad, inputs[: len(row.create().list_arguments())], run.outputs)


def blank_gradients(prop: AnyProperty, inputs: list[Array], value: float = np.nan) -> list[Array]:
    return [
        np.full_like(array, value if np.issubdtype(array.dtype, np.floating) else 0)
        for array in inputs[: len(prop.list_arguments())]
    ]


def asked(prop: AnyProperty) -> list[int]:
    kinds = prop.list_gradients()
    return [index for index, kind in enumerate(kinds) if kind is GradientKind.COMPUTES]


@every_row
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_O1_forward_equals_an_independent_formula(row: Row, dtype: str) -> None:
    inputs = row.inputs(dtype)
    references = REFERENCES if row.is_train else {**REFERENCES, **EVALUATED}
    expected = references[row.operator](row.create().parameters, inputs)
    tolerance = 2e-5 if dtype == "float32" else 1e-12
    for got, want in zip(computed(row, inputs).outputs, expected, strict=True):
        assert got.dtype == want.dtype
        np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance)


def objective(row: Row, inputs: list[Array], out_grad: list[Array]) -> float:
    """The scalar whose gradient backward gives: <out_grad, outputs>, or what the family says."""
    outputs = computed(row, inputs).outputs
    if row.operator in OBJECTIVES:
        return OBJECTIVES[row.operator](row, inputs, outputs, out_grad)
    return sum(
        float((out_grad[index] * outputs[index]).sum())
        for index in range(row.create().num_visible_outputs)
    )


@pytest.mark.parametrize("row", [row for row in DIFFERENTIABLE if row.differentiable], ids=str)
def test_O1_gradients_equal_central_differences_in_float64(row: Row) -> None:
    prop, inputs = row.create(), row.inputs("float64")
    run = computed(row, inputs)
    data = backward_data(row, inputs, run)
    gradients = backward(NUMPY, prop, data, blank_gradients(prop, inputs), run)
    step = 1e-6
    for index in asked(prop):
        direction = np.random.default_rng(index).standard_normal(inputs[index].shape)
        ends = []
        for sign in (1, -1):
            moved = list(inputs)
            moved[index] = inputs[index] + sign * step * direction
            ends.append(objective(row, moved, list(data.out_grad)))
        numeric = (ends[0] - ends[1]) / (2 * step)
        analytic = float((gradients[index] * direction).sum())
        np.testing.assert_allclose(analytic, numeric, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("row", [r for r in ROWS if r.operator == "SoftmaxOutput"], ids=str)
def test_O1_softmax_output_has_the_gradient_of_mxnets_rules(row: Row) -> None:
    inputs = row.inputs("float64")
    run = computed(row, inputs)
    data = backward_data(row, inputs, run)
    gradient = backward(NUMPY, row.create(), data, blank_gradients(row.create(), inputs), run)[0]
    expected = softmax_gradient(row, inputs, data.out_grad[0])
    np.testing.assert_allclose(gradient, expected, rtol=1e-9, atol=1e-12)


def test_a_weight_of_zero_silences_a_row_of_garbage() -> None:
    row = Row("SoftmaxOutput", {"use_sample_weight": True, "normalization": "batch"}, (3, 4))
    inputs = row.inputs("float32")
    inputs[2][:] = [1, 0, 1]
    clean = computed(row, inputs)
    clean_data = backward_data(row, inputs, clean)
    expected = backward(
        NUMPY, row.create(), clean_data, blank_gradients(row.create(), inputs), clean
    )[0]
    inputs[0][1], inputs[1][1] = np.array([3e38, -3e38, 1e30, 0], "float32"), 1 << 30
    padded = computed(row, inputs)
    data = backward_data(row, inputs, padded)
    gradient = backward(NUMPY, row.create(), data, blank_gradients(row.create(), inputs), padded)[0]
    assert padded.outputs[1].tobytes() == clean.outputs[1].tobytes()
    np.testing.assert_array_equal(gradient[1], 0)
    np.testing.assert_array_equal(np.delete(gradient, 1, 0), np.delete(expected, 1, 0))


@every_row
def test_O3_O4_O6_every_mix_of_forward_requests(row: Row) -> None:
    prop, inputs = row.create(), row.inputs("float32")
    for implementation in all_implementations(prop):
        written = forward(
            implementation, prop, inputs, row.blank_outputs("float32"), is_train=row.is_train
        )
        for requests in itertools.product((NULL, WRITE, ADD), repeat=len(prop.list_outputs())):
            before = mixed(row.blank_outputs("float32"), requests)
            run = forward(implementation, prop, inputs, before, requests, is_train=row.is_train)
            if run is None:
                continue
            assert written is not None
            check_mix(implementation, requests, run.outputs, written.outputs, before)


def mixed(blank: list[Array], requests: tuple[OpReqType, ...]) -> list[Array]:
    """NaN where WRITE must leave none of it, a sentinel where NULL and ADD must keep it."""
    return [
        array if request is WRITE else np.full_like(array, SENTINEL)
        for array, request in zip(blank, requests, strict=True)
    ]


def check_mix(
    implementation: Implementation,
    requests: tuple[OpReqType, ...],
    got: list[Array],
    written: list[Array],
    before: list[Array],
) -> None:
    for index, request in enumerate(requests):
        message = f"{implementation.name}: {requests} at {index}"
        if request is NULL:
            np.testing.assert_array_equal(got[index], before[index], message)
        elif request is WRITE:
            np.testing.assert_allclose(
                got[index], written[index], rtol=1e-5, atol=1e-6, err_msg=message
            )
        else:
            total = written[index] + np.float32(SENTINEL)
            np.testing.assert_allclose(got[index], total, rtol=1e-5, atol=1e-5, err_msg=message)


@differentiable
def test_O3_O4_O6_O7_every_mix_of_backward_requests(row: Row) -> None:
    prop, inputs = row.create(), row.inputs("float32")
    choices = [
        (NULL, WRITE, ADD) if i in asked(prop) else (NULL,)
        for i in range(len(prop.list_arguments()))
    ]
    for implementation in all_implementations(prop):
        run = forward(
            implementation, prop, inputs, row.blank_outputs("float32"), is_train=row.is_train
        )
        if run is None:
            continue
        data = backward_data(row, inputs, run)
        written = backward(implementation, prop, data, blank_gradients(prop, inputs), run)
        for requests in itertools.product(*choices):
            if all(request is NULL for request in requests):
                continue
            before = mixed(blank_gradients(prop, inputs), requests)
            got = backward(implementation, prop, data, before, run, requests)
            check_mix(implementation, requests, got, written, before)


@every_row
def test_O5_forward_in_place_gives_the_bits_of_write(row: Row) -> None:
    prop, inputs = row.create(), row.inputs("float32")
    outputs = row.blank_outputs("float32")
    hints = prop.forward_inplace_option(range(len(inputs)), range(len(outputs)))
    for implementation in all_implementations(prop):
        written = forward(implementation, prop, inputs, outputs, is_train=row.is_train)
        if written is None:
            continue
        for source, target in hints:
            requests = [INPLACE if index == target else WRITE for index in range(len(outputs))]
            run = forward(
                implementation,
                prop,
                inputs,
                outputs,
                requests,
                {target: source},
                is_train=row.is_train,
            )
            if run is not None:
                same_bits(implementation, run.outputs, written.outputs)


def test_O5_all_outputs_of_an_update_at_once_take_their_inputs_place() -> None:
    for row in ROWS:
        prop, inputs = row.create(), row.inputs("float32")
        places = {output: source for source, output in prop.list_mutated_inputs().items()}
        if not places:
            continue
        outputs = row.blank_outputs("float32")
        for implementation in all_implementations(prop):
            written = forward(implementation, prop, inputs, outputs, is_train=row.is_train)
            run = forward(
                implementation,
                prop,
                inputs,
                outputs,
                [INPLACE] * len(outputs),
                places,
                is_train=row.is_train,
            )
            if written is not None and run is not None:
                same_bits(implementation, run.outputs, written.outputs)


def same_bits(implementation: Implementation, got: list[Array], want: list[Array]) -> None:
    for one, other in zip(got, want, strict=True):
        assert one.tobytes() == other.tobytes(), implementation.name


@differentiable
def test_O5_backward_in_place_gives_the_bits_of_write(row: Row) -> None:
    prop, inputs = row.create(), row.inputs("float32")
    outputs = len(prop.list_outputs())
    arguments = len(prop.list_arguments())
    groups = outputs, outputs + arguments, 2 * outputs + arguments
    positions = range(groups[2])
    hints = prop.backward_inplace_option(
        positions[: groups[0]],
        positions[groups[0] : groups[1]],
        positions[groups[1] :],
        range(arguments),
    )
    for implementation in all_implementations(prop):
        run = forward(
            implementation, prop, inputs, row.blank_outputs("float32"), is_train=row.is_train
        )
        if run is None:
            continue
        data = backward_data(row, inputs, run)
        written = backward(implementation, prop, data, blank_gradients(prop, inputs), run)
        for source, target in hints:
            requests = default_requests(prop)
            requests[target] = INPLACE
            got = backward(
                implementation,
                prop,
                data,
                blank_gradients(prop, inputs),
                run,
                requests,
                {target: source},
            )
            same_bits(
                implementation,
                [got[index] for index in asked(prop)],
                [written[index] for index in asked(prop)],
            )


@differentiable
def test_P7_backward_reads_nothing_that_it_does_not_declare(row: Row) -> None:
    prop, inputs = row.create(), row.inputs("float32")
    for implementation in all_implementations(prop):
        run = forward(
            implementation, prop, inputs, row.blank_outputs("float32"), is_train=row.is_train
        )
        if run is None:
            continue
        data = backward_data(row, inputs, run)
        absent = backward(implementation, prop, data, blank_gradients(prop, inputs), run)
        poisoned = backward(
            implementation, prop, data, blank_gradients(prop, inputs), run, poison=True
        )
        for index in asked(prop):
            assert np.isfinite(absent[index]).all(), implementation.name
        same_bits(
            implementation,
            [poisoned[index] for index in asked(prop)],
            [absent[index] for index in asked(prop)],
        )


@every_row
def test_P12_implementations_agree_with_the_readable_body(row: Row) -> None:
    prop, inputs = row.create(), row.inputs("float32")
    reference = computed(row, inputs)
    data = backward_data(row, inputs, reference)
    for implementation in all_implementations(prop):
        for threads in (1, 2):
            run = forward(
                implementation,
                prop,
                inputs,
                row.blank_outputs("float32"),
                threads=threads,
                is_train=row.is_train,
            )
            if run is None:
                continue
            close(implementation, run.outputs, reference.outputs)
            if asked(prop) and row.is_train:
                blank = blank_gradients(prop, inputs)
                got = backward(implementation, prop, data, blank, run, threads=threads)
                want = backward(NUMPY, prop, data, blank, reference)
                kept = asked(prop)
                close(implementation, [got[i] for i in kept], [want[i] for i in kept])


def close(implementation: Implementation, got: list[Array], want: list[Array]) -> None:
    for one, other in zip(got, want, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=2e-5, err_msg=implementation.name)


@differentiable
def test_L1_one_body_serves_two_networks_in_turn(row: Row) -> None:
    prop = row.create()
    body = prop.create_operator()

    class SharedBody(type(prop)):  # type: ignore[misc]
        def create_operator(self) -> Any:
            return body

    shared = SharedBody(prop.parameters)
    first, second = row.inputs("float32", seed=1), row.inputs("float32", seed=2)
    alone = [computed(row, inputs) for inputs in (first, second)]
    runs = [
        forward(NUMPY, shared, inputs, row.blank_outputs("float32"), is_train=row.is_train)
        for inputs in (first, second, first, second)
    ]
    for number in (1, 0, 0, 1):
        for run in (runs[number], runs[number + 2]):
            assert run is not None
            same_bits(NUMPY, run.outputs, alone[number].outputs)
            inputs = (first, second)[number]
            data = backward_data(row, inputs, run)
            kept = asked(prop)
            got = backward(NUMPY, shared, data, blank_gradients(prop, inputs), run)
            want = backward(NUMPY, prop, data, blank_gradients(prop, inputs), alone[number])
            same_bits(NUMPY, [got[i] for i in kept], [want[i] for i in kept])


def test_the_table_has_five_rows_of_every_operator() -> None:
    counts = {name: sum(row.operator == name for row in ROWS) for name in REFERENCES}
    assert min(counts.values()) >= 5, counts


needs_onednn = pytest.mark.skipif(onednn.load() is None, reason=onednn.reason())


@pytest.mark.parametrize(
    ("operator", "backend"),
    [
        *((operator, "jit") for operator in UPDATES),
        ("elemwise_add", "jit"),
        pytest.param("SoftmaxOutput", "onednn", marks=needs_onednn),
    ],
)
def test_P12_a_compiled_body_serves_float32(operator: str, backend: str) -> None:
    compiled = implementations(operator)[backend]
    served = [
        row
        for row in ROWS
        if row.operator == operator
        and forward(
            compiled,
            row.create(),
            row.inputs("float32"),
            row.blank_outputs("float32"),
            is_train=row.is_train,
        )
    ]
    assert len(served) >= 5
    assert all(
        forward(
            compiled,
            row.create(),
            row.inputs("float64"),
            row.blank_outputs("float64"),
            is_train=row.is_train,
        )
        is None
        for row in served
    )


@pytest.mark.parametrize("classes", [2, 10, 17])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_data_that_are_not_finite_give_a_loss_that_is_not(value: float, classes: int) -> None:
    """Wherever in a row the value stands, and whichever class its label is."""
    row = Row("SoftmaxOutput", {}, (1, classes))
    for implementation in all_implementations(row.create()):
        for place, label in itertools.product(range(classes), repeat=2):
            inputs = [np.zeros((1, classes), np.float32), np.array([label], np.int32)]
            inputs[0][0, place] = value
            run = forward(
                implementation,
                row.create(),
                inputs,
                row.blank_outputs("float32"),
                is_train=row.is_train,
            )
            if run is not None:
                assert np.isnan(run.outputs[1][0]), implementation.name


@pytest.mark.parametrize("row", [row for row in ROWS if row.operator in UPDATES], ids=str)
def test_P12_compiled_updates_have_the_bits_of_the_readable_body(row: Row) -> None:
    inputs = row.inputs("float32")
    compiled = computed(row, inputs, implementations(row.operator)["jit"])
    same_bits(NUMPY, compiled.outputs, computed(row, inputs).outputs)
