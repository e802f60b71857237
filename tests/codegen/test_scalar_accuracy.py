"""The elementary functions of compiled maps, against NumPy's and Python's in float64."""

from __future__ import annotations

import re
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from object_symbols import undefined_symbols
from processors import CODE_KINDS, kinds
from scalar_maps import run_map, units_off

import mxrun
from mxrun.codegen.scalar_functions import VOCABULARY
from mxrun.codegen.scalar_llvm import assembly, compile_map
from mxrun.codegen.scalar_value import LoopForm
from mxrun.operator import scalar

SPEED = Path(mxrun.__file__).parent / "docs" / "speed.md"
# Largest errors in units in the last place of float32, by function and kind of processor, measured
# over every 101st float32 number and all those of the sizes from 2^-6 to 2^4 or, of logarithms,
# from 1/2 to 8. Functions not listed are computed in float64 and rounded once.
ROWS = re.findall(r"^\| `(\w+)` \| ([\d.]+) \| ([\d.]+) \|$", SPEED.read_text(), re.MULTILINE)
LIMITS = {name: {"avx512": float(wide), "avx2": float(other)} for name, wide, other in ROWS}
ROUNDED_ONCE = 0.502
SPECIAL = [0.0, -0.0, np.inf, -np.inf, np.nan, 1e-45, -1e-45, 1.1754944e-38, 3.4028235e38]
SPECIAL += [sign * number for sign in (1, -1) for number in (0.5, 1, 1.5, 2, 2.5, 3, 8, 20, 100)]
ARGUMENTS = {"pow": 2, "mod": 2, "maximum": 2, "minimum": 2, "fma": 3}
UNARY = [name for name in VOCABULARY if name not in ARGUMENTS]
# Largest errors in units in the last place of float64, against NumPy's and Python's functions that
# have errors of their own.
FLOAT64_LIMIT = 4.0
FLOAT64_LIMITS = {"gamma": 12.0, "gelu": 6.0}
# Where functions overflow or vanish, have zeros or poles, or are computed in another way.
PLACES = [0.125, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 6.5, 8.0, 10.0545, 14.7, 35.0401, 88.7228, 103.97]
PLACES += [0.41421357, 2.4142137, 89.416, 1e-38, 2.0**20, 2.0**23, 2.0**24, 4.0851e36]
PLACES += [*(np.arange(1, 200) * (np.pi / 2)), *(2.0 ** np.arange(10, 127) * np.pi)]
PLACES += [float(number) for number in range(4, 46)]


def numbers(stride: int) -> Any:
    """Special numbers, every `stride`-th of all float32 numbers, and many of usual size."""
    spread = np.arange(0, 2**32, stride, dtype=np.uint64).astype(np.uint32).view(np.float32)
    usual = np.linspace(-20, 20, 20_001).astype(np.float32)
    unit = np.linspace(-1.0001, 1.0001, 20_001).astype(np.float32)
    return np.concatenate([np.array(SPECIAL, np.float32), spread, usual, unit])


def test_every_listed_function_is_accurate_to_one_unit() -> None:
    assert len(LIMITS) >= 13
    assert all(limit <= 1 for limits in LIMITS.values() for limit in limits.values())


