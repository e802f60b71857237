"""Names cannot control a terminal and are never a formula of a spreadsheet."""

from __future__ import annotations

import io

import pytest
from rich.table import Table
from rich.text import Text

from mxrun.base.errors import Diagnostic, UserError
from mxrun.report.console import PrintableConsole, print_error
from mxrun.report.infer import inference_table
from mxrun.report.notes import write_note
from mxrun.report.printable import csv_cells, printable, printable_line

NASTY = "a\x1b[31mb\x07\x9b2Jc\u202ed\x7f\r"
SPELLED = "a\\x1b[31mb\\x07\\x9b2Jc\\u202ed\\x7f\\r"


def test_control_characters_are_spelled_out() -> None:
    assert printable(NASTY) == SPELLED
    assert printable("\udcff") == "\\xff"
    plain = "é 日本 \U0001f600\tx\ny \u200d"
    assert printable(plain) == plain
    assert printable_line(f"{NASTY}\n\t") == f"{SPELLED}\\n\\t"


def test_the_console_obeys_no_text() -> None:
    file = io.StringIO()
    console = PrintableConsole(file=file, width=120, force_terminal=True, color_system="standard")
    table = Table("name")
    table.add_row(Text(NASTY, "bold red"))
    console.print(table)
    console.print(Text(NASTY))
    written = file.getvalue()
    assert "\x1b[31mb" not in written
    assert not set("\x07\x9b\x7f\u202e") & set(written)
    assert written.count("a\\x1b[31mb") == 2
    # Its own colours are there.
    assert "\x1b[1;31m" in written


def test_notes_and_errors_are_plain(capsys: pytest.CaptureFixture[str]) -> None:
    write_note(NASTY)
    print_error(UserError(Diagnostic(NASTY, got=NASTY)))
    assert capsys.readouterr().err == f"mxrun: {SPELLED}\n{SPELLED}\n  got: {SPELLED}\n"


def test_no_cell_is_a_formula() -> None:
    cells = ["=1+1", "+x", "-x", "@x", "\t=x", "-", "-1.5", "+3", "a=b", "", -2, 0.5, None]
    assert csv_cells(cells) == [
        *("'=1+1", "'+x", "'-x", "'@x", "'\t=x"),
        *("-", "-1.5", "+3", "a=b", "", -2, 0.5, None),
    ]


def test_likely_classes_are_one_below_the_other_and_names_in_one_line() -> None:
    top = [{"name": "cat\nfish", "probability": 0.75}, {"name": "dog", "probability": 0.25}]
    row = {"input": "a\nb.png", "record": 0, "top": top}
    file = io.StringIO()
    PrintableConsole(file=file, width=100).print(inference_table("classes", [row]))
    written = [line.split() for line in file.getvalue().splitlines()]
    assert ["a\\nb.png", "cat\\nfish", "0.7500"] in written
    assert ["dog", "0.2500"] in written
