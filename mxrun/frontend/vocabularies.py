"""Check of the vocabularies of texts against the tables that the network looks tokens up in."""

from __future__ import annotations

from collections.abc import Iterable

from mxrun.base.errors import Diagnostic
from mxrun.frontend.model import Model
from mxrun.io.dataset.dataset import Dataset

_LOOK_UP = "Embedding"


def vocabulary_problems(model: Model, datasets: Iterable[Dataset]) -> tuple[Diagnostic, ...]:
    """Return diagnostics for Embedding layers with fewer rows than the vocabulary has tokens."""
    found: dict[object, Diagnostic] = {}
    for dataset in datasets:
        vocabulary = dataset.vocabulary
        if vocabulary is None:
            continue
        for node in model.symbol.nodes:
            if node.prop is None or node.prop.type_string != _LOOK_UP:
                continue
            rows, source = getattr(node.prop.parameters, "input_dim", 0), node.inputs[0].node
            is_read = source.is_variable and source.name in dataset.token_fields
            if is_read and rows < len(vocabulary):
                found[node.name] = Diagnostic(
                    f"Embedding {node.name!r} has {rows} rows, but the vocabulary of data set "
                    f"{dataset.name!r} has {len(vocabulary)} tokens",
                    node.place,
                    f"{len(vocabulary)} rows or more",
                    str(rows),
                    hint=f"write input_dim: {len(vocabulary)}",
                )
    return tuple(found.values())
