"""Implementation of `init`: a commented config for images, a table, arrays or texts."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from mxrun.base.dataclass import dataclass
from mxrun.base.errors import Diagnostic, UserError
from mxrun.base.files import check_writable, is_replaceable, write_text
from mxrun.config.bundled import find_config
from mxrun.inference.file_settings import PATH, given_settings, with_settings
from mxrun.io.dataset.registry import DATASETS, TABLE
from mxrun.io.decompressed import SUFFIXES as COMPRESSED
from mxrun.io.files import unreadable_error, user_path
from mxrun.io.images.kinds import SUFFIXES
from mxrun.io.paths import find_files, is_pattern
from mxrun.io.series.dataset import SeriesOptions
from mxrun.io.tables.columns import TableOutline
from mxrun.io.tables.options import TableFile
from mxrun.options.init import InitOptions
from mxrun.preparation.planning import load
from mxrun.run.foreign_weights import best_table
from mxrun.survey.arrays import known_files, survey_archive, survey_files
from mxrun.survey.cell_forms import survey_cells
from mxrun.survey.config_draft import ConfigDraft, draft_config
from mxrun.survey.fine_tune_draft import PretrainedNetwork, draft_fine_tuning
from mxrun.survey.images import survey_images, survey_stored_images
from mxrun.survey.series import SERIES, survey_series
from mxrun.survey.series_draft import draft_series_config
from mxrun.survey.survey import DataSurvey
from mxrun.survey.tables import survey_table
from mxrun.survey.text_draft import draft_text_config
from mxrun.survey.texts import TEXT, survey_text, survey_text_lines, text_dataset_of
from mxrun.train.run_directory import CONFIG_FILE, find_run, is_run, run_of

_SEPARATORS = re.compile(r"[^A-Za-z0-9_.-]+")
_MAX_NAME = 100


@dataclass(frozen=True)
class InitResult:
    """Config that was written, the survey of the data, and the choices that were made."""

    file: Path
    name: str
    survey: DataSurvey
    choices: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the result as JSON: `classes` has the records of both parts by name."""
        survey = self.survey
        evaluation: Mapping[str, int] = survey.evaluation.counts
        return {
            "file": str(self.file),
            "name": self.name,
            "dataset": survey.dataset,
            "records": {"train": survey.train.records, "eval": survey.evaluation.records},
            "shape": list(survey.shape),
            "image_sizes": None if survey.sizes is None else asdict(survey.sizes),
            "classes": {
                name: {"train": count, "eval": evaluation.get(name, 0)}
                for name, count in survey.train.counts.items()
            },
            "imbalanced": survey.is_imbalanced,
            "facts": list(survey.facts),
            "warnings": list(survey.warnings),
            "left_out": list(survey.left_out),
            "doubts": list(survey.doubts),
            "choices": list(self.choices),
            "next": [
                f"mxrun train {shlex.quote(str(self.file))}",
                f"mxrun evaluate runs/{self.name}",
                *(
                    [f"mxrun infer runs/{self.name} --prompt 'The ' --length 50"]
                    * (survey.dataset == TEXT)
                ),
            ],
        }


def init(options: InitOptions) -> InitResult:
    """Look at data and write a config that trains on it.

    Raises UserError if the data cannot be used as it is, for a file that exists, and for one that
    cannot be written. The same data gives the same file.
    """
    source = _source(options.source)
    name, file = _names(options, source)
    _check_target(file, options)
    survey = _beside(file, _survey(source, options))
    if (pretrained := _pretrained(options, file)) is not None:
        draft = draft_fine_tuning(survey, pretrained, name, file)
    else:
        draft = _draft(survey)(survey, name, file)
    write_text(file, draft.text)
    return InitResult(file, name, survey, draft.choices)


def _draft(survey: DataSurvey) -> Callable[[DataSurvey, str, Path], ConfigDraft]:
    """Return the function that drafts a config for such data."""
    if survey.dataset == SERIES:
        return draft_series_config
    return draft_text_config if survey.vocabulary else draft_config


