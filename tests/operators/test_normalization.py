"""BatchNorm, LRN, Dropout and LeakyReLU beyond their rows: states, layouts, supported cases."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from executors import cpu, executor_for
from inference import contradiction
from operator_harness import (
    RANDOM,
    STREAM,
    BackwardData,
    Memory,
    all_implementations,
    backward,
    execute,
    forward,
)
from operator_row import Row
from operator_rows import ROWS
from oracles.peer import MXNet, Peer, PyTorch

from mxrun.base.errors import UserError
from mxrun.base.tensor import CHANNELS_LAST, PLAIN, Layout, TensorSpec
from mxrun.compiler.compile import compile_plan
from mxrun.compiler.request import CompileRequest
from mxrun.device.cpu.onednn import library as onednn
from mxrun.graph.phases import EVALUATE, TRAIN
from mxrun.graph.symbol import apply, fresh_names, variable
from mxrun.operator.kernel import BackwardRequest, ForwardRequest, OpReqType
from mxrun.operator.numpy_kernel import NUMPY
from mxrun.operator.property import GradientKind
from mxrun.operator.register import create, implementations

Array = npt.NDArray[Any]
WRITE = OpReqType.WRITE

needs_onednn = pytest.mark.skipif(onednn.load() is None, reason=onednn.reason())


@cache
def running(kind: type[Peer]) -> Peer:
    return kind()


@pytest.fixture(scope="module", autouse=True)
def _stopped_afterwards() -> Iterator[None]:
    yield
    for kind in (MXNet, PyTorch):
        if kind.unavailable() is None:
            running(kind).close()
    running.cache_clear()


def rows_of(operator: str) -> list[Row]:
    return [row for row in ROWS if row.operator == operator]


@pytest.mark.parametrize("row", rows_of("BatchNorm"), ids=str)
def test_P12_compiled_loops_serve_every_batch_norm(row: Row) -> None:
    """In float32, for matrices after a dense layer as well as for images; in float64 the NumPy
    body.
    """
    prop = row.create()
    served = [
        forward(
            implementations("BatchNorm")["jit"],
            prop,
            row.inputs(dtype),
            row.blank_outputs(dtype),
            is_train=row.is_train,
        )
        for dtype in ("float32", "float64")
    ]
    assert [run is not None for run in served] == [True, False]


def test_P11_batch_norm_lists_its_states_and_hides_its_statistics() -> None:
    prop = create("BatchNorm", {})
    assert prop.list_arguments() == ("data", "gamma", "beta")
    assert prop.list_auxiliary_states() == ("moving_mean", "moving_var")
    assert prop.list_outputs() == ("output", "mean", "var")
    assert prop.num_visible_outputs == 1
    assert create("BatchNorm", {"output_mean_var": True}).num_visible_outputs == 3
    computes, zero = GradientKind.COMPUTES, GradientKind.ZERO
    assert prop.list_gradients() == (computes, zero, computes)
    assert create("BatchNorm", {"fix_gamma": False}).list_gradients() == (computes,) * 3
    updates = {(u.state, u.output, u.momentum) for u in prop.list_state_updates()}
    assert updates == {("moving_mean", "mean", 0.9), ("moving_var", "var", 0.9)}
    assert create("BatchNorm", {"use_global_stats": True}).list_state_updates() == ()


@pytest.mark.parametrize("kind", [MXNet, PyTorch])
@pytest.mark.parametrize("shape", [(6, 4), (3, 4, 5, 2)])
@pytest.mark.parametrize(
    "parameters", [{}, {"momentum": 0.5, "fix_gamma": False}, {"use_global_stats": True}]
)
def test_T10_moving_statistics_take_the_biased_variance_as_the_peers_do(
    kind: type[Peer], shape: tuple[int, ...], parameters: dict[str, object]
) -> None:
    reason = kind.unavailable()
    if reason is not None:
        pytest.skip(reason)
    row = Row("BatchNorm", parameters, shape, values=rows_of("BatchNorm")[0].values)
    with fresh_names():
        symbol = apply("BatchNorm", {"data": variable("data")}, parameters, "bn")
    executor = executor_for(compile_plan(symbol, CompileRequest({"data": TensorSpec(shape)})))
    inputs = dict(zip(row.names, row.inputs("float32"), strict=True))
    for name, value in inputs.items():
        executor.tensor(name if name == "data" else f"bn_{name}").write(value)
    executor.run(EVALUATE)
    for name in ("moving_mean", "moving_var", "gamma"):
        np.testing.assert_array_equal(executor.tensor(f"bn_{name}").values(), inputs[name])
    executor.run(TRAIN)
    # MXNet writes the moving statistics in backward.
    theirs = running(kind).run_operator(
        "BatchNorm",
        row.create().parameters.to_strings(),
        inputs,
        [np.ones(shape, np.float32)],
    )
    for name, value in theirs.auxiliary.items():
        np.testing.assert_allclose(
            executor.tensor(f"bn_{name}").values(), value, rtol=1e-5, atol=1e-6
        )
    np.testing.assert_array_equal(executor.tensor("bn_gamma").values(), inputs["gamma"])


@dataclass(frozen=True)
class Normalized:
    """Results of a batch norm for one batch, forward and backward."""

    output: Array
    mean: Array
    var: Array
    data_grad: Array
    gamma_grad: Array
    beta_grad: Array


def normalized(data: Array, layout: Layout, threads: int = 2) -> Normalized:
    """Return the results of the compiled loops for data in a layout."""
    prop, channels = create("BatchNorm", {"fix_gamma": False}), TensorSpec(data.shape[1:2])
    implementation = implementations("BatchNorm")["jit"]
    spec, (gamma, beta, grad) = TensorSpec(data.shape, "float32", layout), parameters_of(data)
    request = ForwardRequest(
        (spec, *[channels] * 4), (spec, channels, channels), (WRITE,) * 3, True, cpu(threads)
    )
    kernel = implementation.prepare_forward(prop, request)
    assert kernel is not None
    assert kernel.inputs[0] == kernel.outputs[0] == spec
    inputs = [Memory(spec, data), Memory(channels, gamma), Memory(channels, beta)]
    output, mean, var = Memory(spec), Memory(channels), Memory(channels)
    execute(kernel, [*inputs, None, None], [output, mean, var])
    back = implementation.prepare_backward(
        prop,
        BackwardRequest(
            *((spec, None, None), (spec, channels, None), (None, channels, channels)),
            *((spec, channels, channels), (WRITE,) * 3, kernel, cpu(threads)),
        ),
    )
    assert back is not None
    gradients = [Memory(spec), Memory(channels), Memory(channels)]
    reads = [Memory(spec, grad), None, None, *inputs[:2], None, None, mean, var]
    execute(back, reads, gradients)
    return Normalized(*(memory.load() for memory in (output, mean, var, *gradients)))


def parameters_of(data: Array) -> tuple[Array, Array, Array]:
    """gamma, beta and the output's gradient."""
    random = np.random.default_rng(3)
    gamma = random.uniform(0.5, 2, data.shape[1])
    beta, grad = random.standard_normal(data.shape[1]), random.standard_normal(data.shape)
    return gamma.astype("float32"), beta.astype("float32"), grad.astype("float32")


