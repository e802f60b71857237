"""Tables of confusion matrices."""

from __future__ import annotations

from consoles import printed

from mxrun.report.confusion import confusion_tables
from mxrun.report.figures import metrics_text


def drawn(evaluation: dict[str, object]) -> str:
    return printed(*confusion_tables(evaluation), width=100)


def test_a_small_one_is_shown_whole() -> None:
    counts = [[12345, 0], [None, 2.5]]
    lines = drawn({"loss": 0.5, "accuracy": None, "first.confusion_matrix": counts}).splitlines()
    cells = [line.split() for line in lines]
    assert cells[0] == ["first.confusion_matrix"]
    assert ["label", "\\", "predicted", "0", "1"] in cells
    assert ["0", "12,345", "0"] in cells
    assert ["1", "nan", "2.5"] in cells


def test_of_a_large_one_the_commonest_mistakes_are_shown() -> None:
    counts = [[0] * 100 for _ in range(100)]
    for index in range(100):
        counts[index][index] = 1000
    for index in range(20):
        counts[index + 30][index] = 20 - index
    lines = drawn({"confusion_matrix": counts}).splitlines()
    cells = [line.split() for line in lines]
    assert cells[0] == ["confusion_matrix:", "mistakes"]
    assert ["30", "0", "20"] in cells
    assert ["41", "11", "9"] in cells
    assert ["42", "12", "8"] not in cells
    assert ["others", "36"] in cells


def test_a_table_has_no_place_in_a_line() -> None:
    assert metrics_text({"loss": 0.5, "confusion_matrix": [[1, 2]], "f1": 1.0}) == (
        "loss 0.5000  f1 1.0000"
    )
