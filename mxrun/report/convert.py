"""Tables of `convert`: the file with its inputs and outputs."""

from __future__ import annotations

from rich.table import Table
from rich.text import Text

from mxrun.report.figures import bytes_text, count_text
from mxrun.report.tables import Report, titled_table


def convert_tables(report: Report) -> list[Table | Text]:
    """Return a table of input and output tensors, then the sizes."""
    table = titled_table(f"{report['file']}, ONNX with opset {report['opset']}")
    for name in ("tensor", "", "type", "shape"):
        table.add_column(name)
    for kind, direction in (("inputs", "in"), ("outputs", "out")):
        for name, tensor in report[kind].items():
            shape = "x".join(str(size) for size in tensor["shape"])
            table.add_row(Text(name), direction, tensor["dtype"], shape)
    size = bytes_text(report["bytes"])
    parameters = count_text(report["parameters"])
    figures = Text(f"{report['operators']} operators, {parameters} parameters, {size}")
    return [table, figures, Text(f"metadata: {', '.join(report['metadata'])}")]