def expected(data: Array) -> Normalized:
    """The formulas in float64."""
    gamma, beta, grad = (value.astype("float64") for value in parameters_of(data))
    others = tuple(axis for axis in range(data.ndim) if axis != 1)
    each = tuple(-1 if axis == 1 else 1 for axis in range(data.ndim))
    wide = data.astype("float64")
    mean, var = wide.mean(axis=others), wide.var(axis=others)
    factor = 1 / np.sqrt(var + 1e-3)
    x = (wide - mean.reshape(each)) * factor.reshape(each)
    beta_grad, gamma_grad = grad.sum(axis=others), (grad * x).sum(axis=others)
    count = data.size // len(gamma)
    data_grad = grad - beta_grad.reshape(each) / count - x * gamma_grad.reshape(each) / count
    data_grad *= (gamma * factor).reshape(each)
    output = x * gamma.reshape(each) + beta.reshape(each)
    return Normalized(output, mean, var, data_grad, gamma_grad, beta_grad)


@pytest.mark.parametrize("layout", [PLAIN, CHANNELS_LAST], ids=str)
@pytest.mark.parametrize(
    "shape",
    [
        *((64, 16, 16, 16), (3, 5, 23, 29), (101, 3, 1, 1), (37, 700, 1, 2), (9, 1040, 3, 3)),
        *(
            (13, 1, 7, 9),
            (1, 2, 40, 40),
            (2, 513),
            (67, 10),
            (5, 1),
            (3, 2500, 2, 1),
            (2, 3, 50, 90),
        ),
    ],
    ids=str,
)
def test_batch_norm_cuts_any_shape_into_tasks(shape: tuple[int, ...], layout: Layout) -> None:
    """With more channels than columns of a task, planes of several tasks, prime numbers of rows."""
    data = np.random.default_rng(1).standard_normal(shape).astype("float32")
    got, want = normalized(data, layout), expected(data)
    for name, value in vars(want).items():
        np.testing.assert_allclose(
            getattr(got, name), value, rtol=2e-5, atol=2e-5 * np.abs(value).max(), err_msg=name
        )


