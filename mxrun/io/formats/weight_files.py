"""Files of weights of other programs, as arrays by name: safetensors, .npz, and Keras' .h5, .keras.

Nothing is unpickled. Sizes that a file states are compared with what it holds, or with the memory
that is left, before anything is allocated.
"""

from __future__ import annotations

import io
import json
import re
import zipfile
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from mxrun.base.array_file import Array, UnreadableArrays, parse_arrays
from mxrun.base.errors import Diagnostic, UserError
from mxrun.io.files import MAXIMUM_BYTES, check_memory, fail, read_all_bytes, unreadable_error
from mxrun.io.formats.npy import npz_shapes, open_archive, read_npz

SUFFIXES = (".safetensors", ".npz", ".h5", ".keras")
_PICKLED = (".pth", ".pt", ".bin", ".ckpt")
_WEIGHTS, _CONFIG = "model.weights.h5", "config.json"
_MAX_CONFIG_BYTES = 1 << 26
# Leaves of Keras' layers in their order of storage, by the beginning of the layer's kind.
_OLD_LEAF = re.compile(r"_([Wb])(?:_\d+)?\Z")
_NORM = ("gamma", "beta", "moving_mean", "moving_variance")
_DENSE = ("kernel", "bias")
_WORD_START = re.compile(r"(?<=.)(?=[A-Z][a-z])|(?<=[a-z])(?=[A-Z])")


def read_weights(path: Path) -> dict[str, Array]:
    """Return the arrays of a file by their names there, in the file's order.

    Arrays of Keras are named LAYER/LEAF, such as conv1/kernel. Raises UserError for a file of
    another kind, for one that is damaged or too large for memory, and for pickles.
    """
    suffix = path.suffix.lower()
    if suffix in _PICKLED:
        raise UserError(_pickled(path))
    if suffix not in SUFFIXES:
        problem = f"{path}: this kind of file holds no weights that are read"
        got = suffix or "no suffix"
        raise UserError(Diagnostic(problem, None, f"a file that ends in {_listed()}", got))
    if suffix == ".npz":
        arrays, problems = npz_shapes(path)
        if problems:
            raise UserError(problems)
        return read_npz(path, tuple(arrays))
    if suffix == ".safetensors":
        try:
            return parse_arrays(bytes(read_all_bytes(path)))
        except UnreadableArrays as error:
            problem = f"{path}: {error.problem}"
            raise UserError(Diagnostic(problem, None, error.expected, error.got)) from error
    if suffix == ".keras":
        return _read_keras(path)
    return _read_hdf5(path, io.BytesIO(read_all_bytes(path)), {})


def _listed() -> str:
    return f"{', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]}"


def _pickled(path: Path) -> Diagnostic:
    new = path.with_suffix(".safetensors")
    return Diagnostic(
        f"{path}: PyTorch's pickles are not read, as they can run code",
        expected=f"a file that ends in {_listed()}",
        got=path.suffix,
        hint="with PyTorch and safetensors, for a file that you trust:\n"
        f"    weights = torch.load({str(path)!r}, weights_only=True, map_location='cpu')\n"
        "    safetensors.torch.save_file({k: v.contiguous() for k, v in weights.items()}, "
        f"{str(new)!r})",
    )


def _read_keras(path: Path) -> dict[str, Array]:
    """Read an archive of Keras 3: the weights, and the layers' names of its config."""
    with open_archive(path) as archive:
        config = _member(archive, path, _CONFIG, _MAX_CONFIG_BYTES)
        content = _member(archive, path, _WEIGHTS, MAXIMUM_BYTES)
    try:
        layers = json.loads(config)["config"]["layers"]
        kinds = [(_snake(str(each["class_name"])), str(each["config"]["name"])) for each in layers]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise UserError(f"{path}: {_CONFIG} is not that of a Keras model with layers") from error
    return _read_hdf5(path, io.BytesIO(content), dict(zip(_numbered(kinds), kinds, strict=True)))


def _member(archive: zipfile.ZipFile, path: Path, name: str, limit: int) -> bytes:
    if name not in archive.namelist():
        raise UserError(
            Diagnostic(f"{path}: not a Keras archive", None, name, "an archive without")
        )
    check_memory(path, 2 * min(archive.getinfo(name).file_size, limit))
    with archive.open(name) as stream:
        content = stream.read(limit + 1)
    if len(content) > limit:
        fail(path, 0, f"{name} is too large", f"at most {limit} bytes")
    return content


