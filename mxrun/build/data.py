"""Data sections → checked requests for records."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from mxrun.base.errors import Diagnostic, Place, UserError
from mxrun.build.choice import chosen
from mxrun.config import Data, Dataset, Marked, Parsed
from mxrun.io.dataset import DatasetRequest, request_dataset
from mxrun.io.record import TRANSFORMS
from mxrun.io.transform import NO_TRANSFORMS, Pipeline, pipeline


def data_requests(
    parsed: Parsed, data: Data, problems: list[Diagnostic]
) -> dict[str, DatasetRequest]:
    """The requests of `data.train` and `data.eval`; what is wrong with them joins `problems`.

    A section with a value that the user has yet to give is left out: the config says so itself.
    """
    requests = {}
    pipelines = _pipelines(data, problems)
    for role, section in (("train", data.train), ("eval", data.eval)):
        if section is None:
            continue
        options = _options(data, section)
        if any(marked.is_required for marked in options.values()):
            continue
        plain = {key: marked.plain() for key, marked in options.items()}
        split: object = None
        if section.split is not None:
            whole = section.split.range is None
            split = section.split.of if whole else section.split.model_dump()
        places = _places(parsed, role, options)
        try:
            request = request_dataset(section.dataset, plain, split, places)
        except UserError as error:
            problems += error.diagnostics
        else:
            requests[role] = replace(request, pipeline=pipelines[role])
    return requests


def evaluation_pipeline(data: Data) -> Pipeline:
    """What evaluation does to records, with or without a data set; `data` has been found right."""
    return _pipelines(data, [])["eval"]


def _pipelines(data: Data, problems: list[Diagnostic]) -> dict[str, Pipeline]:
    """The transforms of both sections; without its own, eval has train's without the random."""
    train = _pipeline(data.train, problems)
    evaluation = train
    if data.eval is not None and data.eval.transforms is not None:
        evaluation = _pipeline(data.eval, problems)
    return {"train": train, "eval": evaluation.evaluation()}


def _pipeline(section: Dataset, problems: list[Diagnostic]) -> Pipeline:
    """The transforms of a section; what is wrong with them joins `problems`."""
    before = len(problems)
    choices = section.transforms or ()
    transforms = [(chosen(choice, TRANSFORMS, problems), choice.place) for choice in choices]
    if len(problems) > before:
        return NO_TRANSFORMS
    try:
        return pipeline(transforms)
    except UserError as error:
        problems += error.diagnostics
        return NO_TRANSFORMS


def _options(data: Data, section: Dataset) -> dict[str, Marked]:
    """The section's options; an eval section of the same data set defaults to train's path."""
    options = dict(section.options)
    if section is data.eval and section.dataset == data.train.dataset:
        path = data.train.options.get("path")
        if path is not None:
            options.setdefault("path", path)
    return options


def _places(parsed: Parsed, role: str, options: Mapping[str, Marked]) -> dict[str, Place]:
    """Where each key of the section stands, by dotted path as `request_dataset` names them."""
    keys: tuple[tuple[str, ...], ...] = (
        ("dataset",),
        ("split",),
        ("split", "of"),
        ("split", "range"),
    )
    places = {".".join(key): parsed.place("data", role, *key) for key in keys}
    return places | {key: marked.place for key, marked in options.items()}
