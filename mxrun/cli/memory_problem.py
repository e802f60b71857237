"""`mxrun inspect-memory --problem`."""

from __future__ import annotations

from pathlib import Path

from mxrun.base.errors import UserError


def memory_problem(path: Path, others: bool, time_limit_s: float | None, json: bool) -> None:
    """Place the blocks of a file; `others` says whether what is for networks was given too.

    Raises UserError where it was.
    """
    from mxrun import session
    from mxrun.report.memory_search import searching
    from mxrun.report.result import write_json, write_tables

    if others:
        raise UserError(
            "--problem goes with no CONFIG and with no options but --time-limit and --json"
        )
    with searching(time_limit_s) as advance:
        report = session.place_problem(path, time_limit_s, advance).to_json()
    if json:
        write_json(report)
    else:
        from mxrun.report.memory_problem import problem_tables

        write_tables(problem_tables(report))
