"""Random records for networks without data: their number and the limits of their integers."""

from __future__ import annotations

import numpy as np

from mxrun.frontend import Model
from mxrun.io.dataset.dataset import Dataset
from mxrun.io.dataset.fields import Field
from mxrun.io.draw import draw_bytes, draw_integers

# Maximum number of distinct batches, and of their bytes together: more than caches hold.
_BATCHES = 8
_RECORD_BYTES = 256 << 20
# Exclusive upper limit of integers that no operator limits.
DEFAULT_LIMIT = 10


def synthetic_records(model: Model) -> Dataset:
    """Generate random records of the network's input shapes: floats in (0, 1] or valid integers.

    No float is 0, because a network may divide by one, as a mean does by the number of words.
    Labels are below the number of classes of every loss that reads them, ids below the number of
    rows of every table that they index.
    """
    batches = batch_count(sum(spec.nbytes for spec in model.inputs.values()))
    limits = count_limits(model)
    fields = {}
    for name, spec in model.records.items():
        stream, shape = f"bench/{name}", (batches * model.batch_size, *spec.shape)
        if spec.dtype == "float32" and name not in limits:
            drawn = draw_bytes(0, stream, shape)
            fields[name] = Field.images(np.maximum(drawn, 1, out=drawn))
        else:
            numbers = draw_integers(0, stream, shape, limits.get(name, DEFAULT_LIMIT))
            fields[name] = Field(numbers.astype(spec.dtype))
    return Dataset("synthetic", fields)


def batch_count(batch_bytes: int) -> int:
    """Return the number of synthetic batches of `batch_bytes` bytes each, at least 1."""
    return max(1, min(_BATCHES, _RECORD_BYTES // batch_bytes))


def count_limits(model: Model) -> dict[str, int]:
    """Return the exclusive upper limits of inputs that hold classes or ids, by name."""
    limits: dict[str, int] = {}
    for loss in model.measured:
        label_classes = loss.label_classes
        if label_classes is not None:
            limits[loss.label] = min(
                label_classes.classes, limits.get(loss.label, label_classes.classes)
            )
    for node in model.symbol.nodes:
        if node.operator == "Embedding" and node.prop is not None:
            rows = node.prop.parameters.input_dim
            name = node.inputs[node.prop.list_arguments().index("data")].name
            limits[name] = min(rows, limits.get(name, rows))
    return limits