def _pretrained(options: InitOptions, file: Path) -> PretrainedNetwork | None:
    """Return the network that --from names, or None without the option.

    Raises UserError for one that cannot be read, and for weights that do not fit it.
    """
    if options.start is None:
        if options.weights is not None:
            problem = "--weights needs --from, the network that they are for"
            hint = f"such as --from resnet50_imagenet --weights {options.weights}"
            raise UserError(Diagnostic(problem, hint=hint))
        return None
    path = find_run(options.start, options.runs)
    if is_run(path):
        if options.weights is not None:
            problem = f"--weights: {path} is a run, which has its own"
            raise UserError(Diagnostic(problem, hint="leave --weights out"))
        config = run_of(path) / CONFIG_FILE
        start: dict[str, object] = {"run": _from_folder(file, path)}
        return PretrainedNetwork(_from_folder(file, config), load(config), start)
    config = find_config(options.start, "a run, ")
    if options.weights is None:
        hint = "such as --weights resnet50.safetensors, or give a run"
        raise UserError(Diagnostic(f"--from {options.start} needs --weights FILE", hint=hint))
    built = load(config)
    table = best_table(built, options.weights)
    start = {"weights": _from_folder(file, options.weights), "names": table.framework}
    is_file = os.path.isfile(options.start)
    extends = _from_folder(file, config) if is_file else options.start
    return PretrainedNetwork(extends, built, start, table)


def _from_folder(file: Path, path: Path) -> str:
    """Return a path as a config has it: from the config's folder; absolute paths stay."""
    if path.is_absolute():
        return str(path)
    return os.path.relpath(os.path.abspath(path), os.path.realpath(file.parent))


def _source(given: str) -> str:
    """Return the path of the data in its shortest form; raises UserError for what is no path."""
    if not given:
        raise UserError(Diagnostic("the path of the data is empty", None, "a folder or a file"))
    try:
        given.encode()
    except UnicodeEncodeError:
        problem = f"{given}: its name is not UTF-8, so no config can hold it"
        raise UserError(Diagnostic(problem, hint="rename it")) from None
    return os.path.normpath(given)


def _beside(file: Path, survey: DataSurvey) -> DataSurvey:
    """Return the survey with the path of the data as the config has it: from the config's folder.

    Absolute paths, and those in a home folder, stay.
    """
    path = survey.options.get("path")
    if not isinstance(path, str) or not path or user_path(path) != Path(path):
        return survey
    return replace(survey, options={**survey.options, "path": _from_folder(file, Path(path))})


def _names(options: InitOptions, source: str) -> tuple[str, Path]:
    """Return the name of the run and the file to write."""
    stem = options.to.stem if options.to else _stem(user_path(source))
    name = options.name or (_SEPARATORS.sub("_", stem).strip("._-")[:_MAX_NAME] or "net")
    is_name = not _SEPARATORS.search(name) and name[0].isalnum() and len(name) <= _MAX_NAME
    if options.name and not is_name:
        expected = (
            f"letters, digits, _ . and -, a letter or digit first, at most {_MAX_NAME} characters"
        )
        hint = "it names the folder of the run"
        raise UserError(Diagnostic("--name is not a name", None, expected, name, hint=hint))
    return name, options.to or Path(f"{name}.yaml")


def _stem(path: Path) -> str:
    resolved = Path(os.path.abspath(path))
    return resolved.name if os.path.isdir(resolved) else resolved.stem


def _check_target(file: Path, options: InitOptions) -> None:
    """Raise UserError for a config that exists already or cannot be written."""
    check_writable(file)
    if file.exists() and is_replaceable(file) and not options.overwrite:
        problem = f"{file} exists already"
        hint = "write another file with --to FILE, or replace this one with --overwrite"
        raise UserError(Diagnostic(problem, hint=hint))


