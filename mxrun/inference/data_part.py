"""Records of an evaluation: a part of the run's data, or other records in its place."""

from __future__ import annotations

import os
import os.path
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

import numpy as np

from mxrun.base.dataclass import dataclass
from mxrun.base.errors import Diagnostic, Diagnostics, SourceLocation, UserError
from mxrun.base.near_names import listed, nearest
from mxrun.config import COMMAND_LINE, PATHLESS, Overrides, SourceNode, overridden
from mxrun.frontend import ModelDefinition, check_labels
from mxrun.frontend.data import data_requests, evaluation_pipeline
from mxrun.inference.records import shown_path
from mxrun.io.dataset.dataset import Dataset
from mxrun.io.dataset.fields import Field
from mxrun.io.dataset.fingerprint import fingerprint
from mxrun.io.dataset.registry import DATASETS, IMAGE_LIST, TABLE, dataset_of_suffix
from mxrun.io.dataset.request import DatasetRequest, open_datasets
from mxrun.io.dataset.split import ALL, Split, UnknownSplit
from mxrun.io.files import user_path
from mxrun.io.formats.arrays import array_field
from mxrun.io.formats.image_list import is_image_list
from mxrun.io.images.decode import takes_images
from mxrun.io.images.options import EXIF_ORIENTATION
from mxrun.io.loading.batch import is_label
from mxrun.io.paths import paths_of
from mxrun.io.series.encoding import SeriesEncoding
from mxrun.io.tables.encoding import Tally
from mxrun.run.trained_model import TrainedModel
from mxrun.train.checkpoint import Manifest
from mxrun.train.predictions import Array

TRAIN, EVAL = "train", "eval"
_IN_MEMORY = "in memory"
# Keys of a section that its changes replace, or that evaluation does not read.
_OF_THE_RUN = ("split", "part_index", "num_parts", "shuffle", "sampling", "transforms")


@dataclass(frozen=True)
class DataPart:
    """Records to run on: a part of the run's data, with changes of its data section.

    split: `train`, `eval`, or a split of the data set; by default `eval`. path: replaces the path
    of the data set, and the data set itself if it cannot be read from there. settings: `KEY=VALUE`
    for further keys of the section, or plain values by key. arrays: records by input name,
    [records, ...], in place of everything else; labels may be class names. files, in place of all
    these in inference: images, tables, texts, folders, `-` or one file of a data set; settings tell
    the form of tables, or are keys of the data set.
    """

    split: str | None = None
    path: str | None = None
    settings: Overrides = ()
    arrays: Mapping[str, Array] | None = None
    files: tuple[str, ...] = ()

    @property
    def is_of_run(self) -> bool:
        """True if it is a part of the run's own data, as the config describes it."""
        return self.path is None and not self.settings and self.arrays is None


@dataclass(frozen=True)
class OpenedPart:
    """Records that are open, their description for the user, and notes on them.

    path: the file that holds all records, if there is one.
    """

    dataset: Dataset
    source: str
    path: str = ""
    notes: tuple[str, ...] = ()


def data_set_file(files: Sequence[str]) -> str | None:
    """Return the file whose ending says which data set reads it, but for tables; None without one.

    Raises UserError for several files if there is one among them.
    """
    found = [file for file in files if _format_of(file) not in ("", TABLE)]
    if found and len(files) > 1:
        problem = f"{found[0]} is a data set ({_format_of(found[0])}), which is read alone"
        raise UserError(Diagnostic(problem, got=f"{len(files)} files", hint="name one at a time"))
    return found[0] if found else None


def _format_of(path: str) -> str:
    """Return the data set that reads a file, as its ending says; empty if none does."""
    place = user_path(path)
    # Unlike pathlib's, this is false for names that no file can have.
    return dataset_of_suffix(place.suffix) if os.path.isfile(place) else ""


