"""Results of training, evaluation and prediction, with representations for notebooks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from mxrun.api.html import drawing, heading, paragraph, section, table
from mxrun.base.dataclass import dataclass
from mxrun.base.errors import UserError
from mxrun.commands.evaluate import Evaluation
from mxrun.inference.head_statistics import HeadEvaluation
from mxrun.report.figures import duration_text, metric_text, records_text
from mxrun.run.learning_curves import learning_curves, read_records
from mxrun.run.saved_runs import BestFigure, read_run

Array = npt.NDArray[Any]

_MAX_ROWS = 20
_MAX_CLASSES = 40


@dataclass(frozen=True)
class RunResult:
    """Training run in its folder.

    ended: `finished` (all epochs, or all steps), `early_stopping`, or `stopped` (saved;
    `fit(resume=True)` continues it). why: the end in words. summary: the figures of `mxrun train
    --json`; empty for a run that is not finished. profile: times of operators by phase, if they
    were requested. notes: notes to the user.
    """

    folder: Path
    ended: str
    why: str
    summary: Mapping[str, Any] = field(default_factory=dict, repr=False)
    profile: Mapping[str, Any] | None = field(default=None, repr=False)
    notes: tuple[str, ...] = ()

    @property
    def history(self) -> tuple[Mapping[str, Any], ...]:
        """One entry an epoch: {epoch, step, learning_rate, train: {...}, eval: {...}}.

        It includes the epochs before a resumption. Raises UserError if the run's metrics are
        damaged.
        """
        return tuple(read_records(self.folder))

    @property
    def best(self) -> BestFigure | None:
        """Best value of the metric that the config watches, else of the first; None without any."""
        return read_run(self.folder).best

    def curve(self, metric: str, part: str = "eval") -> Array:
        """Return a metric after each epoch, float64 [epochs]; NaN where it is not a number.

        part: `train` or `eval`. Raises KeyError for a metric that was never measured.
        """
        values = [record[part].get(metric) for record in self.history]
        if all(value is None for value in values):
            measured = {name for record in self.history for name in record[part]}
            known = ", ".join(sorted(measured)) or "nothing"
            raise KeyError(f"no {part} metric {metric!r}; measured: {known}")
        return np.array([value if _is_number(value) else np.nan for value in values], np.float64)

    def _repr_html_(self) -> str:
        from mxrun.report.curves_svg import curves_svg

        best = self.best
        lines = [f"{self.folder}: {self.why}"]
        if best is not None:
            lines.append(f"best {best.metric} {metric_text(best.value)}, epoch {best.epoch}")
        try:
            curves = learning_curves(self.folder)
        except UserError as error:
            return section(heading(lines[0]), *map(paragraph, (*lines[1:], str(error))))
        picture = drawing(curves_svg({"runs": [curves]}), f"Learning curves of {self.folder}")
        return section(heading(lines[0]), *map(paragraph, lines[1:]), picture)


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float))


@dataclass(frozen=True)
class EvaluationResult:
    """Evaluation of a model, as `mxrun evaluate` prints it.

    loss: the mean. metrics: by name. heads: one for each loss, with the figures of each class
    (`rows`), `classes`, the `confusion` matrix and the worst records (`errors`). notes: notes to
    the user.
    """

    evaluation: Evaluation = field(repr=False)

    @property
    def loss(self) -> float:
        """Mean loss; with several losses the sum of their means."""
        return self.evaluation.loss

    @property
    def metrics(self) -> Mapping[str, float]:
        """Metrics by name."""
        return dict(self.evaluation.metrics)

    @property
    def records(self) -> int:
        """Number of records."""
        return self.evaluation.records

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes to the user, such as on how the records are read."""
        return self.evaluation.notes

    @property
    def heads(self) -> tuple[HeadEvaluation, ...]:
        """Evaluation of each loss."""
        return self.evaluation.heads

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the first head's classes; empty if it has none."""
        return self.heads[0].classes if self.heads else ()

    @property
    def confusion(self) -> Array | None:
        """Confusion matrix of the first head: counts int64 [label, predicted]; None without one."""
        counts = self.heads[0].confusion if self.heads else None
        return None if counts is None else np.array(counts, np.int64)

    def to_json(self) -> dict[str, Any]:
        """Return the figures of `mxrun evaluate --json`."""
        return self.evaluation.to_json()

    def __getitem__(self, name: str) -> float:
        """Return `loss` or a metric by name. Raises KeyError for one that was not measured."""
        measured = {"loss": self.loss, **self.metrics}
        if name not in measured:
            raise KeyError(f"no metric {name!r}; measured: {', '.join(measured)}")
        return measured[name]

    def __repr__(self) -> str:
        metrics = {"loss": self.loss, **self.metrics}
        figures = ", ".join(f"{name} {metric_text(value)}" for name, value in metrics.items())
        return f"<EvaluationResult of {records_text(self.records)}: {figures}>"

    def _repr_html_(self) -> str:
        evaluation = self.evaluation
        figures = {"loss": self.loss, **self.metrics}
        rows = [(name, _text(value)) for name, value in figures.items()]
        parts = [
            heading(f"{evaluation.run}, step {evaluation.step}: {records_text(self.records)}"),
            paragraph(f"{evaluation.source}, {duration_text(evaluation.seconds)}"),
            table(("metric", "value"), rows),
        ]
        for head in self.heads:
            parts += _head_parts(head)
        return section(*parts)


