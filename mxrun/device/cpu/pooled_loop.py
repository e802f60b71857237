"""Native functions that Python calls directly and whose tasks several threads run."""

from __future__ import annotations

from mxrun.codegen.arguments import Arguments
from mxrun.codegen.host_loop import HostLoop
from mxrun.codegen.jit import NativeFunction
from mxrun.device.cpu.call import TaskThreads, loop_call


class PooledLoop(HostLoop):
    """Host loop of `tasks`, which threads of the pool run together."""

    def __init__(
        self,
        function: NativeFunction,
        arguments: Arguments,
        tasks: int,
        threads: TaskThreads,
        unlocked: bool = False,
    ) -> None:
        bound = loop_call(function, arguments, tasks, threads)
        self._owner = bound.owner
        self._bind(bound.function, bound.arguments, arguments, bound.owner[0], unlocked)
