"""Files for calls, made from a seed, and changes of files between calls."""

from __future__ import annotations

import io
import json
import shutil
import tarfile
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import numpy as np
from PIL import Image

Maker = Callable[[], bytes]


def image(seed: int, size: int = 8, channels: int = 1, kind: str = "PNG") -> Maker:
    """An image of random pixels."""
    return partial(_image, seed, size, channels, kind)


def _image(seed: int, size: int, channels: int, kind: str) -> bytes:
    shape = (size, size) if channels == 1 else (size, size, channels)
    pixels = np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, kind)
    return file.getvalue()


def folder_of_images(
    folder: str, classes: str, count: int, size: int = 8, channels: int = 3
) -> Mapping[str, Maker]:
    """`count` images in a folder for each class."""
    return {
        f"{folder}/{name}/{number}.png": image(100 * place + number, size, channels)
        for place, name in enumerate(classes.split())
        for number in range(count)
    }


def npy(seed: int, *shape: int) -> Maker:
    """Normally distributed float32 numbers."""
    return partial(_npy, seed, shape)


def _npy(seed: int, shape: tuple[int, ...]) -> bytes:
    file = io.BytesIO()
    np.save(file, np.random.default_rng(seed).normal(size=shape).astype(np.float32))
    return file.getvalue()


def npz(seed: int, records: int, *shape: int, classes: int = 3) -> Maker:
    """An archive of `data` and `label`, the rank of the sum as a class; 0 classes: the sum."""
    return partial(_npz, seed, records, shape, classes)


def _npz(seed: int, records: int, shape: tuple[int, ...], classes: int) -> bytes:
    data = np.random.default_rng(seed).normal(size=(records, *shape)).astype(np.float32)
    sums = data.reshape(records, -1).sum(axis=1)
    ranks = np.argsort(np.argsort(sums))
    label = (ranks * classes // records).astype(np.int32) if classes else sums[:, None]
    file = io.BytesIO()
    np.savez(file, data=data, label=label)
    return file.getvalue()


def flowers(seed: int, records: int, separator: str = ",", header: bool = True) -> str:
    """A table of three columns of numbers and one of words."""
    random = np.random.default_rng(seed)
    names = ("iris", "rose", "tulip")
    lines = [separator.join(("length", "width", "height", "kind"))] if header else []
    for number in range(records):
        kind = number % len(names)
        values = [f"{value:.2f}" for value in random.normal(kind, 0.3, 3)]
        lines.append(separator.join([*values, names[kind]]))
    return "\n".join(lines) + "\n"


def libsvm(seed: int, records: int) -> str:
    """Records of two classes with four features."""
    random = np.random.default_rng(seed)
    rows = []
    for number in range(records):
        values = random.normal(number % 2, 0.3, 4)
        rows.append(f"{number % 2} " + " ".join(f"{i}:{v:.3f}" for i, v in enumerate(values, 1)))
    return "\n".join(rows) + "\n"


def idx_images(seed: int, records: int, size: int = 28) -> Maker:
    """Images in the format of MNIST."""
    return partial(_idx, seed, (records, size, size), 256)


def idx_labels(seed: int, records: int) -> Maker:
    """Labels 0 to 9 in the format of MNIST."""
    return partial(_idx, seed, (records,), 10)


def _idx(seed: int, shape: tuple[int, ...], end: int) -> bytes:
    values = np.random.default_rng(seed).integers(0, end, shape, dtype=np.uint8)
    head = bytes([0, 0, 8, len(shape)]) + b"".join(n.to_bytes(4, "big") for n in shape)
    return head + values.tobytes()


def tar_of_images(seed: int, count: int) -> Maker:
    """Images with labels in the layout of WebDataset."""
    return partial(_tar, seed, count)


def _tar(seed: int, count: int) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        for number in range(count):
            pixels = _image(seed + number, 8, 3, "PNG")
            for ending, content in (("png", pixels), ("cls", str(number % 2).encode())):
                member = tarfile.TarInfo(f"{number:04}.{ending}")
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))
    return file.getvalue()


def _only(folder: Path, pattern: str) -> Path:
    (path,) = sorted(folder.glob(pattern))[-1:]
    return path


def cut(folder: Path, pattern: str, size: str) -> None:
    """Shorten the last file of a pattern."""
    path = _only(folder, pattern)
    path.write_bytes(path.read_bytes()[: int(size)])


def flip(folder: Path, pattern: str, place: str) -> None:
    """Change the bits of a byte; a negative place counts from the end."""
    path = _only(folder, pattern)
    content = bytearray(path.read_bytes())
    content[int(place)] ^= 255
    path.write_bytes(content)


def replace(folder: Path, pattern: str, old: str, new: str) -> None:
    """Replace a text that is there."""
    path = _only(folder, pattern)
    content = path.read_text()
    if old not in content:
        raise SystemExit(f"{path} has no {old}")
    path.write_text(content.replace(old, new))


def edit_json(folder: Path, pattern: str, key: str, value: str) -> None:
    """Set a key of a JSON file."""
    path = _only(folder, pattern)
    content = json.loads(path.read_text())
    content[key] = json.loads(value)
    path.write_text(json.dumps(content))


def remove(folder: Path, pattern: str) -> None:
    """Remove a file or a folder."""
    path = _only(folder, pattern)
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()


def copy(folder: Path, source: str, target: str) -> None:
    """Copy a folder."""
    shutil.copytree(folder / source, folder / target)


EDITS: Mapping[str, Callable[..., None]] = {
    "@cut": cut,
    "@flip": flip,
    "@replace": replace,
    "@edit-json": edit_json,
    "@remove": remove,
    "@copy": copy,
}
