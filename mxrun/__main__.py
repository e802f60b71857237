"""Entry point of `python -m mxrun` and of the `mxrun` script: standard streams and exit code.

The top of the file imports only modules that the interpreter has loaded already, so that an
interrupt during any other import is handled as well.
"""

import os
import sys

_INTERRUPTED = 130
# Allocations between two runs of the garbage collector. Imports allocate many objects that all
# stay: at Python's own 700 a short command spends a twelfth of its time in the collector. The first
# step of a small network comes after some 300,000.
_GARBAGE_INTERVAL = 400_000


def main() -> int:
    """Run a command and return its exit code.

    0: good; 2: the user's input; 1: mxrun itself; 75: a run stopped and saved; 130: interrupted;
    141: the reader of the output closed it.
    """
    try:
        import atexit
        import gc

        gc.set_threshold(_GARBAGE_INTERVAL)
        # The interpreter's end looks for garbage several times, a fifth of a short command's time.
        # What is frozen is not looked at, and freed without.
        atexit.register(gc.freeze)
        _open_closed_streams()
        # It reads the time when it is imported.
        import mxrun.cli.clock  # noqa: F401
        from mxrun.cli.main import run

        return run()
    # After an interrupt inside `exec` of a text, which dataclasses use, the interpreter would end
    # with the signal even if the interrupt is caught; typer turns an interrupt into an exit.
    except KeyboardInterrupt:
        os._exit(_INTERRUPTED)
    except SystemExit as end:
        if end.code == _INTERRUPTED:
            os._exit(_INTERRUPTED)
        raise


def _open_closed_streams() -> None:
    """Connect closed standard streams (`>&-`) to the null device.

    Python sets them to None, and the next file opened would get their descriptor: a library's
    output to standard output would then end up in a run's files. The lowest descriptors are opened
    first.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_RDWR), mode))


def _leave_out_working_folder() -> None:
    """Remove the working folder, which `-m` puts first on `sys.path`; a checkout's stays, last.

    No file there may stand in for a module of Python or of a library.
    """
    first = sys.path[0]
    if os.path.isdir(first) and os.path.samefile(first, "."):
        del sys.path[0]
        if os.path.samefile(first, os.path.dirname(os.path.dirname(__file__))):
            sys.path.append(first)


if __name__ == "__main__":
    _leave_out_working_folder()
    sys.exit(main())
