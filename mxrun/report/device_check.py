"""Progress and tables of `info --check`, made from its JSON report."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import RenderableType
from rich.text import Text

from mxrun.report.figures import duration_text
from mxrun.report.tables import Report, titled_table


@contextmanager
def check_progress() -> Iterator[Callable[[int, int, str], None]]:
    """Context manager that gives a callback for the number and the name of the present check.

    Shows both on a terminal.
    """
    if not sys.stderr.isatty():
        yield lambda done, total, name: None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    from mxrun.report.console import stderr

    with Progress(
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TextColumn("{task.description}"),
        console=stderr(),
        transient=True,
    ) as progress:
        task = progress.add_task("starting", total=None)

        def advance(done: int, total: int, name: str) -> None:
            progress.update(task, completed=done, total=total, description=name)

        yield advance


def check_parts(report: Report) -> list[RenderableType]:
    """Return a line for each probe and network and one for all operators, then what failed."""
    table = titled_table(f"{report['context']}: {report['model']}", "check", "result", "promise")
    operators = [check for check in report["checks"] if check["part"] == "operators"]
    for part in ("probes", "operators", "networks"):
        if part == "operators":
            _add_operators(table.add_row, operators)
            continue
        for check in report["checks"]:
            if check["part"] == part:
                table.add_row(Text(check["name"]), _result(check["result"]), Text(check["promise"]))
    parts: list[RenderableType] = [table]
    if not report["captures"]:
        parts.append(Text("MXRUN_DEBUG is set: no program was captured as a graph", "yellow"))
    for check in report["checks"]:
        if check["result"] == "failed":
            parts += [
                Text(check["name"], "bold red"),
                Text(f"  {check['problem']}"),
                Text(f"    next: {check['further']}", "dim"),
            ]
    seconds = duration_text(sum(check["seconds"] for check in report["checks"]))
    counts = Counter(check["result"].partition(":")[0] for check in report["checks"])
    counted = ", ".join(f"{count} {result}" for result, count in sorted(counts.items()))
    if report["passed"]:
        verdict = Text(f"{report['context']} computes what the CPU does", "bold green")
    else:
        verdict = Text(f"{report['context']} fails: please send the report", "bold red")
    return [*parts, Text(f"{counted} in {seconds}"), verdict]


def _add_operators(add_row: Callable[..., None], operators: list[Report]) -> None:
    """Add one line for all operators, and one for each that was not run."""
    if not operators:
        return
    counts = Counter(check["result"].partition(":")[0] for check in operators)
    result = "failed" if counts["failed"] else "passed"
    add_row(f"{counts['passed']} operators", _result(result), Text(operators[0]["promise"]))
    reasons: dict[str, list[str]] = {}
    for check in operators:
        if check["result"].startswith("not run"):
            reasons.setdefault(check["result"], []).append(check["name"])
    for reason, names in reasons.items():
        shown = ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")
        add_row(Text(shown), _result("not run"), Text(reason.partition(": ")[2]))


def _result(result: str) -> Text:
    styles = {"passed": "green", "failed": "bold red"}
    return Text(result, styles.get(result, "yellow"))