def open_part(
    trained: TrainedModel, part: DataPart, names: Collection[str] | None = None
) -> OpenedPart:
    """Open records for evaluation, with the class numbers and column names of training.

    names: inputs of the network, without labels, that alone are read; by default all. Raises
    UserError if they cannot be read or do not fit the network, and for a class that training did
    not have.
    """
    built, manifest = trained.built, trained.checkpoint.manifest
    if part.arrays is not None:
        dataset = _of_arrays(built, part.arrays, manifest)
        return OpenedPart(dataset, "arrays in memory", notes=dataset.notes)
    if part.is_of_run:
        split = EVAL if part.split is None else part.split
        if part.split is None and built.options.data.eval is None:
            problem = "the config has no evaluation data"
            hint = "evaluate --split train, or write the path of other records behind the run"
            raise UserError(Diagnostic(problem, built.options.key_place("data"), hint=hint))
        role, request = section_request(built, split)
    else:
        role, request = EVAL, _changed_request(trained, part)
    of_training = (
        manifest.classes if names is None else None,
        manifest.columns,
        manifest.label_column,
        manifest.encoding,
        trained.vocabulary,
        manifest.whites,
    )
    records = built.model.records
    inputs = {name: records[name] for name in (records if names is None else names)}
    dataset = open_datasets({role: request}, inputs, *of_training)[role]
    if names is None:
        check_labels(built, [dataset])
    else:
        dataset = dataset.with_fields(names)
    notes = dataset.notes
    train = built.data.get(TRAIN)
    if not part.is_of_run and train is not None and request.options == train.options:
        notes = (*notes, "data.train reads records of the same files")
    if part.is_of_run and split == role and _is_changed(dataset, manifest.data.get(role)):
        notes = (*notes, f"the records of data.{role} are not those of the run")
    name = f"data.{split}: " if part.is_of_run and split == role else ""
    described = f"{name}{_described(request, dataset)}"
    return OpenedPart(dataset, described, _file(request, dataset), notes)


def section_request(built: ModelDefinition, split: str) -> tuple[str, DatasetRequest]:
    """Return the role and request of `split`: `train`, `eval`, or a split of the data set.

    Raises UserError if there is no such split.
    """
    if built.missing:
        raise UserError(built.missing)
    pipeline = evaluation_pipeline(built.options.data)
    if split in built.data:
        return split, replace(built.data[split], pipeline=pipeline)
    role = EVAL if EVAL in built.data else TRAIN
    request = built.data[role]
    # If the splits are defined by files, opening the data set checks the name.
    if request.format.find_split is None and split not in request.format.splits:
        known = [*built.data, *(name for name in request.format.splits if name not in built.data)]
        raise UserError(
            Diagnostic(
                f"the config has no data called {split!r}",
                place=built.options.key_place("data"),
                expected=f"one of {', '.join(known)}",
                got=split,
                hint=nearest(split, known),
            )
        )
    return role, replace(request, split=Split(split), pipeline=pipeline)


def _changed_request(trained: TrainedModel, part: DataPart) -> DatasetRequest:
    """Return the request of the run's data section with the changes of `part`."""
    parsed, options = trained.parsed, trained.built.options
    role = EVAL if options.data.eval is not None and part.split != TRAIN else TRAIN
    section = _section(trained, part, role)
    changed = parsed.with_evaluation(section)
    if changed.data is None or changed.diagnostics:
        raise UserError(changed.diagnostics)
    diagnostics = Diagnostics()
    requests = data_requests(changed, changed.data, diagnostics)
    if diagnostics:
        raise UserError(diagnostics)
    if EVAL not in requests:
        problem = f"the data set {changed.data.eval and changed.data.eval.dataset!r} needs a path"
        raise UserError(Diagnostic(problem, hint="write it behind the run: path=FOLDER_OR_FILE"))
    return _with_split(requests[EVAL], section, trained.built.data.get(role))


def _with_split(
    request: DatasetRequest, section: SourceNode, own: DatasetRequest | None
) -> DatasetRequest:
    """Return the request with its split: the section's, or, if it names none, that of `own`.

    Of other files all records are read, of the same split if they have one of its name.
    """
    given = _entries(section)
    if "split" not in given and ALL in request.format.splits and _is_changed_path(given):
        # A part of one text or series is no part of another.
        return replace(request, split=Split(ALL))
    if "split" in given or own is None or own.format is not request.format:
        return request
    if not _is_changed_path(given):
        return replace(request, split=own.split, role=own.role)
    find, named = request.format.find_split, own.split.of
    if find is None:
        return replace(request, split=Split(named))
    try:
        find(request.options, named, EVAL)
    except UnknownSplit:
        # A folder that holds the classes alone.
        named = ""
    return replace(request, split=Split(named))


