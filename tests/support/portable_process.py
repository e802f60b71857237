"""Run mxrun's command line where no library of kernels and no operator's code can be loaded.

Arguments: `portable_process.py KILL ARGUMENTS...`. Loading oneDNN or libgomp raises, as does
loading a compiled object, except for the loops of other parts than the operators. After KILL
training steps the process is killed; 0 is never.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

from mxrun.codegen import object_cache
from mxrun.codegen.jit import NativeFunction
from mxrun.codegen.object_cache import CompiledObject

_REFUSED = ("gomp", "dnnl", "omp.")


def refuse(event: str, arguments: Any) -> None:
    """Audit hook that raises for a library of kernels."""
    if event == "ctypes.dlopen" and any(part in str(arguments[0]) for part in _REFUSED):
        raise RuntimeError(f"{arguments[0]} is loaded")


def link_host_loop(link: Callable[[CompiledObject], int], compiled: CompiledObject) -> int:
    """Link an object of a native function outside of the operators; raise for any other."""
    name = compiled.symbol.rpartition("_")[0]
    if not any(
        isinstance(vars(module).get(name), NativeFunction)
        for path, module in list(sys.modules.items())
        if path.startswith("mxrun.") and not path.startswith("mxrun.ops.")
    ):
        raise RuntimeError(f"{compiled.symbol} is loaded")
    return link(compiled)


def kill_after(steps: int) -> None:
    """Kill the process after so many training steps."""
    from mxrun.train.loop import TrainingLoop

    step = TrainingLoop.step

    def counted(loop: TrainingLoop, number: int, parts: int) -> int:
        valid = step(loop, number, parts)
        if number == steps:
            os.kill(os.getpid(), signal.SIGKILL)
        return valid

    TrainingLoop.step = counted  # type: ignore[method-assign]


def main() -> int:
    """Run the command."""
    sys.addaudithook(refuse)
    from mxrun.__main__ import main as command

    object_cache.link = partial(link_host_loop, object_cache.link)
    if int(sys.argv[1]):
        kill_after(int(sys.argv[1]))
    sys.argv[1:] = sys.argv[2:]
    return command()


if __name__ == "__main__":
    sys.exit(main())
