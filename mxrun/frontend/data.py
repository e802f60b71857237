"""Data sections of a config, converted to checked requests for records."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from mxrun.base.errors import Diagnostic, Diagnostics, SourceLocation, UserError
from mxrun.base.keywords import REST
from mxrun.config import Data, DatasetSection, Parsed, RunOptions, SourceNode
from mxrun.frontend.instantiate import ParameterPlaces, instantiate
from mxrun.io.dataset.registry import DATASETS
from mxrun.io.dataset.request import DatasetRequest, request_dataset
from mxrun.io.dataset.split import SHARE_HINT, Split
from mxrun.io.transforms.base import TRANSFORMS
from mxrun.io.transforms.pipeline import NO_TRANSFORMS, Pipeline, pipeline

_PATH = "path"
# Placeholder for a missing path, so that everything else in the section is checked.
_ANY_PATH = "path"


def data_requests(
    parsed: Parsed | RunOptions, data: Data, diagnostics: Diagnostics
) -> dict[str, DatasetRequest]:
    """Return the requests of `data.train` and `data.eval`; add problems to `diagnostics`.

    A section in which a required value is missing is left out (`missing_data`).
    """
    requests = {}
    pipelines = _pipelines(data, diagnostics)
    without = pathless(data)
    for role, section in _sections(data).items():
        options = _options(data, section)
        if role in without:
            options.pop(_PATH, None)
        if any(marked.is_placeholder for marked in options.values()):
            continue
        plain = {key: marked.plain() for key, marked in options.items()}
        if role in without:
            plain[_PATH] = _ANY_PATH
        places = _places(parsed, role, options)
        try:
            locator = ParameterPlaces(options, places["dataset"])
            split = _split(section)
            request = request_dataset(section.dataset, plain, split, places, role, locator)
            divided = _divided(parsed, role, section, request.split)
            request = replace(request, split=divided, own=frozenset(section.options))
        except UserError as error:
            # eval may inherit a wrong path of data.train, which is reported once.
            diagnostics += (found for found in error.diagnostics if found not in diagnostics)
        else:
            if role not in without:
                if section.options and _PATH not in section.options:
                    # If the section reads the file with options of its own, errors refer to it and
                    # not to the path's location.
                    places = {key: place for key, place in places.items() if key != _PATH}
                requests[role] = replace(request, pipeline=pipelines[role], places=places)
    _resolve_rest(parsed, data, requests, diagnostics)
    return requests


def _split(section: DatasetSection) -> object:
    """Return the split in the form that `request_dataset` reads."""
    if section.split is None:
        return None
    written = section.split.model_dump(exclude_defaults=True)
    if written == {"rest": True}:
        return REST
    return written["of"] if written.keys() == {"of"} else written


def _divided(
    parsed: Parsed | RunOptions, role: str, section: DatasetSection, split: Split
) -> Split:
    """Return the part of the split that the section reads.

    Raises UserError for a part that does not exist, and for sampling that evaluation cannot have.
    """
    index, count = section.part_index or 0, section.num_parts or 1
    problems = []
    if index >= count:
        place = parsed.place("data", role, "part_index")
        problem = f"data.{role} has no part {index}"
        hint = "set num_parts, the number of parts" if section.num_parts is None else ""
        problems.append(Diagnostic(problem, place, f"0 to {count - 1}", str(index), hint=hint))
    place = parsed.place("data", role, "sampling")
    if section.sampling is not None and role == "eval":
        problem = "evaluation measures each record once: data.eval has no sampling"
        problems.append(Diagnostic(problem, place, hint="remove it"))
    elif section.sampling is not None and not isinstance(section.shuffle, bool):
        problem = "balanced sampling draws from all records: it has no window"
        problems.append(Diagnostic(problem, place, hint="remove shuffle or sampling"))
    if problems:
        raise UserError(problems)
    return replace(split, part_index=index, num_parts=count)


def _resolve_rest(
    parsed: Parsed | RunOptions,
    data: Data,
    requests: dict[str, DatasetRequest],
    diagnostics: Diagnostics,
) -> None:
    """Replace `rest` in the split of eval by the records that the split of train leaves.

    An eval section without a split means `rest` if train uses a share of the same records.
    """
    train, evaluation = requests.get("train"), requests.get("eval")
    if train is not None and train.split.rest:
        place = parsed.place("data", "train", "split")
        problem = "data.train.split: the rest is what data.train leaves for data.eval"
        diagnostics.add(Diagnostic(problem, place, "a split, a range or a share", REST))
        return
    if evaluation is None or data.eval is None:
        return
    if train is None:
        if evaluation.split.rest:
            del requests["eval"]
        return
    same = evaluation.format is train.format and evaluation.options == train.options
    if data.eval.split is None and same and train.split.share is not None:
        evaluation = replace(evaluation, split=replace(evaluation.split, of="", rest=True))
    if not evaluation.split.rest:
        return
    if not same or train.split.undivided.is_complete:
        why = "leaves no records out" if same else "reads other records"
        problem = f"data.eval.split: the rest is what data.train leaves, and data.train {why}"
        hint = SHARE_HINT if same else "without options of its own data.eval has those of train"
        diagnostics.add(Diagnostic(problem, parsed.place("data", "eval", "split"), hint=hint))
        return
    # The split that train uses by default is looked up with train's role.
    part = evaluation.split
    rest = replace(train.split, rest=True, part_index=part.part_index, num_parts=part.num_parts)
    requests["eval"] = replace(evaluation, split=rest, role=train.role)


def pathless(data: Data) -> tuple[str, ...]:
    """Return the sections, `train` or `eval`, whose data set requires a path that is missing.

    The config has `path: ???`, `path: null`, or no path there.
    """
    found = []
    for role, section in _sections(data).items():
        path = _options(data, section).get(_PATH)
        given = path is not None and path.value is not None and not path.is_placeholder
        if _path_option(section) is not None and not given:
            found.append(role)
    return tuple(found)


def missing_data(options: RunOptions) -> tuple[Diagnostic, ...]:
    """Return one diagnostic for each required path that the config omits or sets to null."""
    missing = {}
    for role in pathless(options.data):
        section = _sections(options.data)[role]
        path = _options(options.data, section).get(_PATH)
        # One path in data.train is enough for two sections of the same data set.
        if (path is None or path.value is None) and section.dataset not in missing:
            key = f"data.{role}.{_PATH}"
            missing[section.dataset] = Diagnostic(
                f"{key} must be given",
                place=path.place if path is not None else options.key_place("data", role),
                expected=_path_option(section) or "",
                got="nothing",
                hint=f"give it on the command line: {key}=VALUE",
            )
    return tuple(missing.values())


def _sections(data: Data) -> dict[str, DatasetSection]:
    return {"train": data.train} | ({} if data.eval is None else {"eval": data.eval})


def _path_option(section: DatasetSection) -> str | None:
    """Return the description of the data set's path option; None if it requires no path."""
    if section.dataset not in DATASETS:
        return None
    field = DATASETS.get(section.dataset).options.model_fields.get(_PATH)
    return field.description if field is not None and field.is_required() else None