def _head_parts(head: HeadEvaluation) -> Iterator[str]:
    """Yield the tables of one loss: its classes or outputs, the confusion matrix, and errors."""
    if head.forecasts:
        columns = list(head.forecasts[0])
        yield heading(f"{head.name}: forecasts")
        yield table(columns, [[_text(row[name]) for name in columns] for row in head.forecasts])
    rows = head.rows[:_MAX_CLASSES]
    if rows:
        columns = [name for name in rows[0] if name != "class" or "name" not in rows[0]]
        yield heading(head.name)
        yield table(columns, [[_text(row[name]) for name in columns] for row in rows])
    if head.confusion is not None and len(head.confusion) <= _MAX_CLASSES:
        names = head.classes or tuple(map(str, range(len(head.confusion))))
        counts = [(name, *row) for name, row in zip(names, head.confusion, strict=True)]
        shades = [(0.0, *(count / max(1, sum(row)) for count in row)) for row in head.confusion]
        yield heading("confusion matrix: labels in rows, predictions in columns")
        yield table(("", *names), counts, shades)
    if head.errors:
        columns = list(head.errors[0])
        yield heading("worst records")
        yield table(columns, [[_text(row.get(name)) for name in columns] for row in head.errors])


def _text(value: object) -> object:
    return metric_text(value) if isinstance(value, float) else value


@dataclass(frozen=True, eq=False)
class Prediction:
    """Outputs of a network, one row per record; `numpy.asarray` gives the values.

    outputs: by name, [records, ...]. sources: (file, number of the record in it) for each record;
    the file is empty for arrays. classes: names of the classes, if the first output has one value
    for each. notes: notes to the user. times: of a forecast, the time stamps of each series' steps,
    dates as ISO 8601; its outputs are the targets by name, float64 [series, steps], and its sources
    have the names of the series.
    """

    outputs: Mapping[str, Array] = field(repr=False)
    sources: Sequence[tuple[str, int]] = field(repr=False)
    classes: tuple[str, ...] = ()
    notes: tuple[str, ...] = field(default=(), repr=False)
    times: tuple[tuple[str | float | None, ...], ...] = field(default=(), repr=False)

    @property
    def values(self) -> Array:
        """The first output: probabilities [records, classes] of a classifier."""
        return next(iter(self.outputs.values()))

    @property
    def numbers(self) -> Array:
        """Number of the likeliest class of each record, int64 [records]; of equal ones the lower.

        Raises TypeError if the output does not have one value for each class.
        """
        if not self.classes:
            raise TypeError("the first output has no classes; `values` has its numbers")
        numbers: Array = self.values.argmax(axis=1)
        return numbers

    @property
    def names(self) -> list[str]:
        """Name of the likeliest class of each record. Raises TypeError as `numbers` does."""
        return [self.classes[number] for number in self.numbers.tolist()]

    def top(self, count: int = 3) -> list[list[tuple[str, float]]]:
        """Return the likeliest classes of each record with their probabilities, likeliest first."""
        if not self.classes:
            raise TypeError("the first output has no classes; `values` has its numbers")
        orders = np.argsort(-self.values, axis=1, kind="stable")[:, :count].tolist()
        return [
            [(self.classes[number], float(row[number])) for number in order]
            for order, row in zip(orders, self.values, strict=True)
        ]

    def __len__(self) -> int:
        return len(self.sources)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        """Return the values; a copy only if another dtype or a copy is requested."""
        values = self.values if dtype is None else self.values.astype(dtype, copy=False)
        return values.copy() if copy else values

    def __repr__(self) -> str:
        shapes = ", ".join(f"{name} {list(each.shape)}" for name, each in self.outputs.items())
        return f"<Prediction of {records_text(len(self))}: {shapes}>"

    def _repr_html_(self) -> str:
        sources = self.sources[:_MAX_ROWS]
        shown = [f"{file} {number}".strip() for file, number in sources]
        if self.classes:
            best = Prediction({"": self.values[:_MAX_ROWS]}, sources, self.classes).top(1)
            rows = [
                (record, name, metric_text(value))
                for record, ((name, value),) in zip(shown, best, strict=True)
            ]
            body = table(("record", "class", "probability"), rows)
        else:
            texts = (np.array2string(row, threshold=8, precision=4) for row in self.values)
            body = table(("record", "values"), list(zip(shown, texts, strict=False)))
        return section(heading(repr(self)[1:-1]), body)
