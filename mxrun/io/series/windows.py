"""Windows over the steps of series as records: views, of which nothing but the starts is held."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from mxrun.base.dataclass import dataclass
from mxrun.base.errors import Diagnostic, UserError
from mxrun.base.tensor import TensorSpec
from mxrun.io.dataset.fields import Field, Inputs
from mxrun.io.series.encoding import SeriesEncoding
from mxrun.io.series.steps import SeriesSteps
from mxrun.io.tables.encoding import EncodedNumber
from mxrun.io.tables.features import FeatureTable
from mxrun.io.tables.learn import learn_encoding

Numbers = NDArray[np.float64]


@dataclass(frozen=True)
class WindowForm:
    """Steps that the network reads, steps that it predicts, and from one window to the next.

    season: steps of a season, at most `window`. look_back: whether a window may begin before the
    part of the steps in which its horizon lies. scaled_by_series: whether the targets of each
    series have a scale of their own.
    """

    window: int
    horizon: int
    stride: int = 1
    season: int | None = None
    look_back: bool = False
    scaled_by_series: bool = True

    @property
    def length(self) -> int:
        """Steps of a window and its horizon."""
        return self.window + self.horizon


@dataclass(frozen=True, eq=False)
class SeriesWindows:
    """Windows over steps, each with its horizon, before the steps' numbers are scaled.

    starts: the first step of each window, int64 [windows].
    """

    steps: SeriesSteps
    form: WindowForm
    starts: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.starts)

    def part(self, rows: slice | NDArray[np.int64]) -> SeriesWindows:
        """Return some of the windows."""
        return replace(self, starts=self.starts[rows])

    @property
    def covered(self) -> NDArray[np.bool_]:
        """Which steps lie in a window or its horizon, bool [steps]."""
        count = len(self.steps) + 1
        changes = np.bincount(self.starts, minlength=count)
        changes -= np.bincount(self.starts + self.form.length, minlength=count)
        found: NDArray[np.bool_] = np.cumsum(changes[:-1]) > 0
        return found

    def learn(self) -> SeriesEncoding:
        """Return the encoding of the columns, learned from the steps of these windows alone.

        Raises UserError for columns from which nothing can be learned.
        """
        steps, form, covered = self.steps, self.form, self.covered
        learned = learn_encoding(steps.features.part(np.flatnonzero(covered)))
        for column in learned.columns[: steps.targets]:
            if not isinstance(column, EncodedNumber) or column.indicator:
                problem = f"{column} cannot be predicted"
                raise UserError(Diagnostic(problem, None, "a column of numbers", column.kind))
        names, errors = steps.names, {}
        edges = steps.bounds().tolist()
        own: dict[int, dict[str, tuple[float, float]]] = {at: {} for at in range(steps.targets)}
        targets = FeatureTable(steps.features.columns[: steps.targets])
        for name, (start, end) in zip(names, pairwise(edges), strict=True):
            rows = start + np.flatnonzero(covered[start:end])
            if not len(rows):
                continue
            errors[name] = tuple(
                self._naive_error(at, covered, start, end) for at in range(steps.targets)
            )
            if form.scaled_by_series and len(names) > 1:
                for at, each in enumerate(learn_encoding(targets.part(rows)).columns):
                    assert isinstance(each, EncodedNumber)
                    own[at][name] = each.center, each.spread
        columns = tuple(
            each.model_copy(update={"of_series": own.get(at, {})})
            for at, each in enumerate(learned.columns)
        )
        return SeriesEncoding(
            columns=columns,
            cells=learned.cells,
            targets=steps.targets,
            known=steps.known,
            window=form.window,
            horizon=form.horizon,
            season=form.season,
            clock=steps.clock,
            naive_errors=errors,
        )

    def _naive_error(self, target: int, covered: NDArray[np.bool_], start: int, end: int) -> float:
        """Return the mean absolute difference of covered steps of a series a season apart."""
        lag = self.form.season or 1
        values, covered = self.steps.values(target)[start:end], covered[start:end]
        positions = self.steps.positions[start:end]
        pairs = covered[lag:] & covered[:-lag] & (positions[lag:] - positions[:-lag] == lag)
        differences = abs(values[lag:] - values[:-lag])[pairs]
        known = differences[~np.isnan(differences)]
        return float(known.mean()) if len(known) else 0.0

    def fields(self, encoding: SeriesEncoding, inputs: Inputs, where: str) -> dict[str, Field]:
        """Return the windows as fields, all scaled, in the shapes of the network's inputs.

        data float32 [window, numbers of a step]; last, its last step [1, numbers]; future [horizon,
        known numbers], if there are any; label [horizon, targets], or [horizon] of one target;
        naive, the targets a season before [horizon, targets], or of the last step [1, targets] if
        no season has a horizon's length. Only steps of the windows are held, each once.
        """
        covered, form = self.covered, self.form
        table = self.steps.features.part(np.flatnonzero(covered))
        rows, _ = encoding.encode(replace(table, series=self.steps.series), where)
        starts = (np.cumsum(covered) - 1)[self.starts]
        rows = np.ascontiguousarray(rows)
        ahead = starts + form.window
        known, targets = encoding.known_inputs, encoding.targets
        values = np.ascontiguousarray(rows[:, :targets])
        back, length = encoding.naive_steps
        fields = {
            "data": _windows(rows, form.window, starts),
            "last": _windows(rows, 1, ahead - 1),
            "label": _windows(values, form.horizon, ahead),
            "naive": _windows(values, length, ahead - back),
        }
        if known:
            fields["future"] = _windows(np.ascontiguousarray(rows[:, -known:]), form.horizon, ahead)
        are_flat = ("label", "naive") if targets == 1 else ()
        return {
            name: _shaped(field, inputs.get(name), name in are_flat)
            for name, field in fields.items()
        }

    def targets(self, indices: NDArray[np.int64]) -> Numbers:
        """Return the true values of windows' horizons, float64 [n, horizon, targets]."""
        ahead = self.starts[indices] + self.form.window
        return self._values(ahead[:, None] + np.arange(self.form.horizon))

    def naive(self, indices: NDArray[np.int64], season: int) -> Numbers:
        """Return forecasts that repeat the last `season` steps, float64 [n, horizon, targets]."""
        end = self.starts[indices] + self.form.window
        return self._values(end[:, None] - season + np.arange(self.form.horizon) % season)

    def series_of(self, indices: NDArray[np.int64]) -> NDArray[np.str_]:
        """Return the names of the series of windows."""
        return np.array(self.steps.names)[self.steps.codes[self.starts[indices]]]

    def described(self, number: int) -> str:
        """Return the series of a window, and the time stamp of the first step that it predicts."""
        step = int(self.starts[number]) + self.form.window
        stamp = self.steps.clock.text(int(self.steps.positions[step]))
        name = self.steps.names[self.steps.codes[step]]
        return f"{name} {'' if stamp is None else stamp}".strip() or "series"

    def _values(self, at: NDArray[np.int64]) -> Numbers:
        columns = [self.steps.values(column)[at] for column in range(self.steps.targets)]
        return np.stack(columns, axis=-1)


