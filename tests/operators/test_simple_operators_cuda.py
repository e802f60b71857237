"""Q16: every registered map has a CUDA form, from the same function as its loop."""

from __future__ import annotations

import pytest
from cuda import compile_cuda, needs_nvrtc

from mxrun import library
from mxrun.operator.register import OPERATORS
from mxrun.operator.simple import SimpleEntry

library.load()
ENTRIES = {
    name: entry
    for name in OPERATORS
    for entry in [vars(OPERATORS.get(name)).get("entry")]
    if isinstance(entry, SimpleEntry) and entry.forward.is_map
}


@pytest.mark.parametrize("name", ENTRIES)
def test_Q16_every_map_is_cuda_source(name: str) -> None:
    sources = ENTRIES[name].cuda_sources(name)
    assert f"map_{name}" in sources
    for kernel, source in sources.items():
        assert f'extern "C" __global__ void {kernel}(long long count, float *output' in source


# In float64 alone a remainder is exact at any quotient, a square within its range, and digamma, of
# the gamma functions' gradients, accurate next to its zeros.
WIDE = ("mod", "hypot", "gamma")


@pytest.mark.parametrize("name", ENTRIES)
@needs_nvrtc
def test_Q16_every_map_compiles_for_cuda(name: str) -> None:
    for kernel, source in ENTRIES[name].cuda_sources(name).items():
        assert f".entry {kernel}" in compile_cuda(source)
        # No other function may be computed in float64, in which a card has a fraction of the speed.
        assert "double" not in source or any(word in name for word in WIDE)
