"""Peak figures of cards: those of a data sheet, or computed from properties; none is measured.

Operations per clock and processor are those of the CUDA C++ Programming Guide (throughput of
arithmetic instructions) and, for tensor cores, of the white papers of the architectures, without
sparsity and with float32 sums. The memory moves two words a clock. For the recorded cards the
results are those of the data sheets but for the clock of tensor cores, which is lower under load:
they are at most 9 % above.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from mxrun.base.dtype import BFLOAT16, FLOAT32
from mxrun.base.machine import Bandwidth, Machine

# Operations a clock of a processor, from this compute capability on: with float32, and with
# bfloat16 on tensor cores, which cards of 7.5 lack.
_OPERATIONS = {
    75: (128, 0),
    80: (128, 2048),
    86: (256, 2048),
    90: (256, 4096),
    100: (256, 8192),
    120: (256, 2048),
}
# Bytes a clock between a processor and the second-level cache (white paper of the A100).
_CACHE_BYTES = 64
# A working set of several times the cache has no part of it left.
_BEYOND_CACHE = 4
# Least time from launch to launch within a graph. No card has measured it.
LAUNCH_S = 2.5e-6


def peaks_of(properties: str, sheet: Mapping[str, float]) -> Machine | None:
    """Return the peak figures of a card; None for properties that lack a figure.

    properties: JSON with cuDNN's keys. sheet: operations per second by dtype, and `bytes` per
    second, as a data sheet gives them in place of what follows from the properties.
    """
    try:
        found = json.loads(properties or "{}")
        capability = int(found["deviceVer"]) // 10
        processors, cache = int(found["multiProcessorCount"]), int(found["l2CacheSize"])
        clock = 1e3 * int(found["smClockRateKHz"])
        transfers = 2e3 * int(found["memClockRateKHz"])
        memory = transfers * int(found["memoryBusWidth"]) / 8
    except KeyError:
        return None
    known = max((each for each in _OPERATIONS if each <= capability), default=0)
    if not known:
        return None
    single, low = _OPERATIONS[known]
    # Without tensor cores for it, bfloat16 computes as float32.
    operations = {FLOAT32: single, BFLOAT16: low or single}
    cached = processors * _CACHE_BYTES * clock
    return Machine(
        threads=0,
        flops_per_s={
            dtype: sheet.get(dtype, processors * each * clock) for dtype, each in operations.items()
        },
        bandwidths=(
            _bandwidth(cache // 2, cached),
            _bandwidth(_BEYOND_CACHE * cache, sheet.get("bytes", memory)),
        ),
        loop_s=LAUNCH_S,
        primitive_s=LAUNCH_S,
        tasks_s=0.0,
        cache_bytes=(cache,),
    )


def _bandwidth(nbytes: int, rate: float) -> Bandwidth:
    return Bandwidth(nbytes, update=rate, copy=rate, read=rate)
