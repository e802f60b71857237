"""Runs on disk: state, best and last metrics and sizes of each, read from its folder."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from mxrun.base.dataclass import dataclass
from mxrun.base.errors import Diagnostics, UserError
from mxrun.config.load import load_file
from mxrun.run.learning_curves import PARTS, figure_names, read_records
from mxrun.run.train_summary import TrainSummary
from mxrun.train.checkpoint import PARAMETERS_FILE, checkpoint_folder
from mxrun.train.checkpoint_manager import saved_steps
from mxrun.train.metric_kind import METRICS, MetricKind
from mxrun.train.progress import Rank, rank
from mxrun.train.run_directory import CONFIG_FILE, SUMMARY_FILE, is_run
from mxrun.train.run_lock import is_being_written

Plain = Mapping[str, Any]

_LOSS = "loss"


@dataclass(frozen=True)
class BestFigure:
    """Best value of a metric over the epochs, by the rule that selects checkpoints; see `SavedRun`.

    loss: of the same epoch; None if it is not finite. checkpoint: the step of the epoch's
    checkpoint; None if it is not saved, or deleted.
    """

    metric: str
    value: float
    loss: float | None
    epoch: int
    checkpoint: int | None = None


@dataclass(frozen=True)
class SavedRun:
    """Run in its folder.

    state: running, finished (also by early stopping), stopped (with progress that --resume
    continues), failed (before its first checkpoint), or damaged with the `problem`. written: time
    of the last change in seconds since 1970. epochs: finished ones; of a stopped run, they and all
    figures are those up to its newest checkpoint. planned_epochs: those of the config. last: finite
    numbers of the last evaluation, or of training if the run has none. parameters: number of
    elements. arena_bytes: of a finished run. bytes: on disk. config: the resolved config as plain
    values. series: finite values of each figure by epoch, of evaluations or of training as `last`.
    higher: the figures of which more is better. checkpoints: steps of the saved ones by the epoch
    at whose end they were.
    """

    path: Path
    state: str
    problem: str
    written: float
    epochs: int
    planned_epochs: int | None
    last: Mapping[str, float]
    parameters: int | None
    arena_bytes: int | None
    bytes: int
    config: Plain
    series: Mapping[str, Mapping[int, float]]
    higher: frozenset[str]
    checkpoints: Mapping[int, int]

    @property
    def name(self) -> str:
        """Name of the run's folder."""
        return self.path.resolve().name

    def best_of(self, metric: str) -> BestFigure | None:
        """Return the best value of a metric; None if it is not known of any epoch."""
        losses = self.series.get(_LOSS, {})
        figures = [
            BestFigure(metric, value, losses.get(epoch), epoch, self.checkpoints.get(epoch))
            for epoch, value in self.series.get(metric, {}).items()
        ]
        return max(figures, key=self.rank, default=None)

    def rank(self, figure: BestFigure) -> Rank:
        """Return the rank of a figure: the better of two has the higher one."""
        higher = self.is_higher_better(figure.metric)
        return rank(figure.value, figure.loss, figure.epoch, higher)

    def is_higher_better(self, metric: str) -> bool:
        """Return whether more of a metric is better; with several losses they prefix its name."""
        return metric.rpartition(".")[2] in self.higher

    @property
    def best(self) -> BestFigure | None:
        """Best value of the metric that the config watches, else of the first one, or the loss."""
        train = _mapping(self.config.get("train"))
        watched = [
            _mapping(train.get(section)).get(key)
            for section, key in (("checkpoint", "best"), ("early_stopping", "metric"))
        ]
        higher = [name for name in self.series if self.is_higher_better(name)]
        names = [*filter(self.series.__contains__, watched), *higher, _LOSS, *self.series]
        return next((best for best in map(self.best_of, map(str, names)) if best), None)


def saved_runs(folder: Path) -> list[SavedRun]:
    """Return the runs in a folder, the one that was written last at the end.

    Empty if the folder does not exist. Raises UserError if it cannot be read.
    """
    try:
        entries = sorted(folder.iterdir())
    except FileNotFoundError:
        return []
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise UserError(f"cannot read {folder}: {reason}") from error
    found = [read_run(path) for path in entries if path.is_dir() and _has_run(path)]
    return sorted(found, key=lambda run: (run.written, run.name))


def _has_run(path: Path) -> bool:
    try:
        return is_run(path) or bool(saved_steps(path))
    except UserError:
        # It is listed with what prevents it from being read.
        return True


