"""Soak tests report their figures in a table, which is saved in `tests/SOAK.md`."""

from __future__ import annotations

import datetime
import os
import subprocess
from pathlib import Path

import pytest
from _pytest.terminal import TerminalReporter

_GIB = 1 << 30


def pytest_terminal_summary(terminalreporter: TerminalReporter) -> None:
    """The figures that tests gave to `record_property`, as rows of a Markdown table."""
    reports = [
        report
        for outcome in ("passed", "failed")
        for report in terminalreporter.stats.get(outcome, [])
        if report.when == "call" and report.user_properties
    ]
    if not reports:
        return
    terminalreporter.section("figures")
    terminalreporter.line(_machine())
    terminalreporter.line("")
    terminalreporter.line("| test | figures | seconds |")
    terminalreporter.line("|---|---|---|")
    for report in reports:
        name = report.nodeid.rpartition("/")[2]
        figures = ", ".join(f"{value} {what}" for what, value in report.user_properties)
        terminalreporter.line(f"| `{name}` | {figures} | {report.duration:.0f} |")


def _machine() -> str:
    """Return the date, the commit and the machine."""
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"],
        cwd=Path(__file__).parent,
        capture_output=True,
        text=True,
        check=False,
    ).stdout.strip()
    names = [
        line.partition(":")[2].strip()
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if line.startswith("model name")
    ]
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / _GIB
    parts = (
        datetime.datetime.now(datetime.timezone.utc).date().isoformat(),
        f"commit {commit or 'unknown'}",
        names[0] if names else "unknown processor",
        f"{len(os.sched_getaffinity(0))} cores",
        f"{memory:.1f} GiB",
    )
    return ", ".join(parts)


@pytest.fixture(autouse=True)
def _in_empty_folder(empty_folder: Path) -> None:
    """Run each test in its own folder."""
