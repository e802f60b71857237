"""Peak performance of a machine, from which lower bounds on run times are computed."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

from mxrun.base.dataclass import dataclass

# Threads that have the cores to themselves start and end a loop in a few microseconds.
_TASKS_S = 50e-6


@dataclass(frozen=True)
class Bandwidth:
    """Bytes per second of threads that repeatedly process a working set of `nbytes`.

    update: every byte is read and written in place, and counts twice.
    copy: one half is read, the other written.
    read: every byte is read, none is written.
    """

    nbytes: int
    update: float
    copy: float
    read: float


@dataclass(frozen=True)
class Machine:
    """Peak figures of `threads` together; of a device that is not measured, threads is 0.

    flops_per_s: of a matrix product, by the dtype of its factors; `float32` is always present,
        `bfloat16` if the processor has instructions for it.
    bandwidths: for increasing working sets, at least one; a larger one is never faster.
    loop_s: one call, on the tape, of an empty compiled loop.
    primitive_s: one call, on the tape, of a minimal oneDNN primitive.
    tasks_s: additional cost of a loop whose tasks all threads run.
    cache_bytes: sizes of the data caches available to the threads, the nearest first.
    """

    threads: int
    flops_per_s: Mapping[str, float]
    bandwidths: tuple[Bandwidth, ...]
    loop_s: float
    primitive_s: float
    tasks_s: float
    cache_bytes: tuple[int, ...] = ()

    @property
    def disturbed(self) -> bool:
        """Return whether other work delayed the threads during the measurement."""
        return self.tasks_s > _TASKS_S

    def flops(self, dtype: str) -> float:
        """Return operations per second on factors of `dtype`; float32's if it was not measured."""
        return self.flops_per_s.get(dtype, self.flops_per_s["float32"])

    def bandwidth(self, nbytes: int) -> Bandwidth:
        """Return the bandwidth of a working set of any size, interpolated over the logarithm of
        size.
        """
        before = self.bandwidths[0]
        for after in self.bandwidths:
            if nbytes <= after.nbytes:
                break
            before = after
        if nbytes <= before.nbytes or before is after:
            return replace(after, nbytes=nbytes)
        part = math.log(nbytes / before.nbytes) / math.log(after.nbytes / before.nbytes)
        return Bandwidth(
            nbytes,
            before.update + part * (after.update - before.update),
            before.copy + part * (after.copy - before.copy),
            before.read + part * (after.read - before.read),
        )

    def seconds_to_move(self, read: int, written: int, in_place: int = 0) -> float:
        """Return the least time to read and write so many bytes.

        in_place: number of written bytes that overwrite read ones; they move at the speed of an
        update. The other written bytes pair with as many read ones at the speed of a copy, and the
        remaining reads move at the speed of reading. Writes without reads count as copied, which is
        faster.
        """
        bandwidth = self.bandwidth(read + written - in_place)
        rest = read + written - 2 * in_place
        copied = min(rest, 2 * (written - in_place))
        return (
            2 * in_place / bandwidth.update
            + copied / bandwidth.copy
            + (rest - copied) / bandwidth.read
        )

    def to_json(self) -> dict[str, Any]:
        """Return the figures as plain JSON."""
        return asdict(self)

    @classmethod
    def from_json(cls, value: Any) -> Machine | None:
        """Return the figures from the JSON of `to_json`; None for anything else."""
        try:
            machine = cls(
                threads=int(value["threads"]),
                flops_per_s={str(k): float(v) for k, v in value["flops_per_s"].items()},
                bandwidths=tuple(Bandwidth(**row) for row in value["bandwidths"]),
                loop_s=float(value["loop_s"]),
                primitive_s=float(value["primitive_s"]),
                tasks_s=float(value["tasks_s"]),
                cache_bytes=tuple(map(int, value["cache_bytes"])),
            )
            return machine if machine._is_sound() else None
        except (AttributeError, KeyError, TypeError, ValueError, OverflowError):
            return None

    def _is_sound(self) -> bool:
        rates = [*self.flops_per_s.values(), self.loop_s, self.primitive_s]
        for row in self.bandwidths:
            rates += [row.nbytes, row.update, row.copy, row.read]
        sizes = [row.nbytes for row in self.bandwidths]
        return (
            "float32" in self.flops_per_s
            and bool(sizes)
            and sizes == sorted(set(sizes))
            and all(0 < rate < math.inf for rate in rates)
            and 0 <= self.tasks_s < math.inf
        )
