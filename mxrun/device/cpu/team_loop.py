"""Native functions that Python calls directly and that the thread team runs together."""

from __future__ import annotations

from mxrun.codegen.arguments import Arguments
from mxrun.codegen.host_loop import HostLoop
from mxrun.codegen.jit import NativeFunction
from mxrun.device.cpu.call import loop_call


class TeamLoop(HostLoop):
    """Host loop that a team of `threads` runs together."""

    def __init__(
        self, function: NativeFunction, arguments: Arguments, threads: int, unlocked: bool = False
    ) -> None:
        bound = loop_call(function, arguments, threads)
        self._bind(bound.function, bound.arguments, arguments, bound.owner[0], unlocked)
