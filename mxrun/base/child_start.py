"""Script of child interpreters, see `mxrun.base.child_python`: runs code like `python -c`.

Arguments: a folder that comes last on `sys.path`, or nothing; the code; its arguments. It is also
run by interpreters without mxrun, and by versions of Python older than mxrun's.
"""

import sys

if __name__ == "__main__":
    # The script's folder. Until it is gone, only modules within the interpreter may be imported.
    sys.path[:] = [entry for entry in sys.path if entry != __file__.rpartition("/")[0]]
    sys.path += filter(None, [sys.argv.pop(1)])
    sys.argv[0] = "-c"
    # As with `python -c`, processes that this one starts find no file to run.
    del __file__
    exec(compile(sys.argv.pop(1), "<string>", "exec", dont_inherit=True))
