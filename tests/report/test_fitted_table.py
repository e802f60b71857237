"""Tables on terminals of several widths, and in files."""

from __future__ import annotations

import io

import pytest
from consoles import printed
from rich.console import Console

from mxrun.report.fitted_table import FittedTable, shortened, shortened_apart

_NAME = "stage2/block1/branch/first/conv1:backward"


def table() -> FittedTable:
    made = FittedTable(
        "operators of a long title that is never wrapped, whatever the columns are",
        names=("operator",),
        least_important=("rate", "calls"),
    )
    made.add_column("operator", no_wrap=True)
    for name in ("calls", "ms", "rate"):
        made.add_column(name, no_wrap=True, justify="right")
    made.add_row(_NAME, "1,200", "0.500", "123")
    made.add_row("fc", "1", "1.250", "7")
    return made


@pytest.mark.parametrize(
    ("width", "name", "dropped"),
    [
        (80, _NAME, ""),
        (56, "stage2/…/first/conv1:backward", ""),
        (36, "stage…ckward", "rate"),
        (28, "stage…ckward", "calls, rate"),
    ],
)
def test_a_table_fits_by_leaving_out_columns_and_shortening_names(
    width: int, name: str, dropped: str
) -> None:
    lines = printed(table(), width=width).splitlines()
    rows = [line for line in lines if "0.500" in line]
    assert len(rows) == 1
    assert max(map(len, (line for line in lines if "0.500" in line or "1.250" in line))) <= width
    assert rows[0].split()[0][:5] == name[:5]
    assert rows[0].split()[0][-6:] == name[-6:]
    notes = [line for line in lines if line.startswith("not shown")]
    assert [note.split(": ")[1].split(" (")[0] for note in notes] == ([dropped] if dropped else [])


def test_files_get_every_column_in_full() -> None:
    file = io.StringIO()
    Console(file=file, width=20, soft_wrap=True).print(table())
    lines = file.getvalue().splitlines()
    assert lines[0] == table().heading.plain
    assert [line.split() for line in lines if "fc" in line] == [["fc", "1", "1.250", "7"]]
    assert [line.split()[0] for line in lines if "1,200" in line] == [_NAME]


def test_names_are_shortened_in_the_middle() -> None:
    assert shortened("conv1", 5) == "conv1"
    assert shortened("stage2/block1/branch/conv1", 20) == "stage2/…/conv1"
    assert shortened("stage2/block1/branch/conv1", 22) == "stage2/…/branch/conv1"
    assert shortened("a_long_layer_name", 7) == "a_l…ame"


def test_different_names_stay_different() -> None:
    """Parts that tell names apart are shown in place of those that the names share."""
    units = [f"stage{stage}/unit{unit}/branch/wide" for stage in (2, 3) for unit in (2, 3)]
    outputs = [f"{unit}/conv_output" for unit in (*units, "stage2/branch/wide")]
    names = [*outputs, "stage2/unit2/relu_output", "conv1"]
    assert list(shortened_apart(names, 26).values()) == [
        "stage2/unit2/…/conv_output",
        "stage2/unit3/…/conv_output",
        "stage3/unit2/…/conv_output",
        "stage3/unit3/…/conv_output",
        "stage2/branch/…",
        "stage2/unit2/relu_output",
        "conv1",
    ]
    branches = [f"{unit}/{name}/conv" for unit in units for name in ("narrow", "window")]
    assert shortened_apart(branches, 18)[branches[2]] == "st…2/un…3…na…w/…"
    backward = [f"backward of {unit}/conv ({of})" for unit in units for of in ("data", "weight")]
    letters = [f"{'a' * 30}{letter}{'b' * 30}" for letter in "cdefg"]
    for group in (names, backward, letters):
        for width in (16, 20, 24):
            forms = shortened_apart(group, width)
            assert len(set(forms.values())) == len(group)
            assert max(map(len, forms.values())) <= width