def window_starts(
    steps: SeriesSteps, form: WindowForm, bounds: tuple[NDArray[np.int64], NDArray[np.int64]]
) -> NDArray[np.int64]:
    """Return the first steps of all windows without gaps in a part of the steps, int64 [windows].

    bounds: first position of the part, and the one after its last, by series.
    """
    first = np.arange(max(len(steps) - form.length + 1, 0))
    if not len(first):
        return first
    last = first + form.length - 1
    ahead = first + form.window
    positions, codes = steps.positions, steps.codes
    are_whole = (codes[first] == codes[last]) & (
        positions[last] - positions[first] == form.length - 1
    )
    are_whole &= _are_all(steps.seen, first, ahead) & _are_all(steps.ahead, ahead, last + 1)
    low, high = (each[codes[first]] for each in bounds)
    begin = positions[ahead if form.look_back else first]
    starts = np.flatnonzero(are_whole & (begin >= low) & (positions[last] < high))
    if form.stride == 1 or not len(starts):
        return starts
    series, at = np.unique(codes[starts], return_index=True)
    origin = np.zeros(len(steps.names), np.int64)
    origin[series] = positions[starts[at]]
    at_stride = (positions[starts] - origin[codes[starts]]) % form.stride == 0
    return np.asarray(starts[at_stride])


def _are_all(
    flags: NDArray[np.bool_], start: NDArray[np.int64], end: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """Return whether all flags of each range are true."""
    wrong = np.concatenate(([0], np.cumsum(~flags)))
    found: NDArray[np.bool_] = wrong[start] == wrong[end]
    return found


def _windows(rows: NDArray[np.float32], length: int, starts: NDArray[np.int64]) -> Field:
    """Return windows of `length` rows at `starts` as views of one array."""
    width = rows.shape[1]
    flat = sliding_window_view(rows.reshape(-1), length * width)[::width]
    return Field(flat.reshape(-1, length, width), starts=starts)


def _shaped(field: Field, spec: TensorSpec | None, is_single: bool) -> Field:
    """Return a field in the network's shape if that has its size; else without an axis of 1."""
    shape = field.records.shape[1:]
    if spec is not None and spec.elements == field.spec.elements:
        shape = spec.shape
    elif is_single:
        shape = shape[:1]
    return replace(field, records=field.records.reshape(-1, *shape))