def evaluation_pipeline(data: Data) -> Pipeline:
    """Return the transforms of evaluation; `data` must be free of errors."""
    return _pipelines(data, Diagnostics())["eval"]


def _pipelines(data: Data, diagnostics: Diagnostics) -> dict[str, Pipeline]:
    """Return the transforms of both sections by role.

    An eval section without transforms uses train's, without the random ones.
    """
    train = _pipeline(data.train, diagnostics)
    evaluation = train
    if data.eval is not None and data.eval.transforms is not None:
        evaluation = _pipeline(data.eval, diagnostics)
    return {"train": train, "eval": evaluation.evaluation()}


def _pipeline(section: DatasetSection, diagnostics: Diagnostics) -> Pipeline:
    """Return the transforms of a section; add problems to `diagnostics`."""
    before = len(diagnostics)
    choices = section.transforms or ()
    transforms = [
        (instantiate(choice, TRANSFORMS, diagnostics), choice.place) for choice in choices
    ]
    if len(diagnostics) > before:
        return NO_TRANSFORMS
    try:
        return pipeline(transforms)
    except UserError as error:
        diagnostics += error.diagnostics
        return NO_TRANSFORMS


def _options(data: Data, section: DatasetSection) -> dict[str, SourceNode]:
    """Return the section's options; eval inherits missing ones from train for the same data set."""
    if section is data.eval and section.dataset == data.train.dataset:
        return {**data.train.options, **section.options}
    return dict(section.options)


def _places(
    parsed: Parsed | RunOptions, role: str, options: Mapping[str, SourceNode]
) -> dict[str, SourceLocation]:
    """Return the location of each key of the section, by dotted path as in `request_dataset`."""
    parts = ("of", "range", "share", "seed", "stratify")
    keys = (("dataset",), ("split",), *(("split", part) for part in parts))
    places = {".".join(key): parsed.place("data", role, *key) for key in keys}
    return places | {key: marked.place for key, marked in options.items()}