def _survey(source: str, options: InitOptions) -> DataSurvey:
    """Look at the data in the way that its kind needs."""
    path, label = user_path(source), options.label
    kind, suffix = _kind(path), path.suffix.lower()
    if kind == "nothing" and is_pattern(source):
        path = find_files(source)[0]
        kind, suffix = "file", path.suffix.lower()
    is_table = (
        options.kind in ("table", "series") or bool(options.settings) or options.task is not None
    )
    if kind == "file" and is_table:
        return _survey_table(source, options)
    if options.kind == "images" and kind == "file":
        problem = f"{path}: a file holds no images"
        hint = "give the folder that has a folder for each class"
        raise UserError(Diagnostic(problem, None, "a folder of images", hint=hint))
    if kind == "folder" and (is_table or options.kind == "text"):
        problem = f"{path}: a folder is no {options.kind or 'table'}"
        raise UserError(Diagnostic(problem, None, "a file", hint="name its files: 'FOLDER/*.csv'"))
    bundled = DATASETS.attribute("parts")
    if kind == "nothing" and source in bundled:
        _refuse_label(label, source)
        if is_table:
            problem = f"{source}: a bundled data set is no {options.kind or 'table'}"
            hint = "keys of a run follow its config: mxrun train CONFIG KEY=VALUE"
            raise UserError(Diagnostic(problem, None, "a file", hint=hint))
        return survey_files("", source, tuple(bundled[source]))
    if kind == "nothing":
        hint = "`mxrun init digits` uses the bundled digits" if not path.suffix else ""
        problem = f"{path}: there is no such file or folder"
        raise UserError(Diagnostic(problem, None, "a folder of images, a table or .npz", hint=hint))
    if kind == "folder":
        _refuse_label(label, source)
        known = known_files(path)
        return survey_images(source) if known is None else survey_files(source, *known)
    if suffix == ".npz":
        return survey_archive(source, label)
    if texts := text_dataset_of(path, label, options.kind == "text"):
        if texts == TEXT:
            _refuse_label(label, source)
        return (
            survey_text(source)
            if texts == TEXT
            else survey_text_lines(source, label, options.kind == "text")
        )
    tables = DATASETS.attribute("suffixes")[TABLE]
    named = path.with_suffix("") if suffix in COMPRESSED else path
    if named.suffix.lower() in tables or suffix == ".zip":
        return _survey_table(source, options)
    images = {
        suffix: (dataset, options)
        for dataset, by_suffix in DATASETS.attribute("image_options").items()
        for suffix, options in by_suffix.items()
    }
    if suffix in images:
        _refuse_label(label, source)
        return survey_stored_images(source, *images[suffix])
    raise _unknown_file(path, tables, images)


def _unknown_file(path: Path, tables: Collection[str], images: Collection[str]) -> UserError:
    """Return the error for a file whose suffix is not known; tables, images: those that are."""
    suffix, others = path.suffix.lower(), ", ".join((".npz", *images))
    expected = f"a folder, a table ({', '.join(tables)}), a text, or images or arrays ({others})"
    hint = ""
    if suffix in SUFFIXES:
        hint = "give the folder that has a folder for each class"
    elif "ubyte" in path.name or suffix == ".bin":
        hint = "give the folder that holds the files"
    elif suffix == ".npy":
        hint = "save data and labels together: numpy.savez('data.npz', data=..., label=...)"
    else:
        hint = "--as text reads it as a text, --as table as a table"
    problem = f"{path}: this kind of file is not known"
    return UserError(
        Diagnostic(problem, None, expected, suffix or "a file without suffix", hint=hint)
    )


def _survey_table(source: str, options: InitOptions) -> DataSurvey:
    settings = given_settings(options.settings)
    of_table, of_series = DATASETS.get(TABLE).options, SeriesOptions
    may_be_series = options.kind is None and options.task is None
    may_be_series &= settings.keys() <= of_series.model_fields.keys()
    is_required = may_be_series and not settings.keys() <= of_table.model_fields.keys()
    is_required |= options.kind == "series"
    read: tuple[TableOutline, tuple[str, ...]] | None = None
    why = ""
    if is_required or may_be_series:
        series = with_settings(SeriesOptions(path=source), settings)
        read = _outline(source, series, 1 if is_required else 2)
        found = survey_series(source, read, options.label, series, is_required)
        if isinstance(found, DataSurvey):
            return found
        why = found
    given = with_settings(of_table(**{PATH: source}), settings)
    assert isinstance(given, TableFile)
    read = read or _outline(source, given)
    survey = survey_table(source, read, options.label, options.task, given)
    return replace(survey, doubts=(*survey.doubts, why)) if why else survey


def _outline(source: str, given: TableFile, least: int = 2) -> tuple[TableOutline, tuple[str, ...]]:
    """Return the columns of a table, at least so many, and what was decided of its cells."""
    form = replace(given.form, least=least)
    return survey_cells(find_files(source), form, given.model_fields_set)


def _kind(path: Path) -> str:
    """Return `folder`, `file` or `nothing`; raises UserError if that cannot be found out."""
    try:
        if path.is_dir():
            return "folder"
        return "file" if path.exists() else "nothing"
    except (OSError, ValueError) as error:
        raise unreadable_error(path, error) from error


def _refuse_label(label: str | None, source: str) -> None:
    if label is not None:
        problem = "--label is for tables and .npz archives"
        hint = "the labels of images are the names of their folders"
        raise UserError(Diagnostic(problem, got=source, hint=hint))
