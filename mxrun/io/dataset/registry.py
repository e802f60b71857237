"""Registry of the formats of data sets."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from typing import Any, TypeVar

from mxrun.base.dataclass import dataclass
from mxrun.base.errors import Diagnostic, SourceLocation, UserError
from mxrun.base.params import Parameters
from mxrun.base.registry import Registry
from mxrun.io.dataset.dataset import Dataset
from mxrun.io.dataset.fields import Inputs
from mxrun.io.dataset.pixels import Whites
from mxrun.io.images.options import reads_as_stored
from mxrun.io.tables.encoding import TableEncoding
from mxrun.io.vocabulary.vocabulary import Vocabulary

FindSplit = Callable[[Any, str, str], str]
Follow = Callable[[Any, frozenset[str], Sequence[str], str, TableEncoding | None], Any]


@dataclass(frozen=True)
class DatasetFormat:
    """Registered kind of data set: its typed options, its splits and the function that reads a
    split.

    `read(options, split, inputs)` returns the complete split or raises UserError. `inputs` are the
    specs of the required records, for synthetic data sets and for formats that support several.
    `lazy`: whether records are read on demand instead of all at once, or a function of the options
    that tells. `synthetic`: whether records
    are generated instead of read. If the splits are known only from the files, `splits` is empty,
    and `find_split(options, named, role)` returns the split that the section `role` refers to by
    `named`, which is empty if the section names none; it raises UnknownSplit if there is no such
    split. `follow(options, own, columns, label, encoding)` returns the options that select columns
    of the same names as in training, and treat them as `encoding` says; `own` are the option keys
    that the section sets itself. `learns_vocabulary`: whether `read` takes the vocabulary of
    training as a fourth argument, or learns one if that is None. `of_files`: the data set with the
    same options that reads files, for one whose files are bundled. `images`: the pixel value of
    white, by the fields whose records are images; an option `images` declares others.
    """

    name: str
    options: type[Parameters]
    splits: tuple[str, ...]
    read: Callable[..., Dataset] = field(repr=False)
    lazy: bool | Callable[[Any], bool] = False
    synthetic: bool = False
    find_split: FindSplit | None = field(default=None, repr=False)
    follow: Follow | None = field(default=None, repr=False)
    learns_vocabulary: bool = False
    of_files: str = ""
    images: Whites = field(default_factory=dict)

    def whites(self, options: Parameters) -> Whites | None:
        """Return white by the fields whose records are images with these options.

        None for a data set that has no images.
        """
        declared: Whites | None = getattr(options, "images", None)
        return self.images or declared

    def open(
        self, options: Any, split: str, inputs: Inputs, vocabulary: Vocabulary | None = None
    ) -> Dataset:
        """Return the complete split; texts with the `vocabulary` of training, if one is given.

        Raises UserError if `read`, which may be a plugin's, returns anything else.
        """
        more = (vocabulary,) if self.learns_vocabulary else ()
        found = self.read(options, split, inputs, *more)
        if not isinstance(found, Dataset):
            code = self.read.__code__
            problem = f"the data set {self.name!r} was not read: {code.co_name} returned no Dataset"
            place = SourceLocation(code.co_filename, code.co_firstlineno, 1)
            raise UserError(Diagnostic(problem, place, "a Dataset", type(found).__name__))
        if not reads_as_stored(options):
            return found
        lazy = {name: replace(column, as_stored=True) for name, column in found.lazy.items()}
        return replace(found, lazy=lazy)

    def is_lazy(self, options: Parameters) -> bool:
        """Return whether records are read on demand with these options."""
        return self.lazy if isinstance(self.lazy, bool) else self.lazy(options)


DATASETS: Registry[DatasetFormat] = Registry("data set")
# Data sets of text files, which no suffix tells for certain.
TABLE, IMAGE_LIST = "csv", "image_list"


def dataset_of_suffix(suffix: str) -> str:
    """Return the data set that reads files with a suffix, such as `.npz`; empty if none does."""
    known = DATASETS.attribute("suffixes").items()
    return next((name for name, suffixes in known if suffix.lower() in suffixes), "")


R = TypeVar("R", bound=Callable[..., Dataset])


def register(
    name: str,
    options: type[Parameters],
    splits: tuple[str, ...],
    *,
    lazy: bool | Callable[[Any], bool] = False,
    synthetic: bool = False,
    find_split: FindSplit | None = None,
    follow: Follow | None = None,
    learns_vocabulary: bool = False,
    of_files: str = "",
    images: Whites | None = None,
    foreign: Mapping[str, str] | None = None,
    suffixes: Sequence[str] = (),
    licence: str = "",
    parts: Sequence[str] = (),
    files: Mapping[str, str] | None = None,
    same_files: str = "",
    image_options: Mapping[str, Mapping[str, Any]] | None = None,
) -> Callable[[R], R]:
    """Return a decorator that registers the reading function of the data set `name`.

    These are known before its module is imported. foreign: by its form in a config, names of other
    frameworks, separated by spaces. suffixes: of its files. licence: of bundled records. The rest
    says how `mxrun init` knows its data. parts: splits that need no path. files: by split the file
    that shows it. same_files: the data set that has these files unless the record of a fetch names
    this one. image_options: by suffix of its files of images, the options beside the path.
    """
    attributes = {
        "foreign": foreign,
        "suffixes": suffixes,
        "licence": licence,
        "parts": parts,
        "files": files,
        "same_files": same_files,
        "image_options": image_options,
    }

    def add(read: R) -> R:
        kinds = (lazy, synthetic, find_split, follow, learns_vocabulary, of_files, images or {})
        format = DatasetFormat(name, options, splits, read, *kinds)
        DATASETS.add(name, format, **attributes)
        return read

    return add
