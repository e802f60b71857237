"""Command lines of child interpreters: nothing is imported because it is in the working folder.

`python -c` and `python -m` look for modules in the working folder before Python's own: a file
`json.py` there would run in the child. A script has its own folder in that place. `-P` needs Python
3.11, and `-I` would also hide the user's own packages, in which a peer may be installed.
"""

from __future__ import annotations

import sys
from pathlib import Path

_START = Path(__file__).with_name("child_start.py")


def run_script(script: Path, *arguments: str, python: str = sys.executable) -> list[str]:
    """Return the command that runs a script, in whose folder no module has a name of Python's."""
    return [python, str(script), *arguments]


def run_code(
    code: str, *arguments: str, python: str = sys.executable, beside: Path | None = None
) -> list[str]:
    """Return the command that runs code, with unbuffered output streams.

    beside: a folder in which modules are found that are nowhere else.
    """
    folder = "" if beside is None else str(beside)
    script, *rest = run_script(_START, folder, code, *arguments, python=python)
    return [script, "-u", *rest]
