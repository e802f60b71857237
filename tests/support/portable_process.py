"""Run mxrun's command line where no library of kernels and no machine code can be loaded.

Arguments: `portable_process.py KILL ARGUMENTS...`. Loading oneDNN, libgomp or a compiled object
raises, as does importing the compiler. After KILL training steps the process is killed; 0 is never.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

_REFUSED = ("gomp", "dnnl", "omp.")


def refuse(event: str, arguments: Any) -> None:
    """Audit hook that raises for a library of kernels and for the compiler."""
    if event == "ctypes.dlopen" and any(part in str(arguments[0]) for part in _REFUSED):
        raise RuntimeError(f"{arguments[0]} is loaded")
    if event == "import" and str(arguments[0]).partition(".")[0] == "llvmlite":
        raise RuntimeError("llvmlite is imported")


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
    from mxrun.codegen import object_cache

    def no_link(compiled: object) -> int:
        raise RuntimeError("machine code is loaded")

    object_cache.link = no_link  # type: ignore[assignment]
    if int(sys.argv[1]):
        kill_after(int(sys.argv[1]))
    sys.argv[1:] = sys.argv[2:]
    return command()


if __name__ == "__main__":
    sys.exit(main())