@pytest.mark.parametrize("layout", [PLAIN, CHANNELS_LAST], ids=str)
def test_batch_norm_has_the_same_bits_whatever_the_threads(layout: Layout) -> None:
    data = np.random.default_rng(1).standard_normal((64, 24, 16, 16)).astype("float32")
    alone = normalized(data, layout, threads=1)
    for threads in (2, 3):
        for name, value in vars(normalized(data, layout, threads)).items():
            np.testing.assert_array_equal(value, getattr(alone, name), err_msg=name)


def noise(mean: float) -> Array:
    random = np.random.default_rng(1)
    return (random.standard_normal((64, 16, 16, 16)) + mean).astype("float32")


def outlying_images() -> Array:
    data = noise(0)
    data[0] += 1e4
    return data


def blank_lines() -> Array:
    data = noise(1000)
    data[:, :, 0] = 0
    return data


@pytest.mark.parametrize("layout", [PLAIN, CHANNELS_LAST], ids=str)
@pytest.mark.parametrize(
    "data",
    [noise(1000), noise(-4096), blank_lines(), outlying_images()],
    ids=["1000", "-4096", "blank lines", "outlying image"],
)
def test_batch_norm_of_a_large_mean_keeps_its_digits(data: Array, layout: Layout) -> None:
    """The precision is that of float32 data and a float32 mean."""
    got, want = normalized(data, layout), expected(data)
    deviation = np.sqrt(want.var.max())
    np.testing.assert_allclose(got.mean, want.mean, rtol=1e-6, atol=1e-6 * deviation)
    np.testing.assert_allclose(got.var, want.var, rtol=3e-6)
    ulp = np.spacing(np.float32(np.abs(want.mean).max())) / np.sqrt(want.var.min())
    np.testing.assert_allclose(got.output, want.output, rtol=1e-5, atol=2 * ulp + 1e-6)
    np.testing.assert_allclose(got.data_grad, want.data_grad, rtol=1e-4, atol=1e-4)


