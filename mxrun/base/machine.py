"""What a machine can do at its best, as measured once: the figures that floors are made of."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

# A team that has the cores to itself starts and meets again in a few microseconds.
_TEAM_S = 50e-6


@dataclass(frozen=True)
class Bandwidth:
    """Bytes per second through a team's cores that go over the same `nbytes` again and again.

    update: everything is read and written in its place, and counts twice. copy: one half is read,
    the other written. read: nothing is written.
    """

    nbytes: int
    update: float
    copy: float
    read: float


@dataclass(frozen=True)
class Machine:
    """The best figures of a team of `threads`.

    flops_per_s: of a matrix product, by the type of its factors; `float32` is always there,
        `bfloat16` where the processor has instructions for it.
    bandwidths: for growing working sets, at least one; a larger one is never faster.
    loop_s: one call, on the tape, of a compiled loop that has nothing to do.
    primitive_s: the same of a primitive of oneDNN's.
    team_s: what either costs beyond that when the whole team takes part.
    cache_bytes: the sizes of the data caches as the team has them, the nearest first.
    """

    threads: int
    flops_per_s: Mapping[str, float]
    bandwidths: tuple[Bandwidth, ...]
    loop_s: float
    primitive_s: float
    team_s: float
    cache_bytes: tuple[int, ...] = ()

    @property
    def disturbed(self) -> bool:
        """Whether other work kept the team from working together while it was measured."""
        return self.team_s > _TEAM_S

    def flops(self, dtype: str) -> float:
        """Operations per second on factors of `dtype`: float32's where it was not measured."""
        return self.flops_per_s.get(dtype, self.flops_per_s["float32"])

    def bandwidth(self, nbytes: int) -> Bandwidth:
        """Of a working set of any size: between measured sizes, on a line over their logarithm."""
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
        """The least time to read and write so many bytes.

        in_place: how many of those written lie where others are read, which is an update. Further
        writing goes with as much reading at the speed of a copy, and what is read alone at that of
        reading. Bytes that are written alone count as copied, which is faster.
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
        """The figures as plain JSON."""
        return asdict(self)

    @classmethod
    def from_json(cls, value: Any) -> Machine | None:
        """What `to_json` made; None for anything else."""
        try:
            machine = cls(
                threads=int(value["threads"]),
                flops_per_s={str(k): float(v) for k, v in value["flops_per_s"].items()},
                bandwidths=tuple(Bandwidth(**row) for row in value["bandwidths"]),
                loop_s=float(value["loop_s"]),
                primitive_s=float(value["primitive_s"]),
                team_s=float(value["team_s"]),
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
            and 0 <= self.team_s < math.inf
        )
