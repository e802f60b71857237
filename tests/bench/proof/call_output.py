"""Output of commands without what differs from call to call: times, rates, measured memory."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

# Commands whose output measures nothing: all of it is compared, to the character.
_EXACT = {"help", "docs", "schema", "ops", "show", "plot", "convert", "init", "check", "check-op"}

_SIZE = r"\d[\d.,]* (?:B|[KMGT]iB)"
_DURATION = r"\d[\d.,]* (?:ns|µs|us|ms|s|min|h)\b"
_DATE = r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|[+-]\d\d:\d\d)?"
_REPLACED = (
    (r"(?<![\w.])\d[\d.,]* ?[kMG]? (?:samples|records)/s", "RATE"),
    (r"\(\d[\d.,]* ?[kMG]? a second\)", "(RATE)"),
    (r"(samples/s +)\d[\d.,]*(?: [kMG])?", r"\1RATE"),
    # The size of a run depends on the digits of the times that it holds.
    (rf"{_SIZE}( +){_DATE}", r"MEASURED\1DATE"),
    (r"^( *on disk).*", r"\1 MEASURED"),
    (rf"(peak memory +){_SIZE}", r"\1MEASURED"),
)
# What is predicted stays.
_OF_PLANS = ((rf"(planned in ){_DURATION}", r"\1TIME"),)
_OF_RUNS = (
    (_DATE, "DATE"),
    (rf"(?<![\w.]){_DURATION}", "TIME"),
    (r"(--batch max: )\d+( samples fit into )[\d,]+", r"\1MEASURED\2MEASURED"),
)
_OF_INFO = ((rf"^( *\S+ +)\d+ +{_SIZE}$", r"\1MEASURED"),)
# Tables and sentences on measured times, sorted by them, up to the end of the output.
_PROFILE = re.compile(r"(operators|functions)\b.*")
_OF_PROFILES = (
    (r"^(Most time above the floors:|The machine's peak speeds).*", r"\1 MEASURED"),
    (r"[+-]?\d+\.\d+%?|[+-]?\d+%", "MEASURED"),
    # Large figures have no decimals.
    (r"(MEASURED +)\d+(?= )", r"\1MEASURED"),
    (r" \d+$", " MEASURED"),
    (r" (overhead|compute|memory)$", " BOUND"),
)
# Notes that depend on the time that something takes, on the cache and on other processes.
_NOTES_OF_TIME = re.compile(
    r"(Other processes use the cores: |Waited for data |mxrun: waiting for |"
    r"mxrun: compiling loops for |The operators took |Other work kept the machine busy |"
    r"Some operators are faster than their floors: ).*"
)
_OUTSIDE = "outside the arena, measured"

_ONE_OF = r"(\.(median|min|p90|p99|float32|bfloat16))?$"
_MEASURED_KEYS = re.compile(
    rf"[._](ms|s|wait_share|gflops|seconds|rss_peak_bytes|wait_advice){_ONE_OF}|"
    r"^\.outside\.|^\.data_stages|"
    r"^\.(operators\[\d+\]|tape)\.share$|^\.profile\.overhead$|^\.tape\.us_per_call|"
    r"^\.roofline\..*\.(copy|read|update|of_bound|of_floor|error|bound)$|"
    r"^\.roofline\.(disturbed$|largest_excesses)|"
    r"^\.runs\[\d+\]\.bytes$|^\.cache\.kinds\[\d+\]\.(bytes|files)$|^\.cleared\."
)
_PREDICTED_KEYS = re.compile(r"^\.(what_if|alternatives)\b")


def normalised(text: str, words: Sequence[str]) -> list[str]:
    """Return the lines of a command's output, or of a file that it wrote, without measurements.

    JSON becomes a line for each value, with the keys that lead to it.
    """
    exact = words[0] in _EXACT or "--help" in words
    if text.startswith(("{", "[")):
        return list(_json_lines(text, exact))
    lines = text.splitlines()
    return lines if exact else _without_measurements(lines, words[0])


def _without_measurements(lines: Sequence[str], command: str) -> list[str]:
    """Widths of columns are not compared where they follow from measurements."""
    of_command = {"inspect-memory": _OF_PLANS, "info": (*_OF_RUNS, *_OF_INFO)}
    patterns = (*_REPLACED, *of_command.get(command, _OF_RUNS))
    found: list[str] = []
    in_profile = in_outside = False
    section = len(lines)
    for line in lines:
        in_profile |= bool(_PROFILE.fullmatch(line))
        in_outside = line == _OUTSIDE or (in_outside and not line[:1].isalpha())
        if _NOTES_OF_TIME.fullmatch(line):
            continue
        if in_profile or in_outside:
            section = min(section, len(found))
        new = line
        for pattern, replacement in (*patterns, *(_OF_PROFILES if in_profile else ())):
            new = re.sub(pattern, replacement, new)
        if in_outside:
            new = re.sub(r"\S+\.so\S*", "LIBRARY", re.sub(_SIZE, "MEASURED", new))
        found.append(new)
    if found == list(lines):
        return found
    narrow = [re.sub("─+", "─", re.sub(" +", " ", line)) for line in found]
    return _single_blanks([*narrow[:section], *_without_order(narrow[section:])])


def _single_blanks(lines: Sequence[str]) -> list[str]:
    """Leave out blank lines around notes that were left out."""
    pairs = zip(lines, [*lines, ""][1:], strict=True)
    return [line for line, following in pairs if line.strip() or following.strip()]


def _without_order(lines: Sequence[str]) -> list[str]:
    """Sort the different rows of tables, which follow a rule and end with an empty line."""
    found: list[str] = []
    rows: list[str] = []
    in_rows = False
    for line in lines:
        if in_rows and line.strip():
            rows.append(line)
            continue
        found += [*sorted(set(rows)), line]
        rows = []
        in_rows = line.strip() == "─"
    return found + sorted(set(rows))


def _json_lines(text: str, exact: bool) -> Iterator[str]:
    told: set[str] = set()
    for line in text.splitlines():
        try:
            value = json.loads(line, parse_float=_Number, parse_int=_Number)
        except ValueError:
            yield line
            continue
        for path, each in _leaves("", value):
            shown = each if isinstance(each, _Number) else json.dumps(each)
            if exact or _PREDICTED_KEYS.search(path) or not _MEASURED_KEYS.search(path):
                yield f"{path} = {shown if exact else re.sub(_DATE, 'DATE', shown)}"
                continue
            # Their order, and so which is first, follows from times.
            path = re.sub(r"(largest_excesses)\[\d+\]", r"\1[]", path)
            path = re.sub(r"^(\.outside\.libraries|\.data_stages)\b.*", r"\1[]", path)
            if each is not None and path not in told:
                told |= {path} if "[]" in path else set()
                yield f"{path} = MEASURED"


class _Number(str):
    """A number as it is written."""


def _leaves(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict) and value:
        for key, each in value.items():
            yield from _leaves(f"{path}.{key}", each)
    elif isinstance(value, list) and value:
        for place, each in enumerate(value):
            yield from _leaves(f"{path}[{place}]", each)
    else:
        yield path, value
