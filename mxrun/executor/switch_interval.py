"""Shorter switch interval of the interpreter lock while a loop of steps runs.

The native part of a step runs without the lock. A busy Python thread takes the lock meanwhile, and
holds it for Python's switch interval after the step has requested it back.
"""

from __future__ import annotations

import sys
from types import TracebackType

from mxrun.base.locks import new_lock

# Python's default of 5 ms is as long as a step of a small network. Beside a busy thread, with a
# core for each, a step waits for the interval plus 0.15 ms. Mean wait of mlp_mnist's 0.3 ms steps
# on a loaded machine for 5 / 1 / 0.5 / 0.2 / 0.1 / 0.05 / 0.01 ms: 0.83 / 0.51 / 0.42 / 0.27 / 0.25
# / 0.19 / 0.49 ms. Below 0.1 ms a thread may take the lock in the middle of a step's Python part.
INTERVAL_S = 1e-4


class ShortSwitchInterval:
    """Context manager: busy threads release the interpreter lock after `INTERVAL_S`.

    It is re-entrant across threads: the interval is set when the first loop enters and restored
    when the last one leaves. A shorter interval that was set before stays in force.
    """

    def __init__(self) -> None:
        self._guard = new_lock()
        self._loops, self._before = 0, 0.0

    def __enter__(self) -> None:
        with self._guard:
            if self._loops == 0:
                self._before = sys.getswitchinterval()
                sys.setswitchinterval(min(self._before, INTERVAL_S))
            self._loops += 1

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        with self._guard:
            self._loops -= 1
            if self._loops == 0:
                sys.setswitchinterval(self._before)


# One instance per process, because the switch interval is a setting of the process.
short_switch_interval = ShortSwitchInterval()