def _section(trained: TrainedModel, part: DataPart, role: str) -> SourceNode:
    """Return the data section with its changes, without the run's own path and split."""
    options, parsed = trained.built.options, trained.parsed
    place = SourceLocation(COMMAND_LINE, 1, 1)
    diagnostics = Diagnostics()
    given = _entries(overridden(SourceNode({}, place), part.settings, diagnostics))
    if diagnostics:
        raise UserError(diagnostics)
    _refuse_twice(part, given)
    own = _entries(parsed.tree.find("data", role))
    transforms = _entries(parsed.tree.find("data", EVAL)).get("transforms")
    if part.path is not None:
        given["path"] = SourceNode(part.path, place)
        if "dataset" not in given:
            found = dataset_for(trained.built, part.path, own["dataset"].value)
            given["dataset"] = SourceNode(found, place)
        if part.split not in (None, ALL) and _is_whole(given["dataset"].value):
            problem = f"{part.path} has no parts: --split {part.split} selects none of it"
            raise UserError(Diagnostic(problem, hint="leave out the path or --split"))
    if part.split not in (None, TRAIN, EVAL):
        given["split"] = SourceNode(part.split, place)
    if "path" in given:
        given["path"] = _absolute(given["path"])
    if given.get("dataset", own["dataset"]).value != own["dataset"].value:
        train = _entries(parsed.tree.find("data", TRAIN))
        own = _common_options({**train, **own}, str(given["dataset"].value))
    elif role == TRAIN or options.data.eval is None:
        # Options of the data set are inherited from data.train.
        own = {"dataset": own["dataset"]}
    kept = {key: value for key, value in own.items() if key not in _OF_THE_RUN}
    kept |= {} if transforms is None else {"transforms": transforms}
    return SourceNode({**kept, **given}, place)


def _common_options(own: Mapping[str, SourceNode], dataset: str) -> dict[str, SourceNode]:
    """Return the options of training's data set that apply to `dataset`.

    They are those that say how image files are decoded, and all of a bundled data set if `dataset`
    reads files of the same kind.
    """
    if dataset not in DATASETS:
        # It is reported with the rest of its section.
        return {}
    known, fields = str(own["dataset"].value), DATASETS.get(dataset).options.model_fields
    is_alike = known in DATASETS and DATASETS.get(known).of_files == dataset
    keys = fields if is_alike else fields.keys() & {EXIF_ORIENTATION}
    return {key: value for key, value in own.items() if key in keys}


def _absolute(path: SourceNode) -> SourceNode:
    """Return a path, or a list of these, as seen from the working folder."""
    if isinstance(path.value, tuple):
        return replace(path, value=tuple(map(_absolute, path.value)))
    if not isinstance(path.value, str) or not path.value:
        return path
    return replace(path, value=os.path.abspath(user_path(path.value)))


def _is_whole(name: object) -> bool:
    """Return whether a data set has no parts, such as a table."""
    if name not in DATASETS:
        # An unknown one is reported with the rest of its section.
        return False
    known = DATASETS.get(str(name))
    return known.find_split is None and known.splits == (ALL,)


def _refuse_twice(part: DataPart, given: Mapping[str, SourceNode]) -> None:
    """Raise UserError for a key that is given in two ways."""
    problems = [
        Diagnostic(
            f"{what} and {key}= both say which {noun} to use: leave one out", given[key].place
        )
        for key, noun, what in (
            ("path", "path", part.path),
            ("split", "split", part.split and f"--split {part.split}"),
        )
        if what is not None and key in given
    ]
    if problems:
        raise UserError(problems)


def dataset_for(built: ModelDefinition, path: str, own: object) -> str:
    """Return the data set that reads `path`: the section's `own` if it reads such paths.

    For a bundled one it is the one that reads such files. The ending tells files of one format.
    Folders are image folders and text files lists of images if the network takes images; other text
    files are tables. Raises UserError if nothing is there.
    """
    place = user_path(path)
    if not os.path.exists(place):
        problem = f"{path}: there is no such file or folder"
        raise UserError(Diagnostic(problem, hint="write KEY=VALUE to change another key"))
    images = any(map(takes_images, built.model.records.values()))
    own = str(own)
    reads_path = own in DATASETS and "path" in DATASETS.get(own).options.model_fields
    if own in DATASETS and (files := DATASETS.get(own).of_files) and place.is_file():
        return files
    # Those that read one kind of file, so that another kind of path needs another one.
    of_files = {IMAGE_LIST, *DATASETS.attribute("suffixes")}
    if place.is_dir():
        return own if reads_path and own not in of_files else "image_folder"
    found = dataset_of_suffix(place.suffix) or TABLE
    if found == TABLE and images and is_image_list(place):
        found = IMAGE_LIST
    return own if reads_path and own not in of_files | {"image_folder", "npy"} else found