@kinds(CODE_KINDS)
@pytest.mark.parametrize("name", LIMITS)
def test_a_function_of_float32_arithmetic_is_accurate_over_all_numbers(
    name: str, processor: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MXRUN_PROCESSOR", processor)
    require_accuracy(
        name, numbers(65_521), LIMITS[name]["avx512" if "512" in processor else "avx2"]
    )


@kinds(CODE_KINDS)
@pytest.mark.sparse
@pytest.mark.parametrize("name", [name for name in UNARY if name not in LIMITS])
def test_a_function_of_float64_arithmetic_is_rounded_once(
    name: str, processor: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MXRUN_PROCESSOR", processor)
    require_accuracy(name, numbers(65_521), ROUNDED_ONCE)


@pytest.mark.parametrize("name", UNARY)
def test_a_function_is_accurate_beside_its_special_places(name: str) -> None:
    near = np.array(PLACES, np.float32).view(np.int32)[:, None] + np.arange(-12, 13, dtype=np.int32)
    x = near.view(np.float32).ravel()
    x = np.concatenate([x, -x])
    if name == "gammaln":
        # Beside these zeros the formula of float64 is too inaccurate; see below.
        x = x[(x > -2) | (np.abs(scalar.gammaln(x)) > 1e-2)]
    require_accuracy(name, x, max(LIMITS.get(name, {"": ROUNDED_ONCE}).values()))


def require_accuracy(name: str, x: Any, limit: float) -> None:
    """Compare a compiled function of float32 with its formula in float64."""
    word = getattr(scalar, name)
    found = run_map(lambda x: word(x), [x])
    with np.errstate(all="ignore"):
        wanted = np.asarray(word(x.astype(np.float64)), np.float64)
    errors = units_off(found, wanted)
    worst = int(errors.argmax())
    assert errors[worst] <= limit, (x[worst], found[worst], wanted[worst])
    zero = (found == 0) & (wanted == 0)
    assert (np.signbit(found) == np.signbit(wanted))[zero].all(), x[zero][:5]


# Values computed by mpmath with 40 digits, at the float32 numbers next to zeros.
@pytest.mark.parametrize(
    ("x", "wanted"),
    [
        (-2.4570248, -1.12878425296e-7),
        (-2.7476826, -1.44181679878e-7),
        (-3.143581, -1.96054615416e-7),
        (-3.9552944, 1.77805968583e-6),
        (-4.039362, -3.05397169039e-6),
        (-4.9915447, 9.66677214837e-6),
        (-5.0082183, -1.48155728063e-5),
        (-5.9986076, 0.000111323067454),
        (-6.001385, 5.9716251821e-5),
        (-6.9998016, 0.000644063764068),
        (-7.0001984, -0.000155598687467),
        (-7.999975, 0.000297249752138),
        (-8.000025, 0.000191093062633),
        (-8.999997, -0.0374897152218),
        (-9.000003, -0.0375025998535),
        (0.99999994, 3.44047375872e-8),
        (1.0000001, -6.88094576425e-8),
        (1.9999999, -5.03998156378e-8),
        (2.0000002, 1.00799658771e-7),
    ],
)
def test_gammaln_is_accurate_beside_its_zeros(x: float, wanted: float) -> None:
    found = run_map(lambda x: scalar.gammaln(x), [np.array([x], np.float32)])
    assert units_off(found, np.array([wanted])) <= ROUNDED_ONCE


@kinds(CODE_KINDS)
def test_powers_are_accurate_and_keep_their_special_values(
    processor: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MXRUN_PROCESSOR", processor)
    random = np.random.default_rng(7)
    special = np.array([*SPECIAL, 1e30, -1e30, 16777217.0, -2.5, 0.25], np.float32)
    x, y = (side.ravel() for side in np.meshgrid(special, special))
    x = np.concatenate([x, np.exp(random.uniform(-87, 88, 50_000)).astype(np.float32)])
    y = np.concatenate([y, random.uniform(-3, 3, 50_000).astype(np.float32)])
    x = np.concatenate([x, -np.exp(random.uniform(-3, 3, 20_000)).astype(np.float32)])
    y = np.concatenate([y, random.integers(-40, 40, 20_000).astype(np.float32)])
    found = run_map(lambda x, y: scalar.pow(x, y), [x, y])
    with np.errstate(all="ignore"):
        wanted = np.power(x.astype(np.float64), y.astype(np.float64))
        signs = np.signbit(found) == np.signbit(wanted.astype(np.float32))
    errors = units_off(found, wanted)
    worst = int(errors.argmax())
    assert errors[worst] <= ROUNDED_ONCE, (x[worst], y[worst], found[worst], wanted[worst])
    assert (signs | np.isnan(found)).all()


@kinds(CODE_KINDS)
def test_remainders_are_those_of_numpy_however_large_the_quotient_is(
    processor: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MXRUN_PROCESSOR", processor)
    random = np.random.default_rng(9)
    special = np.array([*SPECIAL, 1e10, -1e-30, 2.0**24, 2.0**24 - 1, 1 / 3], np.float32)
    x, y = (side.ravel() for side in np.meshgrid(special, special))
    for size in (1, 5, 20, 80):
        signs = random.choice([-1, 1], (2, 20_000))
        drawn = (signs * np.exp(random.uniform(-size, size, signs.shape))).astype(np.float32)
        x, y = np.concatenate([x, drawn[0]]), np.concatenate([y, drawn[1]])
    # Numbers next to integer quotients, where rounding the quotient would cross the integer.
    step = random.integers(1, 5000, 20_000).astype(np.float32) * np.float32(0.1)
    multiple = (step * random.integers(-(2**24), 2**24, 20_000)).astype(np.float32)
    x = np.concatenate([x, multiple, np.nextafter(multiple, np.float32(0))])
    y = np.concatenate([y, step, step])
    wide = np.exp2(random.uniform(-1074, 1024, (2, 20_000))) * random.choice([-1, 1], (2, 20_000))
    wide_sides = [np.concatenate(sides) for sides in ((x, wide[0]), (y, wide[1]))]
    for sides in ([x, y], wide_sides):
        found = run_map(lambda x, y: scalar.mod(x, y), sides)
        with np.errstate(all="ignore"):
            wanted = np.mod(*sides)
        np.testing.assert_array_equal(found, wanted)
        numbers = ~np.isnan(wanted)
        assert (np.signbit(found) == np.signbit(wanted))[numbers].all()


@kinds(CODE_KINDS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_product_and_a_sum_are_rounded_once(
    dtype: str, processor: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MXRUN_PROCESSOR", processor)
    x = np.array([1 + np.finfo(dtype).eps, 3.0, -2.0], dtype)
    found = run_map(lambda x, y, z: scalar.fma(x, y, z), [x, x, -x * x])
    exact = [Fraction(float(a)) ** 2 - Fraction(float(b)) for a, b in zip(x, x * x, strict=True)]
    assert found.tolist() == [float(number) for number in exact]
    assert found[0] != 0


@kinds(CODE_KINDS)
@pytest.mark.sparse
@pytest.mark.parametrize("name", [n for n in UNARY if n not in ("gammaln", "digamma")])
def test_a_function_of_float64_agrees_with_its_formula(
    name: str, processor: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MXRUN_PROCESSOR", processor)
    random = np.random.default_rng(3)
    x = np.concatenate([SPECIAL, random.normal(0, 3, 20_000), random.uniform(-1, 1, 20_000)])
    spread = np.exp2(random.uniform(-1074, 1024, 20_000)) * random.choice([-1, 1], 20_000)
    x = np.concatenate([x, spread, random.uniform(-760, 760, 5_000)])
    word = getattr(scalar, name)
    found = run_map(lambda x: word(x), [x])
    errors = units_off(found, scalar.evaluate(lambda x: word(x), [x]))
    worst = int(errors.argmax())
    limit = FLOAT64_LIMITS.get(name, FLOAT64_LIMIT)
    assert errors[worst] <= limit, (x[worst], found[worst])


# Values computed by mpmath with 40 digits; 1.4616321 and -0.50408 are next to zeros of digamma.
@pytest.mark.parametrize(
    ("name", "x", "wanted"),
    [
        ("erfinv", 1e-10, 8.86226925452758046e-11),
        ("erfinv", 0.5, 0.476936276204469873),
        ("erfinv", -0.97, -1.53448562177771789),
        ("erfinv", 0.9999, 2.75106390571207969),
        ("erfinv", 1 - 2.0**-24, 3.83250685690071091),
        ("digamma", 1e-3, -1000.57557193181028),
        ("digamma", 1.4616321, -4.35146369587697737e-8),
        ("digamma", 2.5, 0.703156640645243187),
        ("digamma", 7.9, 2.00223848756357104),
        ("digamma", 8.1, 2.02886745708058143),
        ("digamma", 100.0, 4.6001618527380874),
        ("digamma", -0.50408, 0.0000268932709197597616),
        ("digamma", -3.7, -0.845076858870419355),
        ("digamma", -20.5, 3.04461688251252463),
    ],
)
def test_a_formula_of_float64_is_accurate(name: str, x: float, wanted: float) -> None:
    word = getattr(scalar, name)
    found = run_map(lambda x: word(x), [np.array([x])])[0]
    assert [word(x), found] == pytest.approx([wanted, wanted], rel=1e-14, abs=2e-15)


@pytest.mark.parametrize("name", ["gammaln", "digamma"])
def test_gamma_functions_of_float64_agree_beside_their_zeros(name: str) -> None:
    x = np.concatenate([np.linspace(0.01, 30, 5_001), np.linspace(-3.95, -0.05, 5_001)])
    word = getattr(scalar, name)
    found = run_map(lambda x: word(x), [x])
    np.testing.assert_allclose(found, scalar.evaluate(word, [x]), rtol=1e-12, atol=1e-13)


@kinds(CODE_KINDS)
@pytest.mark.sparse
@pytest.mark.parametrize("dtype", ["float32", pytest.param("float64", marks=pytest.mark.full)])
@pytest.mark.parametrize("name", VOCABULARY)
def test_compiled_code_calls_nothing(
    name: str, dtype: str, processor: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MXRUN_PROCESSOR", processor)
    word = getattr(scalar, name)
    count = ARGUMENTS.get(name, 1)
    functions = (lambda x: word(x), lambda x, y: word(x, y), lambda x, y, z: word(x, y, z))
    kernel = scalar.compile(functions[count - 1], dtype=dtype)
    low = ("bfloat16",) * (1 + count) if dtype == "float32" else ()
    loop = kernel.graph, kernel.results, LoopForm(dtype, (1,) * count, stored=low)
    assert undefined_symbols(compile_map("loop", *loop).code) == set()
    assert not re.search(r"^\s+(call|bl)", assembly(*loop), re.MULTILINE)


# The payload of NaN may differ.
def bits_on(processor: str, name: str, x: Any, monkeypatch: pytest.MonkeyPatch) -> bytes:
    monkeypatch.setenv("MXRUN_PROCESSOR", processor)
    found = run_map(lambda x: getattr(scalar, name)(x), [x])
    return np.where(np.isnan(found), np.float32(np.nan), found).tobytes()


@kinds(("avx512",))
@pytest.mark.parametrize("name", ["exp", "log", "log1p", "log2", "log10"])
def test_machines_without_the_short_instructions_give_the_same_bits(
    name: str, processor: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = numbers(65_521)
    wide, other = (bits_on(kind, name, x, monkeypatch) for kind in (processor, "avx2"))
    assert wide == other


@kinds(CODE_KINDS)
@pytest.mark.parametrize("name", ["tanh", "erf", "sigmoid"])
def test_limits_are_reached_and_not_passed(
    name: str, processor: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MXRUN_PROCESSOR", processor)
    x = np.concatenate([np.linspace(0, 30, 200_001), [1e30, np.inf]]).astype(np.float32)
    found = run_map(lambda x: getattr(scalar, name)(x), [x])
    assert (found <= 1).all()
    assert (found[x >= 20] == 1).all()


@kinds(CODE_KINDS)
def test_rounding_keeps_the_sign_of_zero(processor: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MXRUN_PROCESSOR", processor)
    x = np.array([0.3, 0.5, 0.7, 1.5, 2.5, 2**22 + 0.5, 2**23 + 1, 3e38, np.inf, np.nan, 0])
    for dtype in ("float32", "float64"):
        both = np.concatenate([x, -x, [2.0**51 + 0.5, -(2.0**52) - 1]]).astype(dtype)
        for name in ("rint", "floor", "ceil", "trunc"):
            found = run_map(lambda x, name=name: getattr(scalar, name)(x), [both])
            wanted = getattr(np, name)(both)
            np.testing.assert_array_equal(found, wanted)
            numbers = ~np.isnan(wanted)
            assert (np.signbit(found) == np.signbit(wanted))[numbers].all(), name


# Functions with a second branch that runs for a vector with at least one rare element: large, far
# below 0, NaN or infinite.
RARE = ["gelu", "sigmoid", "softplus", "expm1", "sin", "cos", "tan", "gammaln", "mod", "pow"]


@pytest.mark.parametrize("name", RARE)
def test_rare_elements_and_their_neighbours_do_not_change_each_other(name: str) -> None:
    random = np.random.default_rng(4)

    def word(x: Any) -> Any:
        return getattr(scalar, name)(*((x, 0.7) if name in ARGUMENTS else (x,)))

    usual = random.uniform(0.6, 2.9, 4096).astype(np.float32)
    rare = np.resize(np.array([-7, -12, 1e9, np.inf, np.nan, -0.25, 5e7], np.float32), 4096)
    mixed = np.where(random.random(4096) < 0.03, rare, usual)
    found, *apart = (run_map(lambda x: word(x), [x]) for x in (mixed, usual, rare))
    wanted = np.where(mixed == usual, *apart)
    np.testing.assert_array_equal(found.view(np.int32), wanted.view(np.int32))
