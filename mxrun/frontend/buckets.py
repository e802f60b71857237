"""Buckets: batches of sequences padded to one of several lengths, each with a plan of its own."""

from __future__ import annotations

from collections.abc import Mapping

from mxrun.base.errors import Diagnostic, UserError
from mxrun.config import RunOptions
from mxrun.frontend.micro_batches import one_size
from mxrun.frontend.model import Model
from mxrun.io.dataset.buckets import BucketOptions
from mxrun.io.dataset.request import DatasetRequest


def bucket_models(model: Model, requests: Mapping[str, DatasetRequest]) -> dict[int, Model]:
    """Return the network for each length below that of a record, ascending; empty without buckets.

    These are the lengths of the buckets of all data sets. Raises UserError if the network does not
    permit another length.
    """
    found: dict[int, Model] = {}
    for names, lengths in _bucketed(requests).items():
        sequences = [name for name in names if name in model.inputs]
        full = max((model.inputs[name].shape[1] for name in sequences), default=0)
        for length in lengths:
            if length < full:
                found[length] = _shortened(model, length, sequences)
    return dict(sorted(found.items()))


def bucket_problems(
    options: RunOptions, model: Model, requests: Mapping[str, DatasetRequest]
) -> tuple[Diagnostic, ...]:
    """Return the reasons why data sets in buckets cannot be used."""
    if not _bucketed(requests):
        return ()
    settings = {
        "a list of contexts": len(options.devices) > 1,
        "batch parts": options.parts_of_batch > 1,
        "memory.micro_batches": options.memory.micro_batches,
    }
    place = next(iter(requests.values())).places.get("buckets")
    problems = [
        Diagnostic(
            f"data in buckets cannot be used with {setting}", place, hint="leave out one of them"
        )
        for setting, is_set in settings.items()
        if is_set
    ]
    try:
        bucket_models(model, requests)
    except UserError as error:
        problems += error.diagnostics
    return tuple(problems)


def _bucketed(requests: Mapping[str, DatasetRequest]) -> dict[tuple[str, ...], set[int]]:
    """Return the lengths of buckets by the padded fields."""
    found: dict[tuple[str, ...], set[int]] = {}
    for request in requests.values():
        options = request.options
        if isinstance(options, BucketOptions) and options.buckets:
            found.setdefault(options.padded, set()).update(options.buckets)
    return found


def _shortened(model: Model, length: int, names: list[str]) -> Model:
    try:
        return model.shortened(length, names)
    except UserError as error:
        hint = "leave out the buckets, or layers whose parameters depend on the length"
        raise UserError(one_size(error, "buckets", "length", hint)) from error
