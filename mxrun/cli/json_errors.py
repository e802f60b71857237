"""Errors of commands with --json: one line of JSON on standard output.

    {"error": {"kind": "input", "message": "...", "diagnostics": [...]}, "exit_code": 2}

kind: input, usage, stopped, memory or internal. Each diagnostic has message, file, line, column,
expected, got, hint and chain; what it does not have is null. People read the same on standard
error, as without --json.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mxrun.base.errors import Diagnostic, MxrunError, Stopped, UserError
from mxrun.base.utf8 import valid_text

OUT_OF_MEMORY = (
    '{"error": {"diagnostics": [], "kind": "memory", "message": "out of memory"}, "exit_code": 2}\n'
)
"""The line for a failed allocation; it is constant because there is no memory to make it."""

_OPTION, _END_OF_OPTIONS = "--json", "--"


def is_requested(arguments: Sequence[str]) -> bool:
    """Return whether a command line asks for JSON, even if it is wrong otherwise."""
    options = list(arguments)
    if _END_OF_OPTIONS in options:
        options = options[: options.index(_END_OF_OPTIONS)]
    return _OPTION in options


def write_error(error: MxrunError) -> None:
    """Write an error of mxrun."""
    kind = "input" if isinstance(error, UserError) else "internal"
    if isinstance(error, Stopped):
        kind = "stopped"
    diagnostics = error.diagnostics if isinstance(error, UserError) else ()
    _write(kind, str(error), diagnostics, error.exit_code)


def write_usage_error(message: str, command: str, exit_code: int) -> None:
    """Write an error in the command line of `command`, such as `mxrun train`."""
    problem = Diagnostic(message, hint=f"{command} --help")
    _write("usage", message, (problem,), exit_code)


def _write(kind: str, message: str, diagnostics: Sequence[Diagnostic], exit_code: int) -> None:
    import json

    from mxrun.report.streams import results, silence

    error = {
        "kind": kind,
        "message": valid_text(message),
        "diagnostics": [_as_json(each) for each in diagnostics],
    }
    line = json.dumps({"error": error, "exit_code": exit_code})
    try:
        results().write(f"{line}\n")
        results().flush()
    except OSError:
        # The error may be that standard output cannot be written.
        silence(results())


def _as_json(problem: Diagnostic) -> dict[str, Any]:
    place = problem.place
    return {
        "message": valid_text(problem.problem),
        "file": valid_text(place.file) if place else None,
        "line": place.line if place else None,
        "column": place.column if place else None,
        "expected": valid_text(problem.expected) or None,
        "got": valid_text(problem.got) or None,
        "hint": valid_text(problem.hint) or None,
        "chain": list(map(valid_text, problem.chain)),
    }
