"""`python -m mxrun`, and the `mxrun` script: a process from its streams to its exit code.

Nothing but what the interpreter has loaded already is imported at the top, so that an interrupt
during any import ends as it should.
"""

import os
import sys

_INTERRUPTED = 130
# Objects made between two looks for garbage. Imports make many that all stay: at Python's own 700 a
# short command spends a twelfth of its time on looking through them.
_GARBAGE_INTERVAL = 100_000


def main() -> int:
    """The program: runs a command and returns its exit code.

    0: good; 2: the user's input; 1: mxrun itself; 75: a run stopped and saved; 130: interrupted;
    141: the reader went away.
    """
    try:
        import gc

        gc.set_threshold(_GARBAGE_INTERVAL)
        _open_closed_streams()
        from mxrun.cli.main import run

        return run()
    # After an interrupt inside `exec` of a text, as dataclasses use it, the interpreter would end
    # with the signal however it was caught; typer makes an exit of it.
    except KeyboardInterrupt:
        os._exit(_INTERRUPTED)
    except SystemExit as end:
        if end.code == _INTERRUPTED:
            os._exit(_INTERRUPTED)
        raise


def _open_closed_streams() -> None:
    """Give standard streams that are closed (`>&-`) to the null device.

    Python makes them None, and the next file opened would take their descriptor: what is written to
    standard output by a library would land in a run's files. Lowest descriptors come first.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_RDWR), mode))


if __name__ == "__main__":
    sys.exit(main())