@needs_onednn
@pytest.mark.parametrize(
    ("operator", "backend", "parameters"),
    [
        ("BatchNorm", "jit", {"fix_gamma": False}),
        ("Dropout", "jit", {}),
        ("Dropout", "jit", {"axes": (2, 3)}),
        ("Dropout", "jit", {"axes": (1,)}),
        ("LeakyReLU", "jit", {"act_type": "gelu"}),
        ("LeakyReLU", "jit", {"act_type": "prelu"}),
    ],
)
def test_channels_last_data_are_taken_as_they_come(
    operator: str, backend: str, parameters: dict[str, object]
) -> None:
    row = Row(operator, parameters, (3, 17, 5, 4), values=rows_of("BatchNorm")[0].values)
    prop, inputs = row.create(), row.inputs("float32")
    if operator == "Dropout":
        inputs.append(np.array(RANDOM, np.int64))
    specs = [TensorSpec(value.shape, str(value.dtype)) for value in inputs]
    specs[0] = specs[0].with_layout(CHANNELS_LAST)
    blank = row.blank_outputs("float32")
    outputs = tuple(TensorSpec(array.shape) for array in blank)
    request = ForwardRequest(tuple(specs), outputs, (WRITE,) * len(blank), True, cpu(2), STREAM)
    kernel = implementations(operator)[backend].prepare_forward(prop, request)
    assert kernel is not None
    assert kernel.inputs[0] == specs[0]
    assert kernel.outputs[0] == specs[0]
    memories = [
        None if spec is None else Memory(spec, value)
        for spec, value in zip(kernel.inputs, inputs, strict=True)
    ]
    targets = [Memory(spec) for spec in kernel.outputs if spec is not None]
    execute(kernel, memories, targets)
    plain = forward(NUMPY, prop, row.inputs("float32"), blank)
    assert plain is not None
    for got, want in zip(targets, plain.outputs, strict=True):
        np.testing.assert_allclose(got.load(), want, rtol=1e-4, atol=2e-5)


@needs_onednn
def test_P12_lrn_is_onednns_where_onednn_is_right() -> None:
    def served(shape: tuple[int, ...], **parameters: object) -> bool:
        row = Row("LRN", parameters, shape)
        run = forward(
            implementations("LRN")["onednn"],
            row.create(),
            row.inputs("float32"),
            row.blank_outputs("float32"),
        )
        return run is not None

    assert served((2, 96, 5, 5), nsize=5)
    assert served((2, 6, 5, 5), nsize=3, alpha=0.5, knorm=1.0)
    assert not served((2, 6, 5, 5), nsize=2)
    assert not served((2, 33, 5, 5), nsize=7)
    assert not served((2, 96, 5, 5), nsize=5, beta=0.6)


@pytest.mark.parametrize("shape", [(4, 5), (3, 4, 5, 2), (6,)])
def test_prelu_takes_one_slope_for_all_channels(shape: tuple[int, ...]) -> None:
    row = Row("LeakyReLU", {"act_type": "prelu"}, shape, shapes={"gamma": (1,)})
    prop, (data, gamma) = row.create(), row.inputs("float32")
    out_grad = np.random.default_rng(5).standard_normal(shape).astype("float32")
    outputs = []
    for implementation in all_implementations(prop):
        run = forward(implementation, prop, [data, gamma], row.blank_outputs("float32"))
        if run is None:
            continue
        blank = [np.empty_like(data), np.empty_like(gamma)]
        saved = BackwardData([out_grad], [data, gamma], run.outputs)
        outputs.append([*run.outputs, *backward(implementation, prop, saved, blank, run)])
    expected = [
        np.where(data > 0, data, gamma[0] * data),
        np.where(data > 0, out_grad, gamma[0] * out_grad),
        np.array([(out_grad * np.minimum(data, 0)).sum()]),
    ]
    assert len(outputs) == 2
    for got in outputs:
        for one, want in zip(got, expected, strict=True):
            np.testing.assert_allclose(one, want, rtol=1e-5, atol=1e-6)
    if MXNet.unavailable() is None:
        named = {"data": data, "gamma": gamma}
        theirs = running(MXNet).run_operator("LeakyReLU", {"act_type": "prelu"}, named, [out_grad])
        for name, want in zip(("data", "gamma"), expected[1:], strict=True):
            np.testing.assert_allclose(theirs.gradients[name], want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("operator", "parameters", "inputs", "argument", "rule"),
    [
        ("BatchNorm", {"axis": 3}, [(2, 3), None, None], "data", "axis"),
        ("BatchNorm", {}, [(2, 3), (4,), None], "gamma", "data's channels"),
        ("BatchNorm", {}, [None, (4,), (3,)], "beta", "data's channels"),
        ("Dropout", {"axes": (2,)}, [(2, 3)], "data", "axes"),
        ("LRN", {"nsize": 3}, [(2, 3, 4)], "data", "channel"),
        ("LeakyReLU", {"act_type": "prelu"}, [(2, 3), (4,)], "gamma", "data's channels"),
    ],
)
def test_P3_a_contradiction_names_argument_and_rule_of_normalization(
    operator: str,
    parameters: dict[str, object],
    inputs: list[tuple[int, ...] | None],
    argument: str,
    rule: str,
) -> None:
    found = contradiction(operator, parameters, inputs)
    assert found.argument == argument
    assert rule in found.rule


