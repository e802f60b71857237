"""Partition of a tensor into tasks for batch normalisation's loops.

A task is a block of a matrix: some rows of at most 2,048 adjacent columns. The tasks depend on the
shape only, so that no sum depends on the tasks.
"""

from __future__ import annotations

from mxrun.base.dataclass import dataclass

# Maximum columns of a task, whose sums and factors still fit into the L1 and L2 caches, and columns
# up to which rows of few channels are merged into one.
MAX_COLUMNS = 2048
_JOINED = 512
# Minimum elements per task, and maximum number of tasks created for the sake of many threads.
_ELEMENTS_PER_TASK = 16_384
# Rows of a task, whose sums are float32.
_MAX_ROWS = 128
_MAX_CUTS = 64
# Arrays of a thread with one float per column, and the distance in floats at which they would map
# to the same lines of the L1 cache.
ARRAYS = 6
_CONFLICT = 1024


@dataclass(frozen=True)
class Pieces:
    """Partition of data [before, channels, inner] into row_blocks * lines * cuts pieces.

    A row has `lines` lines of `line` columns, each divided into `cuts` chunks of `width` (the last
    may be shorter). With inner > 1 a line is one channel's plane. Otherwise there is one line, of
    as many complete rows of channels as fit.
    """

    before: int
    channels: int
    inner: int
    rows: int
    line: int
    lines: int
    cuts: int
    rows_per_block: int

    @staticmethod
    def of(before: int, channels: int, inner: int) -> Pieces:
        """Return the pieces of a tensor that is not empty."""
        elements = before * channels * inner
        if channels == 1:
            before, inner = before * inner, 1
        planes = inner > 1
        joined = 1 if planes else _joined(before, channels)
        rows = before // joined
        line, lines = (inner, channels) if planes else (joined * channels, 1)
        cuts = -(-line // MAX_COLUMNS)
        # Wide rows get few blocks, because one thread adds the blocks' partial sums of each
        # channel.
        apart = lines * cuts if planes else -(-line // _JOINED)
        blocks = min(elements // _ELEMENTS_PER_TASK, _MAX_CUTS) // apart
        rows_per_block = min(-(-rows // max(blocks, 1)), _MAX_ROWS)
        return Pieces(
            before=before,
            channels=channels,
            inner=inner,
            rows=rows,
            line=line,
            lines=lines,
            cuts=cuts,
            rows_per_block=rows_per_block,
        )

    @property
    def row_blocks(self) -> int:
        """Number of blocks of rows."""
        return -(-self.rows // self.rows_per_block)

    @property
    def count(self) -> int:
        """Number of pieces."""
        return self.row_blocks * self.lines * self.cuts

    @property
    def partial_sums(self) -> int:
        """Number of pieces that share a channel."""
        return self.row_blocks * (self.cuts if self.inner > 1 else 1)

    @property
    def elements_per_channel(self) -> int:
        """Number of elements in the mean of a channel."""
        return self.before * self.inner

    @property
    def width(self) -> int:
        """Columns of a piece, except the last of its line: a multiple of the vector size."""
        return -(-self.line // (16 * self.cuts)) * 16

    @property
    def pitch(self) -> int:
        """Floats from one array of a thread to the next."""
        pitch = self.width + 16
        return pitch + 16 if pitch % _CONFLICT == 0 else pitch

    @property
    def block_bytes(self) -> int:
        """Size in bytes of a thread's arrays."""
        return 4 * ARRAYS * self.pitch

    def arguments(self) -> dict[str, int]:
        """Return the arguments that describe the pieces of a loop, by name."""
        width, planes = self.width, self.inner > 1
        return {
            "pieces": self.count,
            "stride": self.lines * self.line,
            "rows": self.rows,
            "rows_per_block": self.rows_per_block,
            "lines": self.lines,
            "line": self.line,
            "cuts": self.cuts,
            "width": width,
            "channels": self.channels,
            "unit": 1 if planes else min(self.channels, width),
            "channels_per_cut": 0 if planes else width,
            "sums_per_block": self.cuts if planes else 1,
            "sums_per_cut": 1 if planes else 0,
            "array_pitch": self.pitch,
            "floats_per_worker": ARRAYS * self.pitch,
        }


def _joined(rows: int, channels: int) -> int:
    """Return how many rows of channels are merged into one row of a piece: a divisor of `rows`."""
    max_repeats = max(_JOINED // channels, 1)
    return next(count for count in range(max_repeats, 0, -1) if rows % count == 0)
