"""Maps as loops: sizes, forms, types, requests, and restrictions on their functions."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scalar_maps import five_operations, run_map

from mxrun.base.errors import UserError
from mxrun.operator import scalar
from mxrun.operator.kernel import OpReqType

SIZES = [0, 1, 2, 15, 16, 17, 31, 32, 33, 1000, 40_000]


def operands(count: int, dtype: str = "float32", seed: int = 0) -> list[Any]:
    random = np.random.default_rng(seed)
    return [(random.standard_normal(count) * 9).astype(dtype) for _ in range(3)]


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("count", SIZES)
def test_Q11_a_map_equals_its_python_loop(count: int, threads: int) -> None:
    tensors = operands(count)
    found = run_map(five_operations, tensors, {"scale": 0.3}, threads=threads)
    loop = [five_operations(g, x, y, np.float32(0.3)) for g, x, y in zip(*tensors, strict=True)]
    assert found.tobytes() == np.array(loop, np.float32).tobytes()
    assert found.tobytes() == scalar.evaluate(five_operations, tensors, [0.3]).tobytes()


@pytest.mark.parametrize("count", SIZES)
def test_a_map_writes_nothing_beside_its_output(count: int) -> None:
    tensors = operands(count)
    room = np.full(count + 64, 7, np.float32)
    run_map(five_operations, tensors, {"scale": 0.3}, output=room[32 : 32 + count])
    assert (room[:32] == 7).all()
    assert (room[32 + count :] == 7).all()


@pytest.mark.parametrize("which", [0, 1, 2])
@pytest.mark.parametrize("count", [1, 16, 1000, 40_001])
def test_O5_the_output_may_lie_over_an_operand(count: int, which: int) -> None:
    tensors = operands(count)
    wanted = run_map(five_operations, tensors, {"scale": 0.3})
    run_map(five_operations, tensors, {"scale": 0.3}, output=tensors[which], threads=2)
    assert tensors[which].tobytes() == wanted.tobytes()


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64", "uint8"])
@pytest.mark.parametrize("count", [1, 16, 1000, 40_001])
def test_O6_the_loop_adds_to_the_output_itself(count: int, dtype: str) -> None:
    def product(x: Any, y: Any) -> Any:
        return x * y

    x, y, before = operands(count, dtype)
    total = before.copy()
    run_map(product, [x, y], output=total, request=OpReqType.ADD, threads=2)
    assert total.tobytes() == (before + x * y).tobytes()


def test_requests_for_a_kernel_whose_maps_add_themselves() -> None:
    asked = (OpReqType.ADD, OpReqType.NULL, OpReqType.INPLACE, OpReqType.WRITE)
    wanted = (OpReqType.WRITE, OpReqType.NULL, OpReqType.INPLACE, OpReqType.WRITE)
    assert scalar.without_add_requests(asked) == wanted


@pytest.mark.parametrize("steps", [(0, 1, 1), (1, 0, 1), (1, 1, 0), (0, 0, 1), (0, 0, 0)])
def test_an_operand_of_one_element_serves_all(steps: tuple[int, ...]) -> None:
    tensors = operands(1000)
    output = np.empty(1000, np.float32)
    found = run_map(five_operations, tensors, {"scale": 0.3}, output=output, steps=steps, threads=2)
    repeated = [
        tensor if step else np.full(1000, tensor[0], np.float32)
        for tensor, step in zip(tensors, steps, strict=True)
    ]
    assert found.tobytes() == run_map(five_operations, repeated, {"scale": 0.3}).tobytes()


@pytest.mark.parametrize("dtype", ["int32", "int64", "uint8"])
def test_Q11_whole_numbers(dtype: str) -> None:
    def integer_map(x: Any, y: Any, z: Any) -> Any:
        kept = scalar.where(x > y, scalar.minimum(x, 100), scalar.abs(z)) * 3
        ends = scalar.sign(y) + scalar.floor(z) + (x == z) + scalar.isfinite(x)
        return kept + ends - scalar.logical_and(x, y) + (x & 6) + (y ^ z)

    tensors = operands(1000, dtype)
    found = run_map(integer_map, tensors)
    assert found.tobytes() == scalar.evaluate(integer_map, tensors).tobytes()


DTYPES = ["float32", "float64", "int32", "int64", "uint8"]


@pytest.mark.parametrize("request_type", [OpReqType.WRITE, OpReqType.ADD])
@pytest.mark.parametrize("made", DTYPES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_result_of_another_type_is_converted_as_numpy_does(
    dtype: str, made: str, request_type: OpReqType
) -> None:
    # Numbers that fit every type, with fractions; for integer types also numbers that lose bits.
    x = np.array([0, 1.5, 2.75, 100, 127, 255.9], dtype)
    if dtype in ("int32", "int64"):
        x = np.append(x, np.array([-1, 256, 65_537, np.iinfo(dtype).max], dtype))
    x = np.resize(x, 77)
    before = np.arange(77).astype(made)
    found = run_map(lambda x: x, [x], output=before.copy(), request=request_type)
    wanted = x.astype(made)
    assert found.dtype == made
    added = before + wanted if request_type is OpReqType.ADD else wanted
    assert found.tobytes() == added.tobytes()


def test_a_result_of_another_type_is_that_of_the_whole_function() -> None:
    x, y = (side[:3] for side in ([2.9, -2.9, 70.0], [1.0, 1.0, 0.5]))
    sides = [np.array(side, np.float32) for side in (x, y)]
    found = run_map(lambda x, y: x * y + 1, sides, output=np.zeros(3, np.int32))
    assert found.tolist() == [3, -1, 36]
    assert run_map(lambda x, y: x > y, sides, output=np.zeros(3, np.uint8)).tolist() == [1, 0, 1]
    with pytest.raises(UserError, match="a map of float16"):
        scalar.compile(lambda x: x, result_dtype="float16")


def test_elements_do_not_depend_on_what_the_stack_holds() -> None:
    """An incomplete vector is computed in uninitialised memory on the stack."""
    x = np.linspace(-3, 3, 45).astype(np.float32)

    def wave(x: Any) -> Any:
        return scalar.gelu(x) + scalar.sin(x) + scalar.pow(x, x)

    wanted = run_map(wave, [x])
    for number in (np.nan, -np.inf, 1e-45, 3e38):
        run_map(wave, [np.full(63, number, np.float32)])
        assert run_map(wave, [x]).tobytes() == wanted.tobytes()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_truth_values_count_as_numbers(dtype: str) -> None:
    def truth(x: Any, y: Any, z: Any) -> Any:
        both = (x > y) & ~(z <= 1) | (x == 0)
        odd = scalar.logical_xor(scalar.isnan(x), scalar.logical_not(y))
        return both * x + (x != z) - scalar.where(odd, 2.0, y) + scalar.isinf(z)

    tensors = operands(1000, dtype)
    tensors[0][:4] = [np.nan, np.inf, 0, -0.0]
    tensors[2][:4] = [np.inf, -np.inf, np.nan, 0]
    found = run_map(truth, tensors)
    np.testing.assert_array_equal(found, scalar.evaluate(truth, tensors))


def test_a_map_may_be_a_truth_value_or_a_number() -> None:
    x = np.array([-1, 0, np.nan, 2], np.float32)
    assert run_map(lambda x: x > 0, [x]).tolist() == [0, 0, 0, 1]
    assert run_map(lambda x: 0.5, [x]).tolist() == [0.5] * 4


def test_helpers_loops_and_numbers_from_outside() -> None:
    coefficients = [0.5, np.float32(0.25), 3]

    def polynomial(x: Any, degree: int = 3) -> Any:
        total = x * 0
        for power in range(degree):
            total = total * x + coefficients[power]
        return total + np.float32(2) * x**2 / 4

    x = operands(100)[0]
    assert run_map(polynomial, [x]).tobytes() == scalar.evaluate(polynomial, [x]).tobytes()
    coefficients[0] = 0.75
    assert run_map(polynomial, [x]).tobytes() == scalar.evaluate(polynomial, [x]).tobytes()


def test_a_map_runs_on_python_numbers() -> None:
    assert five_operations(2.0, 3.0, 4.0, 1.0) == 23.0
    assert scalar.where(True, 1.0, 2.0) == 1.0
    assert scalar.gelu(1.0) == pytest.approx(0.8413447460685429, rel=1e-15)
    assert scalar.erfinv(0.5) == pytest.approx(0.4769362762044699, rel=1e-15)
    assert scalar.digamma(1.0) == pytest.approx(-0.5772156649015329, rel=1e-15)
    assert [scalar.round(x) for x in (0.5, 1.5, -2.5, 0.49)] == [1, 2, -3, 0]


def branches(x: Any) -> Any:
    return x if x > 0 else -x


def calls_math(x: Any) -> Any:
    return math.exp(x)


def calls_numpy(x: Any) -> Any:
    return np.arctan2(x, 1.0)


def misspells(x: Any) -> Any:
    return scalar.sigmoyd(x)  # type: ignore[attr-defined]


def misspells_a_name(x: Any) -> Any:
    return softpluss(x)  # type: ignore[name-defined]  # noqa: F821


def returns_a_list(x: Any) -> Any:
    return [x, x]


def adds_text(x: Any) -> Any:
    return x + "one"


@pytest.mark.parametrize(
    ("function", "dtype", "words"),
    [
        (branches, "float32", ["cannot branch", "where(c, x, y)"]),
        (calls_math, "float32", ["not a Python number", "mxrun.operator.scalar"]),
        (calls_numpy, "float32", ["numpy.arctan2", "did you mean 'arctan"]),
        (misspells, "float32", ["sigmoyd", "did you mean 'sigmoid'"]),
        (misspells_a_name, "float32", ["softpluss", "did you mean 'softplus'"]),
        (returns_a_list, "float32", ["returns list", "a tuple with one value for each output"]),
        (adds_text, "float32", ["add with str"]),
        (lambda x: x / 2, "int32", ["quotient of int32"]),
        (lambda x: x * 0.5, "int32", ["0.5 in a map of int32"]),
        (lambda x: x + 256, "uint8", ["256 does not fit uint8"]),
        (lambda x: scalar.exp(x), "int64", ["exp of int64"]),
        (lambda x: (x > 0) + (x < 9), "float32", ["add of truth values"]),
        (lambda x: (x > 0) & x, "float32", ["and of float32"]),
    ],
)
def test_what_has_no_place_in_a_map_is_refused_with_its_line(
    function: Callable[..., Any], dtype: str, words: list[str]
) -> None:
    with pytest.raises(UserError) as refused:
        scalar.compile(function, dtype=dtype)
    (diagnostic,) = refused.value.diagnostics
    assert diagnostic.place is not None
    assert diagnostic.place.file == __file__
    line = Path(__file__).read_text().splitlines()[diagnostic.place.line - 1]
    first = function.__code__.co_firstlineno
    assert diagnostic.place.line in (first, first + 1), line
    for word in words:
        assert word in str(refused.value)


def test_arguments_that_do_not_fit_are_refused() -> None:
    with pytest.raises(UserError, match=r"(?s)expected: tensors, then the parameters beta.*got: x"):
        scalar.compile(branches, parameters=("beta",))
    with pytest.raises(UserError, match="a map of float16"):
        scalar.compile(five_operations, dtype="float16")
