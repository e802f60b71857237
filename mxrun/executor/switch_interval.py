"""How soon a busy Python thread gives the interpreter's lock back to a loop of steps.

A step's native part runs without the lock. A thread that never rests takes it meanwhile, and keeps
it for Python's switch interval after the step has asked for it back.
"""

from __future__ import annotations

import sys
import threading
from types import TracebackType

# Python's own 5 ms are as long as a step of a small network. A step's wait for the lock beside a
# busy thread, where both have a core, is the interval and 0.15 ms more; mean wait of mlp_mnist's
# 0.3 ms steps on a loaded machine for 5 / 1 / 0.5 / 0.2 / 0.1 / 0.05 / 0.01 ms: 0.83 / 0.51 / 0.42
# / 0.27 / 0.25 / 0.19 / 0.49 ms. Below 0.1 ms a thread may take the lock amid a step's Python part.
INTERVAL_S = 1e-4


class ShortSwitchInterval:
    """While at least one loop is within, busy threads hand the lock over after `INTERVAL_S`.

    A shorter interval that was set before stays. The last loop to leave restores what was there.
    """

    def __init__(self) -> None:
        self._guard = threading.Lock()
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


# The interval is the whole process's, and so is this.
short_switch_interval = ShortSwitchInterval()
