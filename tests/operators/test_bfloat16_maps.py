"""Maps over bfloat16 memory compute in float32 and round each result once."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest
from operator_harness import BackwardData, backward, forward, implementations
from scalar_maps import five_operations, run_map

from mxrun.operator import scalar
from mxrun.operator.kernel import OpReqType
from mxrun.operator.register import AnyProperty, create

Array = npt.NDArray[Any]

LOW = np.dtype(ml_dtypes.bfloat16)
FULL = np.dtype(np.float32)
TYPES = (LOW, FULL)


def same_bits(found: Array, wanted: Array) -> None:
    """Assert equal bits, except for those of NaN, which has many."""
    assert found.dtype == wanted.dtype
    assert found.shape == wanted.shape
    bits = np.dtype(f"u{found.dtype.itemsize}")
    with np.errstate(invalid="ignore"):
        numbers = ~(np.isnan(found) & np.isnan(wanted))
    same = (found.view(bits) == wanted.view(bits)) | ~numbers
    assert same.all(), (found[~same], wanted[~same])


def rounded(array: Array, dtype: np.dtype[Any]) -> Array:
    with np.errstate(all="ignore"):
        return array.astype(dtype)


def drawn(count: int, dtypes: Sequence[np.dtype[Any]], seed: int = 0) -> list[Array]:
    random = np.random.default_rng(seed)
    return [(random.standard_normal(count) * 9).astype(FULL).astype(dtype) for dtype in dtypes]


def expected(
    function: Callable[..., Any], operands: Sequence[Array], dtype: np.dtype[Any], **more: Any
) -> Array:
    """Return the results of the float32 map for the same numbers, rounded by NumPy."""
    return rounded(run_map(function, [array.astype(FULL) for array in operands], **more), dtype)


def every_bfloat16() -> Array:
    return np.arange(65_536, dtype=np.uint16).view(LOW)


def test_every_bfloat16_is_read_as_it_is() -> None:
    numbers = every_bfloat16()
    found = run_map(lambda x: x, [numbers], output=np.empty(65_536, FULL))
    same_bits(found, numbers.astype(FULL))
    same_bits(run_map(lambda x: x, [numbers], output=np.empty(65_536, LOW)), numbers)


def test_a_result_is_the_nearest_bfloat16_of_two_the_even_one() -> None:
    """Around every bfloat16: itself, its float32 neighbours, the midpoint and its neighbours."""
    upper = np.arange(65_536, dtype=np.uint32)[:, None] << 16
    lower = np.array([0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF], np.uint32)
    numbers = (upper + lower).view(FULL).reshape(-1)
    found = run_map(lambda x: x, [numbers], output=np.empty(numbers.size, LOW), threads=2)
    same_bits(found, rounded(numbers, LOW))


def test_NaN_keeps_its_sign_and_upper_bits_and_is_quiet() -> None:
    bits = np.array([0x7F800001, 0xFF80FFFF, 0x7FA12345, 0xFFFFFFFF, 0x7FFF8000], np.uint32)
    found = run_map(lambda x: x, [bits.view(FULL)], output=np.empty(5, LOW))
    assert [hex(word) for word in found.view(np.uint16)] == [
        *("0x7fc0", "0xffc0", "0x7fe1", "0xffff", "0x7fff"),
    ]


@pytest.mark.parametrize("adds", [False, True])
@pytest.mark.parametrize("dtypes", list(itertools.product(TYPES, repeat=4)))
def test_every_tensor_of_a_map_may_be_either(dtypes: tuple[np.dtype[Any], ...], adds: bool) -> None:
    output, *sources = dtypes
    for count, threads in itertools.product([1, 15, 31, 32, 33, 70, 1000], [1, 2]):
        (before, *operands) = drawn(count, (output, *sources), count)
        request, made = OpReqType.WRITE, before.copy()
        wanted = expected(five_operations, operands, FULL, parameters={"scale": 0.3})
        if adds:
            written = rounded(wanted, output).astype(FULL)
            request, wanted = OpReqType.ADD, before.astype(FULL) + written
        more: Any = {"output": made, "request": request, "threads": threads}
        same_bits(
            run_map(five_operations, operands, {"scale": 0.3}, **more), rounded(wanted, output)
        )


@pytest.mark.parametrize("count", range(1, 71))
def test_a_map_writes_nothing_beside_its_output(count: int) -> None:
    operands = drawn(count, (LOW, FULL, LOW))
    room = np.full(count + 64, 7, LOW)
    found = run_map(five_operations, operands, {"scale": 0.3}, output=room[32 : 32 + count])
    same_bits(found, expected(five_operations, operands, LOW, parameters={"scale": 0.3}))
    assert (room[:32] == 7).all()
    assert (room[32 + count :] == 7).all()


@pytest.mark.parametrize("steps", [(0, 1, 1), (1, 0, 1), (1, 1, 0), (0, 0, 1), (0, 0, 0)])
def test_an_operand_of_one_element_serves_all(steps: tuple[int, ...]) -> None:
    for dtypes in itertools.product(TYPES, repeat=3):
        operands = drawn(77, dtypes)
        more: Any = {"parameters": {"scale": 0.3}, "steps": steps}
        found = run_map(five_operations, operands, output=np.empty(77, LOW), **more)
        wanted = expected(five_operations, operands, LOW, output=np.empty(77, FULL), **more)
        same_bits(found, wanted)


@pytest.mark.parametrize("which", [0, 2])
def test_the_output_may_lie_over_an_operand_of_its_type(which: int) -> None:
    operands = drawn(40_001, (LOW, FULL, LOW))
    wanted = expected(five_operations, operands, LOW, parameters={"scale": 0.3})
    same_bits(
        run_map(five_operations, operands, {"scale": 0.3}, output=operands[which], threads=2),
        wanted,
    )


def test_what_is_rare_is_computed_as_in_float32() -> None:
    """All bfloat16 numbers, through maps that have a second branch for some of them."""
    for function in (scalar.exp, scalar.sin, scalar.gelu, scalar.tanh, scalar.log):
        found = run_map(lambda x, f=function: f(x), [every_bfloat16()], threads=2)
        same_bits(found, expected(lambda x, f=function: f(x), [every_bfloat16()], LOW))


ROWS: list[tuple[str, dict[str, object], tuple[int, ...]]] = [
    ("Activation", {"act_type": "relu"}, (3, 5, 7)),
    ("Activation", {"act_type": "tanh"}, (2, 33)),
    ("LeakyReLU", {"act_type": "leaky", "slope": 0.1}, (2, 9)),
    ("LeakyReLU", {"act_type": "gelu"}, (2, 3, 4, 5)),
    ("clip", {"a_min": -0.5, "a_max": 0.5}, (4, 11)),
    ("elemwise_add", {}, (3, 40)),
    ("elemwise_mul", {}, (3, 40)),
    ("add_n", {"num_args": 3}, (3, 40)),
    ("add_n", {"num_args": 1}, (77,)),
]


def ran(
    prop: AnyProperty, data: BackwardData, types: Sequence[np.dtype[Any]], request: OpReqType
) -> list[Array]:
    """The compiled output and gradients, onto ones, in the types of out_data and in_data."""
    compiled, count = implementations(prop.type_string)["jit"], len(data.in_data)
    (output,), inputs = data.out_data, data.in_data
    gradient, *sources, made = (
        array.astype(dtype)
        for array, dtype in zip((*data.out_grad, *inputs, output), types, strict=True)
    )
    blank = np.ones_like(made)
    done = forward(compiled, prop, sources, [blank], [request], threads=2)
    assert done is not None
    assert [spec and spec.dtype for spec in done.kernel.inputs] == [str(x.dtype) for x in sources]
    lies = BackwardData([gradient], sources, [made])
    blanks = [np.ones_like(x) for x in sources]
    gradients = backward(compiled, prop, lies, blanks, done, [request] * count, threads=2)
    return [*done.outputs, *gradients]


@pytest.mark.parametrize("request_type", [OpReqType.WRITE, OpReqType.ADD])
@pytest.mark.parametrize(("operator", "parameters", "shape"), ROWS)
def test_an_operator_is_its_float32_kernel_rounded_once(
    operator: str, parameters: dict[str, object], shape: tuple[int, ...], request_type: OpReqType
) -> None:
    prop, random = create(operator, parameters), np.random.default_rng(7)
    count = len(prop.list_arguments())
    gradient, *sources, output = (
        random.standard_normal(shape).astype(FULL).astype(LOW).astype(FULL)
        for _ in range(count + 2)
    )
    data = BackwardData([gradient], sources, [output])
    wide = ran(prop, data, (FULL,) * (count + 2), OpReqType.WRITE)
    # out_grad, the inputs and the output: all low, and every other.
    mixed = [TYPES[index % 2] for index in range(count + 3)]
    for types in ((LOW,) * (count + 2), mixed[1:], mixed[:-1]):
        made = (types[-1], *types[1:-1])
        found = ran(prop, data, types, request_type)
        for got, full, dtype in zip(found, wide, made, strict=True):
            wanted = rounded(full, dtype)
            if request_type is OpReqType.ADD:
                wanted = rounded(1 + wanted.astype(FULL), dtype)
            same_bits(got, wanted)


def test_other_types_beside_bfloat16_are_declined() -> None:
    compiled = implementations("elemwise_add")["jit"]
    prop = create("elemwise_add", {})
    low, whole, double = (np.ones(5, dtype) for dtype in (LOW, np.int32, np.float64))
    for other in (whole, double):
        assert forward(compiled, prop, [low, other], [low]) is None
        assert forward(compiled, prop, [other, low], [other]) is None
