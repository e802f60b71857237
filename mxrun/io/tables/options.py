"""Options of data sets that read tables in text files."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field as Option
from pydantic import StringConstraints

from mxrun.base.params import Parameters
from mxrun.io.encodings import ENCODING_DOC, Encoding
from mxrun.io.paths import PATHS_DOC, Paths
from mxrun.io.tables.cells import CellForm
from mxrun.io.tables.forms import Columns
from mxrun.io.tables.layout import TableForm

Named = int | Annotated[str, StringConstraints(min_length=1)]
"""A column: its name in the header, or its number."""


class TableFile(Parameters):
    """Path and format of a table in a text file."""

    path: Paths = Option(
        description="The file, plain or compressed (.gz, .bz2, .xz, .zip). "
        + PATHS_DOC.format(suffix="csv"),
        examples=["iris.csv", "rows-*.csv.gz"],
    )
    header: bool | None = Option(
        default=None,
        description="Whether the first row names the columns; default: whether columns are given "
        "by name, or the first row has words alone and rows after it have numbers; a note says so "
        "where it may be doubted.",
        examples=[True],
    )
    delimiter: str | None = Option(
        default=None,
        min_length=1,
        max_length=1,
        description="Separator of the columns, one character; default: a tab, a semicolon or a "
        "comma, as found in the first row.",
        examples=[";"],
    )
    encoding: Encoding | None = Option(default=None, description=ENCODING_DOC, examples=["cp1252"])

    @property
    def form(self) -> TableForm:
        """Format of the file and the columns to read."""
        raise NotImplementedError

    def table_form(self, columns: Columns | None, cells: CellForm) -> TableForm:
        """Return the format of the file; columns: the treatment of columns as it is written."""
        header: Literal["yes", "no", "auto"] = "auto"
        if self.header is not None:
            header = "yes" if self.header else "no"
        forms = None
        if columns is not None:
            forms = {key: choice.form for key, choice in columns.items()}
        return TableForm(
            self.delimiter or "",
            header,
            columns=forms,
            encoding=self.encoding or "",
            cells=cells,
        )
