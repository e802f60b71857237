"""`mxrun inspect-memory --problem`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from mxrun.base.errors import Diagnostic, UserError


def memory_problem(
    path: Path, others: Sequence[str], time_limit_s: float | None, json: bool
) -> None:
    """Place the blocks of a file.

    others: names of options that apply to networks only. Raises UserError if there are any.
    """
    from mxrun.commands import memory_problem as command
    from mxrun.report.memory_search import search_progress
    from mxrun.report.result import write_json, write_tables

    if others:
        raise UserError(
            Diagnostic(
                f"--problem reads blocks from a file, not a network: {', '.join(others)} "
                "cannot be combined with it",
                hint=f"--problem {path} accepts --time-limit and --json",
            )
        )
    with search_progress(time_limit_s) as advance:
        report = command.place_problem(path, time_limit_s, advance).to_json()
    if json:
        write_json(report)
    else:
        from mxrun.report.memory_problem import problem_tables

        write_tables(problem_tables(report))
