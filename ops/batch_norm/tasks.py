"""How batch normalization's loops cut a tensor into tasks.

A task is a block of a matrix: some rows of at most 2,048 columns that lie one behind the other. The
tasks follow from the shape alone: no sum depends on the team.
"""

from __future__ import annotations

from dataclasses import dataclass

# Most columns of a task, whose sums and factors still lie in the first caches, and how many rows of
# few channels make up.
_COLUMNS = 2048
_JOINED = 512
# Elements that are worth a task of their own, and most tasks cut for the sake of large teams.
_ELEMENTS_PER_TASK = 16_384
_MAX_CUTS = 64
# Arrays of one float a column that a thread keeps, and floats between which they would fight for
# the same lines of the first cache.
ARRAYS = 6
_CONFLICT = 1024


@dataclass(frozen=True)
class Tasks:
    """data [before, channels, inner] in memory, cut into row_blocks times lines times cuts tasks.

    A row holds `lines` lines of `line` columns, each cut into `cuts` of `width` (the last may be
    shorter). With inner > 1 a line is one channel's plane, else there is one line of whole rows of
    channels, as many as fit.
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
    def of(before: int, channels: int, inner: int) -> Tasks:
        """The tasks of a tensor that is not empty."""
        elements = before * channels * inner
        if channels == 1:
            before, inner = before * inner, 1
        planes = inner > 1
        joined = 1 if planes else _joined(before, channels)
        rows = before // joined
        line, lines = (inner, channels) if planes else (joined * channels, 1)
        cuts = -(-line // _COLUMNS)
        # The wider the rows the fewer the blocks: one thread adds up what they leave a channel.
        apart = lines * cuts if planes else -(-line // _JOINED)
        wanted = min(elements // _ELEMENTS_PER_TASK, _MAX_CUTS) // apart
        rows_per_block = -(-rows // max(wanted, 1))
        return Tasks(before, channels, inner, rows, line, lines, cuts, rows_per_block)

    @property
    def row_blocks(self) -> int:
        """Into how many the rows are cut."""
        return -(-self.rows // self.rows_per_block)

    @property
    def count(self) -> int:
        """How many tasks there are."""
        return self.row_blocks * self.lines * self.cuts

    @property
    def partial_sums(self) -> int:
        """How many tasks share a channel."""
        return self.row_blocks * (self.cuts if self.inner > 1 else 1)

    @property
    def elements_per_channel(self) -> int:
        """What the mean is taken over."""
        return self.before * self.inner

    @property
    def width(self) -> int:
        """Columns of a task that is not the last of its line, whole vectors."""
        return -(-self.line // (16 * self.cuts)) * 16

    @property
    def pitch(self) -> int:
        """Floats from one array of a thread's own to the next."""
        pitch = self.width + 16
        return pitch + 16 if pitch % _CONFLICT == 0 else pitch

    @property
    def block_bytes(self) -> int:
        """Of a thread's own arrays."""
        return 4 * ARRAYS * self.pitch

    def arguments(self, team: int) -> tuple[int, ...]:
        """The first slots of a team's loop.

        0 tasks, 1 tasks a thread, 2 columns between rows, 3 rows, 4 rows of a block, 5 lines,
        6 line, 7 cuts, 8 width, 9 channels, 10 columns between two of one channel, 11 channels
        between cuts, 12 and 13 partial sums between blocks of rows and between cuts, 14 and 15
        floats between a thread's own arrays and in all of them.
        """
        width, planes = self.width, self.inner > 1
        unit, step, sums = (1, 0, 1) if planes else (min(self.channels, width), width, 0)
        return (
            *(self.count, -(-self.count // team), self.lines * self.line, self.rows),
            *(self.rows_per_block, self.lines, self.line, self.cuts, width),
            *(self.channels, unit, step, self.cuts if sums else 1, sums),
            *(self.pitch, ARRAYS * self.pitch),
        )


def _joined(rows: int, channels: int) -> int:
    """How many rows of channels make one row of a task: a divisor of `rows`."""
    most = max(_JOINED // channels, 1)
    return next(count for count in range(most, 0, -1) if rows % count == 0)