def test_P2_knowledge_of_normalization_flows_to_the_inputs() -> None:
    norm = create("BatchNorm", {}).infer_shape([(2, None, 4), None, (3,)], [None] * 3)
    assert norm.inputs == [(2, 3, 4), (3,), (3,)]
    assert norm.auxiliary == [(3,), (3,)]
    dropped = create("Dropout", {"axes": (1,)}).infer_shape([(2, None, None)], [None, (2, 1, 4)])
    assert dropped.inputs == [(2, None, 4)]
    rectified = create("LeakyReLU", {"act_type": "prelu"})
    assert rectified.infer_shape([None, None], [(2, 3)]).inputs == [(2, 3), (3,)]
    assert rectified.infer_shape([(2, None), (3,)], [None]).inputs == [(2, 3), (3,)]


@pytest.mark.parametrize(
    ("operator", "parameters", "expected"),
    [
        ("BatchNorm", {}, {"g", "a", "y", "z"}),
        ("BatchNorm", {"fix_gamma": False}, {"g", "a", "b", "y", "z"}),
        ("Dropout", {}, {"g", "y"}),
        ("Dropout", {"p": 0.0}, {"g"}),
        ("LRN", {"nsize": 5}, {"g", "a"}),
        ("LeakyReLU", {}, {"g", "x"}),
        ("LeakyReLU", {"slope": -1.0}, {"g", "a"}),
        ("LeakyReLU", {"act_type": "elu", "slope": -1.0}, {"g", "a"}),
        ("LeakyReLU", {"act_type": "gelu"}, {"g", "a"}),
        ("LeakyReLU", {"act_type": "prelu"}, {"g", "a", "b"}),
        ("LeakyReLU", {"act_type": "rrelu"}, {"g", "y"}),
    ],
)
def test_P5_normalization_declares_what_its_backward_reads(
    operator: str, parameters: dict[str, object], expected: set[str]
) -> None:
    prop = create(operator, parameters)
    inputs, outputs = len(prop.list_arguments()), len(prop.list_outputs())
    reads = prop.declare_backward_dependency(
        ["g", "h", "i"][:outputs], ["a", "b", "c"][:inputs], ["x", "y", "z"][:outputs]
    )
    assert set(reads) == expected


@pytest.mark.parametrize(
    ("operator", "parameters", "problem"),
    [
        ("Dropout", {"p": 1.5}, "'p' cannot be 1.5"),
        ("Dropout", {"mode": "never"}, "'mode' cannot be 'never'"),
        ("BatchNorm", {"eps": -1.0}, "'eps' cannot be -1.0"),
        ("LRN", {}, "parameter 'nsize' is missing"),
        ("LRN", {"nsize": 0}, "'nsize' cannot be 0"),
        ("LeakyReLU", {"act_type": "relu"}, "'act_type' cannot be 'relu'"),
    ],
)
def test_P13_violations_of_normalization_are_named(
    operator: str, parameters: dict[str, object], problem: str
) -> None:
    with pytest.raises(UserError) as caught:
        create(operator, parameters)
    assert problem in caught.value.diagnostics[0].problem
