"""Records of a run's metrics.jsonl, and its learning curves."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from mxrun.base.errors import Diagnostic, SourceLocation, UserError
from mxrun.base.params import Parameters, check
from mxrun.preparation.synthetic_data import synthetic_notes
from mxrun.train.progress import CountFrom1
from mxrun.train.run_directory import METRICS_FILE, SUMMARY_FILE, is_step_record

Report = dict[str, Any]

PARTS = ("train", "eval")
# Null stands for numbers that are not finite; tables have no curve.
_Figures = dict[str, float | tuple[Any, ...] | dict[str, Any] | None]


class _Record(Parameters):
    """Line of metrics.jsonl: of an epoch, or of a step, which was not evaluated."""

    epoch: CountFrom1
    step: CountFrom1
    learning_rate: float | None = None
    train: _Figures
    eval: _Figures = {}


def learning_curves(folder: Path) -> Report:
    """Return the learning curves of a run: learning rate and metrics after each epoch.

    Raises UserError naming file and line if metrics.jsonl is damaged or has no epoch yet.
    """
    records = list(read_records(folder))
    if not records:
        hint = "curves begin with the first epoch that ends"
        raise UserError(Diagnostic(f"{folder} has no finished epoch yet", hint=hint))
    return {
        "name": folder.resolve().name,
        "run_dir": str(folder),
        "notes": list(synthetic_notes(folder)),
        "epochs": [record["epoch"] for record in records],
        "steps": [record["step"] for record in records],
        "learning_rate": [record.get("learning_rate") for record in records],
        "metrics": [
            {
                "name": name,
                **{part: [_number(record[part].get(name)) for record in records] for part in PARTS},
            }
            for name in figure_names(records)
        ],
    }


def figure_names(records: Sequence[Report]) -> list[str]:
    """Return the names of all figures that are numbers, in their order in the records."""
    names = {
        name: None
        for record in records
        for part in PARTS
        for name, value in record[part].items()
        if not isinstance(value, (list, Mapping))
    }
    return list(names)


def _number(value: Any) -> float | None:
    """Return the value of a curve; null if the metric is a table in this epoch."""
    return None if isinstance(value, (list, Mapping)) else value


def read_records(folder: Path) -> Iterator[Report]:
    """Yield the records of epochs in a run's metrics.jsonl; none if there is no such file.

    The records of an unfinished run end where a loss of power has left zeros or an incomplete line,
    which --resume removes. Raises UserError naming file and line if a line is damaged.
    """
    path = folder / METRICS_FILE
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise UserError(Diagnostic(f"cannot read {path}: {reason}")) from error
    last = 0
    if not (folder / SUMMARY_FILE).exists():
        content = content.partition(b"\0")[0]
        content = content[: content.rfind(b"\n") + 1]
    for number, line in enumerate(content.splitlines(), 1):
        place = SourceLocation(str(path), number, 1)
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise _damaged(place, f"{type(error).__name__}: {error}") from error
        if not isinstance(record, dict) or check(_Record, record)[0] is None:
            raise _damaged(place, line[:100].decode("utf-8", "replace"))
        if is_step_record(record):
            continue
        if record["epoch"] <= last:
            raise _damaged(place, f"epoch {record['epoch']} after epoch {last}")
        last = record["epoch"]
        yield record


def _damaged(place: SourceLocation, got: str) -> UserError:
    return UserError(
        Diagnostic(
            "this line is damaged",
            place,
            expected='{"epoch": 1, "eval": {...}, "step": 23, "train": {"loss": 0.5, ...}}',
            got=got,
            hint="remove the line, or train again",
        )
    )
