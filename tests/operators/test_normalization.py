"""BatchNorm, LRN, Dropout and LeakyReLU beyond their rows: states, layouts, what is served."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
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

from mxrun.backend.onednn import library as onednn
from mxrun.base.errors import UserError
from mxrun.base.tensor import CHANNELS_LAST, TensorSpec
from mxrun.executor.executor import Executor
from mxrun.graph.compile import EVALUATE, TRAIN, CompileRequest, compile_plan
from mxrun.graph.symbol import apply, fresh_names, variable
from mxrun.operator.kernel import ForwardRequest, OpReqType
from mxrun.operator.numpy_kernel import NUMPY
from mxrun.operator.property import GradientKind
from mxrun.operator.register import create, implementations
from mxrun.operator.shape import ShapeContradiction
from mxrun.peers.peer import MXNet, Peer, PyTorch

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


def rows_of(operator: str) -> list[Row]:
    return [row for row in ROWS if row.operator == operator]


@needs_onednn
@pytest.mark.parametrize("row", rows_of("BatchNorm"), ids=str)
def test_P12_onednn_serves_every_batch_norm(row: Row) -> None:
    """Matrices after a dense layer as well, plain, without oneDNN's slow reference."""
    prop, inputs = row.create(), row.inputs("float32")
    run = forward(
        implementations("BatchNorm")["onednn"],
        prop,
        inputs,
        row.blank_outputs("float32"),
        is_train=row.is_train,
    )
    assert run is not None
    assert run.kernel.implementation.startswith("onednn:")
    assert "ref" not in run.kernel.implementation
    wide = forward(
        implementations("BatchNorm")["onednn"],
        prop,
        row.inputs("float64"),
        row.blank_outputs("float64"),
        is_train=row.is_train,
    )
    assert wide is None


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
    executor = Executor(compile_plan(symbol, CompileRequest({"data": TensorSpec(shape)})))
    inputs = dict(zip(row.names, row.inputs("float32"), strict=True))
    for name, value in inputs.items():
        executor.array(name if name == "data" else f"bn_{name}")[...] = value
    executor.run(EVALUATE)
    for name in ("moving_mean", "moving_var", "gamma"):
        np.testing.assert_array_equal(executor.array(f"bn_{name}"), inputs[name])
    executor.run(TRAIN)
    # MXNet writes the moving statistics in backward.
    theirs = running(kind).run_operator(
        "BatchNorm",
        row.create().parameters.to_strings(),
        inputs,
        [np.ones(shape, np.float32)],
    )
    for name, value in theirs.auxiliary.items():
        np.testing.assert_allclose(executor.array(f"bn_{name}"), value, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(executor.array("bn_gamma"), inputs["gamma"])


def test_batch_norm_of_a_large_mean_keeps_its_digits() -> None:
    row = Row("BatchNorm", {}, (64, 16, 8, 8), values=rows_of("BatchNorm")[0].values)
    inputs = row.inputs("float32")
    noise = inputs[0].astype("float64")
    inputs[0] = (noise + 4096).astype("float32")
    others = (0, 2, 3)
    for implementation in all_implementations(row.create()):
        run = forward(implementation, row.create(), inputs, row.blank_outputs("float32"))
        assert run is not None
        variance = inputs[0].astype("float64").var(axis=others)
        np.testing.assert_allclose(run.outputs[2], variance, rtol=1e-4)


@needs_onednn
@pytest.mark.parametrize(
    ("operator", "backend", "parameters"),
    [
        ("BatchNorm", "onednn", {"fix_gamma": False}),
        ("Dropout", "jit", {}),
        ("Dropout", "jit", {"axes": (2, 3)}),
        ("Dropout", "jit", {"axes": (1,)}),
        ("LeakyReLU", "onednn", {"act_type": "gelu"}),
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
    specs[0] = specs[0].laid_out(CHANNELS_LAST)
    blank = row.blank_outputs("float32")
    outputs = tuple(TensorSpec(array.shape) for array in blank)
    request = ForwardRequest(tuple(specs), outputs, (WRITE,) * len(blank), True, 2, STREAM)
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
    prop = create(operator, parameters)
    with pytest.raises(ShapeContradiction) as caught:
        prop.infer_shape(inputs, [None] * len(prop.list_outputs()))
    assert caught.value.argument == argument
    assert rule in caught.value.rule


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
        ("LeakyReLU", {"act_type": "elu", "slope": -1.0}, {"g", "a", "x"}),
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
        ("Dropout", {"p": 1.0}, "'p' cannot be 1.0"),
        ("Dropout", {"mode": "never"}, "'mode' cannot be 'never'"),
        ("BatchNorm", {"eps": -1.0}, "'eps' cannot be -1.0"),
        ("LRN", {}, "missing parameter 'nsize'"),
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