def _of_arrays(built: ModelDefinition, arrays: Mapping[str, Array], manifest: Manifest) -> Dataset:
    """Return arrays as a data set in the network's dtypes, with training's class numbers."""
    inputs = built.model.records
    problems = [
        Diagnostic(
            f"the network has no input {name!r}",
            expected=f"one of {', '.join(inputs)}",
            got=name,
            hint=nearest(name, inputs),
        )
        for name in arrays
        if name not in inputs
    ]
    problems += [
        Diagnostic(f"there is no array for the network's input {name!r}", got=", ".join(arrays))
        for name in inputs
        if name not in arrays
    ]
    lengths = {name: len(array) if array.ndim else 0 for name, array in arrays.items()}
    if not problems and (len(set(lengths.values())) > 1 or 0 in lengths.values()):
        expected = "the same number of records in each array, and at least one"
        got = ", ".join(f"{name}: {length}" for name, length in lengths.items())
        problems = [Diagnostic("the arrays do not fit together", expected=expected, got=got)]
    if problems:
        raise UserError(problems)
    pipeline = evaluation_pipeline(built.options.data)
    source = pipeline.source(inputs)
    fields: dict[str, Field] = {}
    classes: tuple[str, ...] = ()
    tally: Tally | None = None
    if isinstance(manifest.encoding, SeriesEncoding):
        problem = "a network of a series is evaluated on a table, not on arrays"
        raise UserError(Diagnostic(problem, None, "the path of a table, or a split"))
    for name, array in arrays.items():
        if array.dtype.kind in "UO" and is_label(name):
            words, numbers = np.unique(array.astype(str), return_inverse=True)
            classes, array = tuple(words.tolist()), numbers.astype(np.int32)
        if name == "data" and manifest.encoding is not None:
            array, tally = manifest.encoding.encode_array(array, f"array {name!r}")
            array = array.reshape(-1, *source[name].shape)
        fields[name] = array_field(array, source[name], f"array {name!r}")
    notes = () if tally is None else tally.notes("the arrays")
    about = (fields, classes, _IN_MEMORY)
    dataset = Dataset("arrays", *about, pipeline=pipeline, inputs=inputs, tally=tally, notes=notes)
    dataset = dataset.read_as(manifest.whites, "arrays")
    found = dataset.check(inputs, {}, pipeline)
    if found:
        raise UserError(found)
    # Labels that are numbers are training's class numbers already.
    dataset = dataset.with_classes(manifest.classes) if classes else dataset
    check_labels(built, [dataset])
    return dataset


def _is_changed_path(section: Mapping[str, SourceNode]) -> bool:
    """Return whether a section has a path from the command line."""
    return "path" in section and section["path"].place.file in PATHLESS


def _entries(node: SourceNode) -> dict[str, SourceNode]:
    """Return the keys and values of a mapping; none of anything else."""
    return dict(node.value) if isinstance(node.value, Mapping) else {}


def _is_changed(dataset: Dataset, saved: str | None) -> bool:
    """Return whether the records are known to differ from those with the fingerprint `saved`.

    Lazily read columns are not compared, because that would read every file again.
    """
    return saved is not None and not dataset.lazy and fingerprint(dataset) != saved


def _file(request: DatasetRequest, dataset: Dataset) -> str:
    """Return the one file that holds all records, or an empty text."""
    path = getattr(request.options, "path", None)
    if dataset.lazy or not isinstance(path, str) or not user_path(path).is_file():
        return ""
    return shown_path(os.path.abspath(user_path(path)))


def _described(request: DatasetRequest, dataset: Dataset) -> str:
    """Return the data set, its path as seen from the working folder, and its part."""
    path = getattr(request.options, "path", None)
    paths = [] if path is None else [shown_path(str(user_path(each))) for each in paths_of(path)]
    where = f" {listed(paths)}" if paths else ""
    return f"{dataset.name}{where}, {dataset.split}"
