"""Every operator with an ONNX form: onnx's checker, and onnxruntime compared with mxrun."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from executors import cpu, executor_for
from onnx_environment import checked, outputs_of, started

from mxrun import library
from mxrun.base.errors import UserError
from mxrun.base.tensor import TensorSpec
from mxrun.compiler.compile import compile_plan
from mxrun.compiler.request import CompileRequest
from mxrun.convert.onnx import to_onnx
from mxrun.convert.onnx_writer import TRANSLATORS
from mxrun.graph.phases import EVALUATE
from mxrun.graph.symbol import Symbol, apply, variable
from mxrun.peers.baseline import BaselineProcess

library.load()

Array = npt.NDArray[Any]
BATCH = 4


@cache
def onnxruntime() -> BaselineProcess:
    return started("onnxruntime")


@pytest.fixture(scope="module", autouse=True)
def _stopped_afterwards() -> Iterator[None]:
    yield
    if onnxruntime.cache_info().currsize:
        onnxruntime().close()
        onnxruntime.cache_clear()


@dataclass(frozen=True, eq=False)
class Case:
    """An operator over data [BATCH, *shapes[0]] and further inputs, its parameters positive.

    whole: number of inputs at the end that are int32.
    """

    operator: str
    shapes: tuple[tuple[int, ...], ...] = ((3, 6, 6),)
    parameters: Mapping[str, object] = field(default_factory=dict)
    lowest: float = 0.1
    highest: float = 0.9
    whole: int = 0
    outputs: int = 1

    def __str__(self) -> str:
        return "-".join((self.operator, *(f"{k}={v}" for k, v in self.parameters.items())))


def case(operator: str, *shapes: tuple[int, ...], **parameters: object) -> Case:
    return Case(operator, shapes or ((3, 6, 6),), parameters)


UNARY = [
    "abs",
    "arccos",
    "arcsin",
    "arcsinh",
    "arctan",
    "arctanh",
    "ceil",
    "cos",
    "cosh",
    "erf",
    "exp",
    "floor",
    "log",
    "negative",
    "reciprocal",
    "relu",
    "sigmoid",
    "sign",
    "sin",
    "sinh",
    "softsign",
    "sqrt",
    "tan",
    "tanh",
    "square",
    "rsqrt",
    "hard_sigmoid",
    "_copy",
    "BlockGrad",
    "Flatten",
    "MakeLoss",
]
PAIRS = [
    "elemwise_add",
    "elemwise_sub",
    "elemwise_mul",
    "elemwise_div",
    "_maximum",
    "_minimum",
    "_power",
    "_equal",
    "_greater",
    "_greater_equal",
    "_lesser",
    "_lesser_equal",
]
BROADCAST = [
    "add",
    "sub",
    "mul",
    "div",
    "maximum",
    "minimum",
    "power",
    "equal",
    "greater",
    "greater_equal",
    "lesser",
    "lesser_equal",
]
SCALAR = ["plus", "minus", "rminus", "mul", "div", "rdiv", "power", "rpower", "maximum", "minimum"]
ATTENTION = "scaled_dot_product_attention"
INTERLEAVED = "_contrib_interleaved_matmul_{}"
SEQUENCES = ("SequenceMask", "SequenceLast", "SequenceReverse")
VECTOR, MATRIX = (5,), (3, 6)
NET: dict[str, Any] = {
    "state_size": 4,
    "num_layers": 1,
    "layout": "NTC",
    "initial_state": "zeros",
}
WINDOW: dict[str, object] = {"kernel": (3, 3), "stride": (2, 2)}
ODD = (2, 7, 8)
# Of five positions and one of padding, the last of three windows begins in the padding.
OUTSIDE: dict[str, object] = {
    "kernel": (3, 3),
    "stride": (3, 3),
    "pad": (1, 1),
    "pooling_convention": "full",
}
OUTSIDE_WORDS = "a window lies in the padding alone"

CASES = [
    *(case(name) for name in UNARY),
    *(case(name, MATRIX, MATRIX) for name in PAIRS),
    *(case(f"broadcast_{name}", (3, 6), (1, 6)) for name in BROADCAST),
    *(case(f"_{name}_scalar", MATRIX, scalar=0.7) for name in SCALAR),
    Case("arccosh", (MATRIX,), {}, 1.1, 3.0),
    Case("log", (MATRIX,), {}, 0.1, 9.0),
    case("add_n", MATRIX, MATRIX, MATRIX, num_args=3),
    case("where", MATRIX, MATRIX, MATRIX),
    case("clip", a_min=0.3, a_max=0.6),
    case("Cast", dtype="int32"),
    *(case("Activation", act_type=a) for a in ("relu", "sigmoid", "softrelu", "softsign", "tanh")),
    *(
        Case("LeakyReLU", ((3, 6, 6),), {"act_type": act_type}, -1.0, 1.0)
        for act_type in ("leaky", "elu", "selu", "gelu", "rrelu", "prelu")
    ),
    Case("gelu", ((3, 6, 6),), {}, -3.0, 3.0),
    Case("gelu", ((3, 6, 6),), {"approximate": "tanh"}, -3.0, 3.0),
    Case("silu", ((3, 6, 6),), {}, -3.0, 3.0),
    *(
        Case("gated_activation", ((3, 6),), {"act_type": act_type}, -3.0, 3.0)
        for act_type in ("gelu", "silu", "sigmoid")
    ),
    case("FullyConnected", num_hidden=4),
    case("FullyConnected", VECTOR, num_hidden=4, no_bias=True),
    case("FullyConnected", num_hidden=4, flatten=False),
    case("FullyConnected", num_hidden=4, flatten=False, no_bias=True),
    case("Convolution", ODD, num_filter=4, pad=(1, 0), dilate=(1, 2), num_group=2, **WINDOW),
    case("Convolution", (2, 9), num_filter=4, kernel=(3,), no_bias=True),
    case("Deconvolution", (2, 4, 5), num_filter=4, pad=(1, 0), adj=(1, 0), num_group=2, **WINDOW),
    case("BatchNorm"),
    case("BatchNorm", VECTOR, fix_gamma=False, eps=0.01),
    case("position_embedding", (6, 4), max_length=9),
    case("rotary_embedding", (6, 4), num_heads=1),
    case("rotary_embedding", (5, 24), num_heads=3, rotated_heads=2, base=50.0),
    case("LayerNorm"),
    case("LayerNorm", VECTOR, axis=1, eps=0.01),
    case("RMSNorm"),
    case("RMSNorm", VECTOR, eps=0.01),
    *(
        case("Pooling", ODD, pool_type=kind, pooling_convention=convention, pad=pad, **WINDOW)
        for kind in ("max", "avg")
        for convention in ("valid", "full")
        for pad in ((0, 0), (1, 1))
    ),
    case("Pooling", ODD, pool_type="avg", count_include_pad=False, pad=(1, 1), **WINDOW),
    case("Pooling", (2, 5, 5), pool_type="avg", **OUTSIDE),
    case("Pooling", ODD, pool_type="max", global_pool=True),
    case("Pooling", ODD, pool_type="avg", global_pool=True),
    case("LRN", (7, 4, 4), nsize=3, alpha=0.5),
    Case("Embedding", (VECTOR,), {"input_dim": 7, "output_dim": 3}, 0, 7, whole=1),
    case("Dropout", p=0.9),
    case("softmax", axis=1),
    case("softmax", temperature=0.5),
    case("log_softmax", MATRIX),
    case("SoftmaxOutput", VECTOR),
    case("SoftmaxOutput"),
    case("SoftmaxOutput", multi_output=True),
    case("SoftmaxOutput", preserve_shape=True),
    case("LinearRegressionOutput", VECTOR),
    case("MAERegressionOutput", VECTOR),
    case("LogisticRegressionOutput", VECTOR),
    *(case(name, axis=(1, -1)) for name in ("sum", "mean", "max", "min", "prod")),
    *(case(name, axis=(1,), keepdims=True) for name in ("sum", "mean")),
    *(case(name, axis=(0, 1), exclude=True) for name in ("sum", "max")),
    case("mean"),
    case("sum"),
    case("batch_dot", (2, 3), (3, 4)),
    case("batch_dot", (3, 2), (4, 3), transpose_a=True, transpose_b=True),
    case("dot", VECTOR, VECTOR, transpose_b=True),
    *(
        Case("take", ((5, 3), (2,)), {"axis": 1, "mode": mode}, lowest, 5 - lowest, whole=1)
        for mode, lowest in (("clip", -2), ("wrap", -7), ("raise", 0))
    ),
    Case("pick", (VECTOR, ()), {}, -1, 6, whole=1),
    Case("pick", ((3, 5, 2), (3, 2)), {"axis": 2, "mode": "wrap"}, -6, 9, whole=1),
    Case("pick", ((3, 5), (3, 1)), {"keepdims": True}, -1, 6, whole=1),
    Case("one_hot", (VECTOR,), {"depth": 4, "on_value": 2.0, "off_value": -1.0}, -1, 6, whole=1),
    *(case(name, (5, 3), axis=1) for name in SEQUENCES),
    *(
        Case(name, ((5, 3), ()), {"axis": 1, "use_sequence_length": True}, 1, 6, whole=1)
        for name in SEQUENCES
    ),
    Case(
        "SequenceMask",
        ((5,), ()),
        {"axis": 1, "value": 2.0, "use_sequence_length": True},
        1,
        6,
        whole=1,
    ),
    *(case("RNN", (5, 3), **NET, mode=mode) for mode in ("rnn_relu", "rnn_tanh", "lstm", "gru")),
    *(
        case("RNN", (5, 3), **(NET | {"num_layers": 2}), mode=mode, bidirectional=True, p=0.5)
        for mode in ("rnn_relu", "lstm", "gru")
    ),
    Case("RNN", ((5, 3),), {**NET, "mode": "lstm", "state_outputs": True}, outputs=3),
    *(
        Case("RNN", ((5, 3), ()), {**NET, "mode": mode, "use_sequence_length": True}, 1, 6, whole=1)
        for mode in ("lstm", "gru")
    ),
    case("RNN", (5, 3), state_size=4, num_layers=2, mode="lstm"),
    case("SequenceLast", VECTOR),
    case(ATTENTION, (5, 12), (7, 6), (7, 4), num_heads=4, num_kv_heads=2),
    case(ATTENTION, (5, 24), num_heads=2, packed=True, causal=True, scale=0.5),
    case(ATTENTION, (5, 4), (7, 4), (7, 4), (2, 5, 7), num_heads=2, use_mask=True),
    Case(
        ATTENTION,
        ((5, 4), (7, 4), (7, 4), (1, 5, 7), ()),
        {"num_heads": 2, "causal": True, "use_mask": True, "use_lengths": True},
        0,
        8,
        whole=1,
    ),
    case(INTERLEAVED.format("selfatt_qk"), (2, 18), heads=3),
    case(INTERLEAVED.format("selfatt_valatt"), (2, 12), (4, 4), heads=2),
    case(INTERLEAVED.format("encdec_qk"), (2, 6), (2, 12), heads=2),
    case(INTERLEAVED.format("encdec_valatt"), (2, 12), (5, 4), heads=2),
    case("Reshape", shape=(0, -1)),
    case("Reshape", shape=(-3, -2)),
    case("Reshape", shape=(0, 0, -4, 2, 3, -2)),
    case("expand_dims", axis=1),
    case("squeeze", (1, 6, 1)),
    case("squeeze", (1, 6, 1), axis=(1,)),
    case("transpose", axes=(0, 2, 3, 1)),
    case("transpose", VECTOR),
    case("SwapAxis", dim1=1, dim2=3),
    case("Concat", (2, 3), (4, 3), num_args=2),
    case("Concat", (2, 3), (2, 4), num_args=2, dim=-1),
    Case("SliceChannel", ((4, 3),), {"num_outputs": 2}, outputs=2),
    Case("SliceChannel", ((4, 3),), {"num_outputs": 3, "axis": 2, "squeeze_axis": True}, outputs=3),
]
# Operators whose results mix rows of the batch, and one that changes its shape.
ONE_BATCH = {
    *(f"take-axis=1-mode={mode}" for mode in ("clip", "wrap", "raise")),
    "mean",
    "sum",
    "sum-axis=(0, 1)-exclude=True",
    "dot-transpose_b=True",
    "RNN-state_size=4-num_layers=2-mode=lstm",
    *(
        f"_contrib_interleaved_matmul_{name}-heads=2"
        for name in ("selfatt_valatt", "encdec_valatt")
    ),
}


def symbol_of(case: Case) -> Symbol:
    names = ["data", *(f"more{index}" for index in range(1, len(case.shapes)))]
    prop = apply(case.operator, {}, case.parameters, "node").heads[0].node.prop
    assert prop is not None
    arguments = [name for name in prop.list_arguments() if name != "parameters"]
    ends = {a: variable(n) for a, n in zip(arguments, names, strict=False)}
    return apply(case.operator, ends, case.parameters, "node")


def numbers(spec: TensorSpec, case: Case, seed: int) -> Array:
    random, shape = np.random.default_rng(seed), spec.shape
    if spec.dtype == "int32":
        return random.integers(int(case.lowest), int(case.highest), shape, np.int32)
    return random.uniform(case.lowest, case.highest, shape).astype(np.float32)


@cache
def converted(case: Case, any_batch: bool) -> tuple[bytes, Symbol, dict[str, Array]]:
    """The model, and parameters and states by name."""
    symbol = symbol_of(case)
    inputs = specs(symbol, case, BATCH)
    request = CompileRequest(inputs, phases=(EVALUATE,))
    plan = compile_plan(symbol, request)
    arrays = {
        name: numbers(plan.specs[name], Case("", lowest=0.5, highest=1.5), index)
        for index, name in enumerate((*symbol.list_arguments(), *symbol.list_auxiliary_states()))
        if name not in inputs and name in plan.specs and not name.endswith("_label")
    }
    labels = {n: s for n, s in plan.specs.items() if n.endswith("_label")}
    model = to_onnx("case", symbol.heads, {**inputs, **labels}, arrays, any_batch)
    return model.encoded(), symbol, arrays


def specs(symbol: Symbol, case: Case, batch: int) -> dict[str, TensorSpec]:
    names = [name for name in symbol.list_arguments() if name == "data" or name[:4] == "more"]
    return {
        name: TensorSpec(
            (batch, *shape), "int32" if index >= len(names) - case.whole else "float32"
        )
        for index, (name, shape) in enumerate(zip(names, case.shapes, strict=True))
    }


def expected(
    case: Case, symbol: Symbol, arrays: Mapping[str, Array], data: Mapping[str, Array]
) -> list[Array]:
    """Return the outputs of mxrun for one batch."""
    inputs = {name: TensorSpec(array.shape, array.dtype.name) for name, array in data.items()}
    request = CompileRequest(inputs, phases=(EVALUATE,), device=cpu())
    executor = executor_for(compile_plan(symbol, request))
    for name, array in {**arrays, **data}.items():
        if name in executor.plan.specs:
            executor.tensor(name).write(array)
    executor.prepare()
    executor.run(EVALUATE)
    return [executor.result(EVALUATE, head.name).read() for head in symbol.heads]


@pytest.mark.parametrize("batch", [BATCH, 7])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_onnxruntime_gives_the_same(case: Case, batch: int) -> None:
    free = str(case) not in ONE_BATCH
    if batch != BATCH and not free:
        batch = BATCH
    model, symbol, arrays = converted(case, free)
    data = {
        name: numbers(spec, case, index)
        for index, (name, spec) in enumerate(specs(symbol, case, batch).items())
    }
    ours, theirs = expected(case, symbol, arrays, data), outputs_of(onnxruntime(), model, data)
    assert len(ours) == len(theirs) == case.outputs
    for mine, other in zip(ours, theirs, strict=True):
        assert mine.shape == other.shape
        np.testing.assert_allclose(other, mine, rtol=1e-4, atol=1e-5)


def test_every_operator_with_a_form_in_onnx_has_a_case() -> None:
    assert {case.operator for case in CASES} == set(TRANSLATORS)


def test_onnx_own_checker_accepts_every_model(tmp_path: Path) -> None:
    files = [tmp_path / f"{index}.onnx" for index in range(len(CASES))]
    for case, file in zip(CASES, files, strict=True):
        file.write_bytes(converted(case, str(case) not in ONE_BATCH)[0])
    assert checked(files) == ["17 mxrun"] * len(CASES)


UNKNOWN = [
    (case("cbrt"), "cbrt 'node' cannot be converted to ONNX"),
    (case("Pooling", pool_type="sum", kernel=(2, 2)), "pool_type sum"),
    (case("Pooling", (2, 5, 5), pool_type="max", **OUTSIDE), OUTSIDE_WORDS),
    (
        case("Pooling", (2, 5, 5), pool_type="avg", count_include_pad=False, **OUTSIDE),
        OUTSIDE_WORDS,
    ),
    (case("Pooling", (2, 9), pooling_convention="same", kernel=(2,)), "pooling_convention same"),
    (case("BatchNorm", axis=-1), "axis -1: channels must be axis 1"),
    (case("Dropout", mode="always"), "mode always"),
    (case("LayerNorm", axis=1), "axis 1: it must be the last one"),
    (case("RMSNorm", axis=1), "axis 1: it must be the last one"),
    (case("LayerNorm", output_mean_var=True), "the outputs mean and std"),
    (case("RNN", (5, 3), **NET, mode="lstm", projection_size=2), "projection_size"),
    (case("dot", (2, 4), (5,)), "tensors of ranks 3 and 2"),
    (case("softmax_cross_entropy", VECTOR), "softmax_cross_entropy 'node' cannot be converted"),
]


@pytest.mark.parametrize(("unknown", "words"), UNKNOWN, ids=lambda value: str(value)[:40])
def test_what_has_no_form_is_named(unknown: Case, words: str) -> None:
    with pytest.raises(UserError, match=words):
        converted(unknown, False)