def read_run(path: Path) -> SavedRun:
    """Return the run in a folder; what is damaged is named in its `problem`."""
    problems: list[str] = []
    config = _config(path, problems)
    records = _records(path, problems)
    summary = _summary(path, problems)
    steps = _steps(path, problems)
    state = _state(path, bool(problems), summary is not None, bool(steps or records))
    if state == "stopped":
        # --resume continues at the checkpoint and removes the records after it.
        records = [each for each in records if each["step"] <= max(steps, default=0)]
    series = _series(records)
    epochs = [epoch for values in series.values() for epoch in values]
    last = {name: values[max(epochs)] for name, values in series.items() if max(epochs) in values}
    train = _mapping(config.get("train"))
    planned = train.get("epochs")
    size, written = _disk_use(path)
    return SavedRun(
        path=path,
        state=state,
        problem="; ".join(problems),
        written=written,
        epochs=records[-1]["epoch"] if records else 0,
        planned_epochs=planned if type(planned) is int and planned > 0 else None,
        last=last,
        parameters=_parameters(path, steps),
        arena_bytes=None if summary is None else summary.memory.planned_bytes,
        bytes=size,
        config=config,
        series=series,
        higher=_higher(train),
        checkpoints={each["epoch"]: each["step"] for each in records if each["step"] in steps},
    )


def _state(path: Path, damaged: bool, finished: bool, has_progress: bool) -> str:
    if is_being_written(path):
        return "running"
    if damaged:
        return "damaged"
    if finished:
        return "finished"
    return "stopped" if has_progress else "failed"


def _config(path: Path, problems: list[str]) -> Plain:
    """Return the config as plain values; empty if it cannot be read."""
    file = path / CONFIG_FILE
    diagnostics = Diagnostics()
    try:
        plain = load_file(file, str(file), diagnostics).plain()
    except UserError as error:
        diagnostics += error.diagnostics
        plain = None
    problems += [f"{CONFIG_FILE}: {each.problem}" for each in list(diagnostics)[:1]]
    return _mapping(plain)


def _mapping(value: Any) -> Plain:
    return value if isinstance(value, Mapping) else {}


def _records(path: Path, problems: list[str]) -> list[dict[str, Any]]:
    """Return the records of metrics.jsonl up to the first damaged line."""
    records: list[dict[str, Any]] = []
    try:
        for record in read_records(path):
            records.append(record)
    except UserError as error:
        first = error.diagnostics[0]
        line = f"line {first.place.line}: " if first.place is not None else ""
        problems.append(f"metrics.jsonl: {line}{first.problem}")
    return records


def _summary(path: Path, problems: list[str]) -> TrainSummary | None:
    """Return the summary of a finished run; None if there is none, or if it is damaged."""
    try:
        content = json.loads((path / SUMMARY_FILE).read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError):
        content = None
    summary = TrainSummary.from_json(content) if isinstance(content, dict) else None
    if summary is None:
        problems.append(f"{SUMMARY_FILE} is damaged")
    return summary


def _steps(path: Path, problems: list[str]) -> list[int]:
    try:
        return saved_steps(path)
    except UserError as error:
        problems.append(error.diagnostics[0].problem)
        return []


def _series(records: Sequence[dict[str, Any]]) -> dict[str, dict[int, float]]:
    """Return the finite values of each figure by epoch: of evaluation if there is any, else of
    training, and never some of each.
    """
    train, evaluation = PARTS
    part = evaluation if any(record[evaluation] for record in records) else train
    series = {
        name: {
            record["epoch"]: float(record[part][name])
            for record in records
            if isinstance(record[part].get(name), (int, float))
        }
        for name in figure_names(records)
    }
    return {name: values for name, values in series.items() if values}


def _higher(train: Plain) -> frozenset[str]:
    """Return the figures of which more is better: of all metrics, with the config's parameters."""
    given = train.get("metrics")
    forms = [*METRICS, *(given if isinstance(given, tuple) else ())]
    choices = [{form: {}} if isinstance(form, str) else _mapping(form) for form in forms]
    return frozenset(
        kind.figure
        for choice in choices
        for name, parameters in choice.items()
        for kind in _kinds(name, _mapping(parameters))
        if kind.higher_is_better
    )


def _kinds(name: str, parameters: Plain) -> Iterator[MetricKind]:
    """Yield the metric; nothing if it is unknown, as are those of plugins."""
    if name in METRICS:
        with suppress(ValueError):
            yield METRICS.get(name)(**parameters)


def _parameters(path: Path, steps: Sequence[int]) -> int | None:
    """Return the number of parameters from the header of the newest checkpoint, or None."""
    from safetensors import SafetensorError, safe_open

    if not steps:
        return None
    file = checkpoint_folder(path, steps[-1]) / PARAMETERS_FILE
    try:
        with safe_open(str(file), framework="numpy") as arrays:
            names = arrays.keys()
            return int(sum(math.prod(arrays.get_slice(name).get_shape()) for name in names))
    except (OSError, SafetensorError):
        return None


def _disk_use(path: Path) -> tuple[int, float]:
    """Return the bytes of all files in a folder, and the time of the last change."""
    size, written = 0, 0.0
    for folder, _, names in os.walk(path):
        for name in names:
            try:
                status = os.lstat(os.path.join(folder, name))
            except OSError:
                # The run removed the file in the meantime.
                continue
            size, written = size + status.st_size, max(written, status.st_mtime)
    return size, written
