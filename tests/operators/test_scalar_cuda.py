"""Q16: the CUDA C of every map compiles, on machines without a card as well."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from cuda import compile_cuda, needs_nvrtc

from mxrun.codegen.scalar_functions import VOCABULARY
from mxrun.operator import scalar


def swish_gradient(gradient: Any, x: Any, beta: Any) -> Any:
    gate = scalar.sigmoid(beta * x)
    return scalar.where(x > 3, gradient, gradient * (gate + beta * x * gate * (1 - gate)))


def everything(dtype: str) -> Callable[[Any, Any], Any]:
    """Map that uses all scalar functions supported by the dtype."""

    def every_word(x: Any, y: Any) -> Any:
        total = scalar.where(scalar.logical_not(x), x, -y) + 1 - x * 2
        for word in VOCABULARY.values():
            if dtype.startswith("float") or not word.floating:
                count = {"maximum": 2, "minimum": 2, "pow": 2, "mod": 2, "fma": 3}
                total = total + word(*(x, y, x)[: count.get(word.name, 1)])
        small, same = scalar.logical_and(x < y, x <= 1), scalar.logical_or(x == y, x != y)
        return total + scalar.where(scalar.logical_xor(small, ~same), x, float("3"))

    return every_word


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64", "uint8"])
@needs_nvrtc
def test_Q16_the_whole_vocabulary_compiles_for_cuda(dtype: str) -> None:
    ptx = compile_cuda(scalar.cuda_source(everything(dtype), dtype=dtype))
    assert ".entry every_word" in ptx


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@needs_nvrtc
def test_Q16_limits_and_forms_compile_for_cuda(dtype: str) -> None:
    def limits(x: Any, y: Any) -> Any:
        return scalar.where(x > y, float("inf"), scalar.where(x < y, float("-inf"), float("nan")))

    assert ".entry limits" in compile_cuda(scalar.cuda_source(limits, dtype=dtype, steps=(1, 0)))
    source = scalar.cuda_source(swish_gradient, parameters=("beta",), dtype=dtype, adds=(True,))
    assert ".entry swish_gradient" in compile_cuda(source)
    whole = scalar.cuda_source(limits, dtype=dtype, result_dtype="int32")
    assert "int *output" in whole
    assert ".entry limits" in compile_cuda(whole)
    if dtype == "float32":
        # Nothing may be computed in float64, in which a card has a fraction of the speed.
        assert ".f64" not in compile_cuda(source)


def test_Q16_cuda_source_is_the_function_line_by_line() -> None:
    source = scalar.cuda_source(swish_gradient, parameters=("beta",))
    assert 'extern "C" __global__ void swish_gradient(long long count, float *output' in source
    assert "const float v0 = gradient_[i];" in source
    assert "output[i] = v" in source
    assert "expf(" in source
    assert "sigmoid" not in source
