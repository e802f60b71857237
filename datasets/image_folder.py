"""Images in folders: each subfolder is a class with the folder's name."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
from pydantic import Field as Option

from mxrun.base.dataclass import dataclass
from mxrun.base.errors import Diagnostic, UserError
from mxrun.base.near_names import listed, nearest
from mxrun.base.params import Parameters
from mxrun.base.utf8 import valid_text
from mxrun.io.dataset.classes import class_key
from mxrun.io.dataset.dataset import Dataset
from mxrun.io.dataset.fields import Field, Inputs
from mxrun.io.dataset.pixels import IMAGES
from mxrun.io.dataset.registry import register
from mxrun.io.dataset.split import ALL, UnknownSplit, default_split
from mxrun.io.files import is_hidden, unreadable_error, user_path, visible_below
from mxrun.io.formats.image_files import frame_notes, image_column
from mxrun.io.images.decode import image_channels
from mxrun.io.images.kinds import SUFFIXES
from mxrun.io.images.options import ExifOrientation

# Images that are not decoded.
_OTHER_SUFFIXES = (".jp2", ".jxl", ".heic", ".avif")


@dataclass(frozen=True)
class _LeftOut:
    """Paths in the classes' folders that are left out: images of other formats, linked folders."""

    files: list[str]
    links: list[str]

    def notes(self, folder: Path) -> tuple[str, ...]:
        """Return a note on each kind, if there are any; folder: to which paths are relative."""
        texts = (
            (self.files, "images of other formats are left out"),
            (self.links, "folders behind links are not entered"),
        )
        return tuple(
            f"{folder}: {text}: {listed(sorted(os.path.relpath(each, folder) for each in paths))}"
            for paths, text in texts
            if paths
        )


class ImageFolderOptions(Parameters):
    """Folder of the images."""

    path: str = Option(
        min_length=1,
        description="Folder that contains a folder of images for each class; or a folder for each "
        "split, such as train and val, that contains these. `split` names one of them. A relative "
        "path starts at the config's folder.",
        examples=["photos"],
    )
    exif_orientation: ExifOrientation = True


def find_split(options: ImageFolderOptions, named: str, role: str) -> str:
    """Return the split `named`: `all`, or a folder that contains the folders of the classes.

    If `named` is empty and there is a train folder, return the folder with the usual name for the
    section `role` (train; val, test, ...). If there is none, return `all`. Raises UnknownSplit if
    the required folder does not exist.
    """
    if named == ALL:
        return ALL
    folder = user_path(options.path)
    below = _names(folder)
    if named:
        if named in below:
            return named
        splits = [ALL, *(name for name in below if _names(folder / name))]
        problem = f"{folder}: no folder for the split {named!r}"
        hint = nearest(named, splits)
        if splits == [ALL]:
            hint = (
                "the folder has no parts: `split: {share: 0.8, stratify: true}` in data.train and "
                "`split: rest` in data.eval divide its images"
            )
        raise UnknownSplit(
            Diagnostic(problem, None, f"one of {', '.join(splits)}", named, hint=hint)
        )
    splits = [name for name in below if _names(folder / name)]
    if default_split("train", splits) is None:
        return ALL
    found = default_split(role, splits)
    if found is None:
        problem = f"{folder}: no folder has a usual name for the section {role!r}"
        expected = f"split: one of {', '.join(splits)}"
        raise UnknownSplit(Diagnostic(problem, None, expected))
    return found


@register(
    "image_folder",
    ImageFolderOptions,
    (),
    lazy=True,
    find_split=find_split,
    images=IMAGES,
    foreign={"image_folder": "images imagedirectory folder"},
)
def read(options: ImageFolderOptions, split: str, inputs: Inputs) -> Dataset:
    """Images by class; data [channels, any, any] in 0..1, grey or colour as the network's input.

    Classes are numbered in the order of their sorted names; records are sorted by class and path.
    All images below a class's folder are read whose suffix is one of png, jpg, jpeg, jfif, jpe,
    bmp, ppm, pgm, pbm, webp, gif, tif and tiff; of several pages or frames, the first. Hidden files
    and folders are left out, such as .ipynb_checkpoints and @eaDir. Images beside the classes'
    folders have no class: they are left out, and a note reports them.
    Images are decoded when their batch is made.
    """
    channels = image_channels(inputs.get("data"))
    folder = user_path(options.path)
    folder = folder if split == ALL else folder / split
    # Folders whose names differ only in the Unicode encoding of accents are one class.
    classes: dict[str, str] = {}
    images: list[Path] = []
    labels: list[int] = []
    left_out = _LeftOut([], [])
    for name in _names(folder):
        shown = valid_text(name)
        classes.setdefault(class_key(shown), shown)
        found = _images(folder / name, left_out)
        images += found
        labels += [list(classes).index(class_key(shown))] * len(found)
    empty = set(range(len(classes))) - set(labels)
    if not images:
        expected = "a subfolder for each class, with images in it"
        hint = f"images end in {', '.join(SUFFIXES)}"
        if _images(folder, left_out):
            hint = f"images without labels: mxrun infer RUN {folder}"
        raise UserError(Diagnostic(f"{folder}: holds no images", None, expected, hint=hint))
    named = [(os.fsencode(image.relative_to(folder)), image) for image in images]
    fields = {"label": Field(np.array(labels, np.int32))}
    names = tuple(classes.values())
    return Dataset(
        "image_folder",
        fields,
        names,
        split,
        lazy={"data": image_column(named, channels)},
        empty=tuple(names[number] for number in sorted(empty)),
        notes=(*_notes(folder), *left_out.notes(folder), *frame_notes(images)),
    )


def _names(folder: Path) -> list[str]:
    """Return the names of the subfolders that are not hidden, sorted by code points."""
    try:
        with os.scandir(folder) as entries:
            return sorted(
                entry.name for entry in entries if entry.is_dir() and not is_hidden(entry.name)
            )
    except (OSError, ValueError) as error:
        raise unreadable_error(folder, error) from error


def _notes(folder: Path) -> tuple[str, ...]:
    """Return a note on images that are beside the classes' folders."""
    try:
        with os.scandir(folder) as entries:
            files = [
                entry.name for entry in entries if entry.is_file() and not is_hidden(entry.name)
            ]
    except OSError as error:
        raise unreadable_error(folder, error) from error
    beside = sorted(filter(_is_image, files))
    if not beside:
        return ()
    return (
        f"{folder}: images outside the classes' folders have no class and are left out: "
        f"{listed(beside)}",
    )


def _is_image(name: str) -> bool:
    return name.lower().endswith(SUFFIXES)


def _images(folder: Path, left_out: _LeftOut) -> list[Path]:
    """Return the images below a folder, sorted by path; appends to `left_out`."""
    found: list[Path] = []
    for parent, folders, names in visible_below(folder):
        found += [Path(parent) / name for name in names if _is_image(name)]
        others = (name for name in names if name.lower().endswith(_OTHER_SUFFIXES))
        left_out.files.extend(os.path.join(parent, name) for name in others)
        linked = (os.path.join(parent, name) for name in folders)
        left_out.links.extend(filter(os.path.islink, linked))
    return sorted(found)