def _snake(kind: str) -> str:
    """Return the name of a class as Keras writes it in files: conv2d, batch_normalization."""
    return _WORD_START.sub("_", kind).lower()


def _numbered(kinds: list[tuple[str, str]]) -> Iterator[str]:
    """Yield the groups of layers in a file of Keras 3: dense, dense_1, ... in the model's order."""
    counts: Counter[str] = Counter()
    for kind, _ in kinds:
        yield f"{kind}_{counts[kind]}" if counts[kind] else kind
        counts[kind] += 1


def _read_hdf5(
    path: Path, stream: io.BytesIO, layers: Mapping[str, tuple[str, str]]
) -> dict[str, Array]:
    """Read a file of HDF5; layers: kind and name of the layers by their groups, if known."""
    try:
        import h5py
    except ModuleNotFoundError as error:
        hint = "pip install 'mxrun[keras]'"
        raise UserError(Diagnostic(f"{path}: h5py is not installed", hint=hint)) from error
    found: dict[str, Array] = {}
    try:
        with h5py.File(stream, "r") as file:
            datasets: list[Any] = []

            def collect(_: str, item: Any) -> None:
                if isinstance(item, h5py.Dataset) and item.dtype.kind in "fiu" and item.shape:
                    datasets.append(item)

            file.visititems(collect)
            check_memory(path, sum(each.nbytes for each in datasets))
            for each in datasets:
                _check_stored(path, each)
                name = _keras_name(each.name.strip("/").split("/"), len(each.parent), layers)
                if name:
                    found[name] = np.asarray(each[()])
    except (OSError, RuntimeError, KeyError, ValueError) as error:
        if isinstance(error, OSError) and error.errno:
            raise unreadable_error(path, error) from error
        raise UserError(f"{path}: not a readable HDF5 file: {error}"[:300]) from error
    return found


def _check_stored(path: Path, dataset: Any) -> None:
    """Raise UserError for an array whose values are not in the file as they are."""
    where = f"{path}: {dataset.name}"[:300]
    if dataset.is_virtual or dataset.external:
        raise UserError(Diagnostic(f"{where}: its values are in another file"))
    stored = dataset.id.get_storage_size()
    if stored < dataset.nbytes:
        expected, got = f"{dataset.nbytes:,} bytes", f"{stored:,} bytes"
        hint = "save it without compression"
        raise UserError(Diagnostic(f"{where}: values are missing", None, expected, got, hint=hint))


def _keras_name(
    parts: list[str], siblings: int, layers: Mapping[str, tuple[str, str]]
) -> str | None:
    """Return LAYER/LEAF for the path of an array in a file of Keras 2 or 3; None for other arrays.

    siblings: the number of arrays beside it. Keras 2 writes layer/layer/kernel:0, below
    model_weights if the file has a model besides; Keras 3 writes layers/kind_2/vars/0.
    """
    if parts[0] == "optimizer_weights" or parts[0] == "optimizer":
        return None
    if "vars" in parts[:-1] and parts[-1].isdigit():
        group = parts[-3]
        kind, name = layers.get(group, (group, group))
        leaves = _NORM if kind.startswith("batch_normalization") else _DENSE
        # Without scale or centre the first leaves are left out; the statistics are last.
        index = int(parts[-1]) + (len(_NORM) - siblings) * (leaves is _NORM)
        if kind.startswith("depthwise"):
            leaves = ("depthwise_kernel", "bias")
        return f"{name}/{leaves[index]}" if 0 <= index < len(leaves) else None
    above, leaf = parts[:-1], parts[-1].split(":")[0]
    if above[:1] == ["model_weights"]:
        above = above[1:]
    # The layer's name comes twice, or after that of a model within the model.
    half = len(above) // 2
    layer = above[half:] if above[:half] == above[half:] else above[-1:]
    old = _OLD_LEAF.search(leaf)
    return "/".join((*layer, {"W": "kernel", "b": "bias"}[old[1]] if old else leaf))
