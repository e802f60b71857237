"""Check that a network's batches can be divided among the contexts that a config lists."""

from __future__ import annotations

from mxrun.base.errors import Diagnostic, UserError
from mxrun.config import RunOptions
from mxrun.frontend.micro_batches import coupled, coupling, one_batch_size
from mxrun.frontend.model import Model


def context_problems(options: RunOptions, model: Model) -> list[Diagnostic]:
    """Return diagnostics if the contexts cannot compute equal parts of each batch.

    They name the first layer that prevents it. Empty for a single context.
    """
    count, batch_size = len(options.devices), options.data.batch_size
    if count == 1:
        return []
    if batch_size % count:
        return [indivisible(options, batch_size)]
    place, hint = options.key_place("context"), "list a single context"
    try:
        part = model.resized(batch_size // count)
        twice = part.resized(2 * part.batch_size)
    except UserError as error:
        return one_batch_size(error, "context", hint)
    problem = "context: the batches of this network cannot be divided"
    return coupled(coupling(part, twice, may_mix=True), Diagnostic(problem, place, hint=hint))


def indivisible(options: RunOptions, batch_size: int) -> Diagnostic:
    """Return the diagnostic for a batch that the contexts cannot share equally."""
    count = len(options.devices)
    return Diagnostic(
        f"a batch cannot be divided into {count} equal parts, one for each context",
        options.place("data", "batch_size"),
        expected=f"data.batch_size: a multiple of {count}",
        got=str(batch_size),
    )


def mixing_layers(model: Model) -> list[str]:
    """Return the names of the layers that mix the samples of a batch in training."""
    return [node.name for node in model.symbol.nodes if node.prop and node.prop.mixes_samples]
