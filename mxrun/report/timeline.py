"""Graph of bytes over steps, drawn with block characters, as wide as the console."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

from mxrun.report.figures import bytes_text
from mxrun.report.fitted_table import shortened

_ROWS = 8
# Width that the name of a step at the mark has at least; else it is left out.
_MIN_NAME = 8
# Maximum columns of a step.
_WIDEST_STEP = 4
_BLOCKS = " ▁▂▃▄▅▆▇█"
_PLAIN_BLOCKS = "    #####"


class Timeline:
    """Filled curve of `nbytes`, one value per step, with a label at its maximum.

    If there are more steps than columns, a column shows the maximum of its steps. always: the bytes
    live at every step; rows that show nothing else have a colour of their own.
    """

    def __init__(self, operators: Sequence[str], nbytes: Sequence[int], always: int = 0) -> None:
        self._operators = operators
        self._bytes = nbytes
        self._always = always

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        highest = max(self._bytes, default=0)
        if not highest:
            return
        blocks, mark = (_PLAIN_BLOCKS, "^") if options.ascii_only else (_BLOCKS, "▲")
        labels = {_ROWS - 1: bytes_text(highest), _ROWS // 2 - 1: bytes_text(highest // 2)}
        margin = max(map(len, labels.values())) + 1
        columns = self._columns(max(1, options.max_width - margin))
        # In eighths of a row, rounded up so that any live byte is visible.
        heights = [-(-8 * _ROWS * value // highest) for value in columns]
        for row in reversed(range(_ROWS)):
            cells = "".join(blocks[min(8, max(0, height - 8 * row))] for height in heights)
            style = "blue" if (row + 1) * highest <= _ROWS * self._always else "cyan"
            yield Text.assemble((labels.get(row, "").rjust(margin - 1), "dim"), " ", (cells, style))
        yield self._marked(columns.index(highest), mark, margin, options.max_width)

    def _columns(self, width: int) -> list[int]:
        steps = len(self._bytes)
        if steps <= width:
            times = min(_WIDEST_STEP, width // steps)
            return [value for value in self._bytes for _ in range(times)]
        return [
            max(self._bytes[column * steps // width : (column + 1) * steps // width])
            for column in range(width)
        ]

    def _marked(self, column: int, mark: str, margin: int, width: int) -> Text:
        """Return the line below: a mark under the peak, with its step's name on the side that has
        room, shortened if neither has enough.
        """
        position = self._bytes.index(max(self._bytes))
        step = f", step {position}"
        left, right = margin + column - 1, width - margin - column - 2
        room = right if len(self._operators[position] + step) <= right else max(left, right)
        before = " " * (margin + column)
        if room - len(step) < _MIN_NAME:
            return Text.assemble(before, (mark, "bold red"))
        name = f"{shortened(self._operators[position], room - len(step))}{step}"
        if len(name) <= right:
            return Text.assemble(before, (mark, "bold red"), " ", name)
        return Text.assemble(before[len(name) + 1 :], name, " ", (mark, "bold red"))
