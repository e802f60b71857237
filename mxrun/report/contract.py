"""Tables of `check-op`, made from its JSON report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from mxrun.report.tables import titled_table

Description = Mapping[str, Any]
Part = Table | Text

# Limit of the problems shown per check; the rest are counted.
_MAX_PROBLEMS = 3


def contract_parts(report: Description) -> list[Part]:
    """Return one line per check, then the problems with their hints."""
    title = f"{report['operator']}: {len(report['cases'])} cases"
    table = titled_table(title, "check", "result", "promise")
    for check in report["checks"]:
        table.add_row(Text(check["name"]), _result(check, report), Text(check["promise"]))
    parts: list[Part] = [table]
    broken = [check for check in report["checks"] if not check["passed"]]
    for check in broken:
        parts += _problems(check)
    parts += [
        Text(f"{check['name']}: {check['not_checked']}", "italic")
        for check in report["checks"]
        if check["not_checked"]
    ]
    if report["nonstandard_gradient"]:
        parts.append(Text(f"nonstandard gradient: {report['nonstandard_gradient']}", "italic"))
    if report["without_gradient"]:
        names = ", ".join(report["without_gradient"])
        text = (
            f"no gradient for {names}: the layers before it cannot be trained through this operator"
        )
        parts.append(Text(text, "yellow"))
    return [*parts, _verdict(report, broken)]


def _result(check: Description, report: Description) -> Text:
    if not report["cases"] and check["not_checked"]:
        return Text("not checked", "yellow")
    if check["passed"]:
        return Text("passed", "green")
    return Text(f"{len(check['problems'])} broken", "bold red")


def _problems(check: Description) -> list[Part]:
    parts: list[Part] = [Text(check["name"], "bold red")]
    for problem in check["problems"][:_MAX_PROBLEMS]:
        index = "" if problem["index"] is None else f" at {problem['index']}"
        parts.append(Text(f"  {problem['problem']}{index}"))
        if problem["expected"]:
            parts.append(Text(f"    expected: {problem['expected']}"))
            parts.append(Text(f"    got: {problem['got']}"))
        if problem["hint"]:
            parts.append(Text(f"    hint: {problem['hint']}", "dim"))
    more = len(check["problems"]) - _MAX_PROBLEMS
    return [*parts, Text(f"  and {more} more", "dim")] if more > 0 else parts


def _verdict(report: Description, broken: Sequence[Description]) -> Text:
    if not report["cases"] and report["passed"]:
        return Text(f"{report['operator']} was not checked", "bold yellow")
    if report["passed"]:
        return Text(f"{report['operator']} keeps the contract", "bold green")
    names = ", ".join(check["name"] for check in broken)
    return Text(f"{report['operator']} breaks the contract: {names}", "bold red")
