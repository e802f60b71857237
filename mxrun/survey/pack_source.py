"""Sources of `pack`: a folder of images, a list of images, or a data section of a config."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from mxrun.base.dataclass import dataclass
from mxrun.base.errors import Diagnostic, UserError
from mxrun.base.tensor import TensorSpec
from mxrun.config.bundled import bundled_configs
from mxrun.io.dataset.dataset import Dataset
from mxrun.io.dataset.registry import DATASETS, IMAGE_LIST
from mxrun.io.files import user_path
from mxrun.io.formats.image_list import is_image_list
from mxrun.options.pack import PackOptions
from mxrun.survey.data_sections import TRAIN, open_sections

_CONFIGS = (".yaml", ".yml")


@dataclass(frozen=True)
class PackSource:
    """Records to pack, and the folder to which the names of their files are relative."""

    dataset: Dataset
    root: Path


def open_source(options: PackOptions) -> PackSource:
    """Open the records of a pack's source.

    Channels are for a folder or a list; a config has its own. Raises UserError if nothing can be
    read there.
    """
    source, split, channels = options.source, options.split, options.channels
    path = user_path(source)
    if path.suffix in _CONFIGS or (not path.exists() and source in bundled_configs()):
        if channels is not None:
            problem = "--channels is for folders and lists: a config's network says its channels"
            raise UserError(Diagnostic(problem, got=source))
        return _of_config(options)
    if options.overrides:
        problem = "KEY=VALUE changes a config, and the source is none"
        raise UserError(Diagnostic(problem, None, f"a file *{_CONFIGS[0]}", source))
    if path.is_dir():
        return PackSource(_read("image_folder", source, split, channels), path)
    if path.is_file() and is_image_list(path):
        return PackSource(_read(IMAGE_LIST, source, split, channels), path.parent)
    there = "a file of another kind" if path.exists() else "no such file or folder"
    expected = "a folder of images, a list of images or a config"
    raise UserError(Diagnostic(f"{source}: cannot be packed", None, expected, there))


def _read(name: str, source: str, split: str | None, channels: int | None) -> Dataset:
    """Read a data set of images whose only option is its path."""
    known = DATASETS.get(name)
    options = known.options.model_validate({"path": source})
    named = split or ""
    if known.find_split is not None:
        part = known.find_split(options, named, TRAIN)
    elif named in ("", *known.splits):
        part = known.splits[0]
    else:
        problem = f"{source}: a list of images has no parts"
        raise UserError(Diagnostic(problem, got=named, hint="leave out --split"))
    inputs = {"data": TensorSpec((channels or 3, 1, 1))}
    return known.open(options, part, inputs)


def _of_config(options: PackOptions) -> PackSource:
    """Return the records of a config's section, before its transforms."""
    section = options.split or TRAIN
    sections = open_sections(options.source, options.overrides, options.allow_plugins)
    dataset = sections.section(section)
    path = getattr(sections.built.data[section].options, "path", None)
    root = user_path(path) if isinstance(path, str) else Path()
    return PackSource(replace(dataset, inputs={}), root if root.is_dir() else root.parent)
