"""Images in folders: the records, their content, and files that are not images."""

from __future__ import annotations

import itertools
import os
import random
import tracemalloc
import zlib
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from damage import damage
from lazy_columns import record_of
from PIL import Image
from refusals import only_problem

from mxrun.base.errors import SourceLocation, UserError
from mxrun.base.tensor import TensorSpec
from mxrun.io.dataset.dataset import Dataset
from mxrun.io.dataset.request import open_datasets, request_dataset

PLACES = {"dataset": SourceLocation("c.yaml", 6, 3), "path": SourceLocation("c.yaml", 7, 3)}


def inputs(channels: int = 3, height: int = 6, width: int = 8) -> dict[str, TensorSpec]:
    return {"data": TensorSpec((channels, height, width)), "label": TensorSpec((), "int32")}


def open_folder(path: Path | str, split: object = "all", channels: int = 3) -> Dataset:
    request = request_dataset("image_folder", {"path": str(path)}, split, PLACES)
    return open_datasets({"it": request}, inputs(channels))["it"]


def pixels(number: int, channels: int = 3) -> np.ndarray:
    return (np.arange(48 * channels) * (number + 7) % 256).astype(np.uint8).reshape(6, 8, channels)


def save(path: Path, array: np.ndarray) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(array.squeeze()).save(path)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two classes; names sort by code points, `Z` before `a`."""
    for number, name in enumerate(("b/1.png", "b/deep/0.bmp", "Z/x.PNG", "Z/w.ppm")):
        save(tmp_path / name, pixels(number))
    (tmp_path / "b" / "notes.txt").write_text("no image")
    (tmp_path / "b" / ".hidden.png").write_text("no image")
    (tmp_path / ".cache").mkdir()
    (tmp_path / "readme.png").write_text("no class")
    return tmp_path


def test_classes_and_records_are_sorted(folder):
    dataset = open_folder(folder)
    assert dataset.classes == ("Z", "b")
    assert dataset.fields["label"].records.tolist() == [0, 0, 1, 1]
    read = partial(record_of, dataset)
    for index, number in enumerate((3, 2, 0, 1)):
        assert np.array_equal(read(index), pixels(number).transpose(2, 0, 1))
        assert read(index).dtype == np.uint8
    part = open_folder(folder, {"of": "all", "range": [1, 3]})
    assert len(part) == 2
    assert part.fields["label"].records.tolist() == [0, 1]
    assert np.array_equal(record_of(part, 1), read(2))


def test_names_that_look_alike_are_one_class(tmp_path):
    for number, name in enumerate(("cafe\u0301", "caff", "caf\u00e9")):
        save(tmp_path / name / "0.png", pixels(number))
    dataset = open_folder(tmp_path)
    assert dataset.classes == ("cafe\u0301", "caff")
    assert dataset.fields["label"].records.tolist() == [0, 1, 0]
    assert dataset.empty == ()


def test_images_of_no_class_are_noted(folder):
    (note,) = open_folder(folder).notes
    assert note.endswith("have no class and are left out: readme.png")
    assert note.startswith(f"{folder}: ")
    (folder / "readme.png").unlink()
    assert open_folder(folder).notes == ()


def test_splits_are_folders(folder, tmp_path_factory):
    root = tmp_path_factory.mktemp("split")
    for split, count in (("train", 3), ("test", 1)):
        for number in range(count):
            save(root / split / "one" / f"{number}.png", pixels(number))
    assert (len(open_folder(root, "train")), len(open_folder(root, "test"))) == (3, 1)


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA", "CMYK"])
@pytest.mark.parametrize("channels", [1, 3])
def test_grey_or_colour_is_what_the_network_wants(tmp_path, mode, channels):
    image = Image.fromarray(pixels(0)).convert(mode)
    suffix = "jpg" if mode == "CMYK" else "png"
    (tmp_path / "a").mkdir()
    image.save(tmp_path / "a" / f"0.{suffix}")
    record = record_of(open_folder(tmp_path, channels=channels), 0)
    expected = np.asarray(image.convert("L" if channels == 1 else "RGB")).reshape(6, 8, channels)
    assert record.shape == (channels, 6, 8)
    if mode != "CMYK":
        assert np.array_equal(record, expected.transpose(2, 0, 1))


def failure(path: Path | str, split: str = "all", channels: int = 3) -> str:
    found = only_problem(open_folder, path, split, channels)
    assert found.place == PLACES["path"]
    return str(found)


def test_folders_without_images_are_explained(folder, tmp_path_factory):
    empty = tmp_path_factory.mktemp("empty")
    assert "no images" in failure(empty)
    assert "cannot be read" in failure(empty / "none")
    assert "cannot be read" in failure(folder / "readme.png")
    assert "cannot be read" in failure("a\0b")
    assert "not an image" in failure(folder, channels=4)


def read_file(path: Path, content: bytes) -> np.ndarray:
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content)
    return record_of(open_folder(path.parent.parent), 0)


def encoded(tmp_path: Path, suffix: str) -> bytes:
    path = tmp_path / f"whole{suffix}"
    smooth = np.linspace(0, 255, 24 * 32 * 3).astype(np.uint8).reshape(24, 32, 3)
    Image.fromarray(smooth).save(path)
    return path.read_bytes()


def chunk(kind: bytes, body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + kind + body + zlib.crc32(kind + body).to_bytes(4, "big")


def png(width: int, height: int, depth: int = 8) -> bytes:
    header = width.to_bytes(4, "big") + height.to_bytes(4, "big") + bytes([depth, 0, 0, 0, 0])
    body = chunk(b"IDAT", zlib.compress(bytes(64)))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + body + chunk(b"IEND", b"")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", ("byte 0", "empty")),
        (b"GIF89a", ("cannot be decoded as an image",)),
        (b"II*\0\x08\0\0\0", ("cannot be decoded as an image",)),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n", ("not a file of PNG, JPEG",)),
        (png(9000, 9000), ("byte 0", "too large", "9000 x 9000")),
        (png(10000, 10000), ("pixels",)),
        (png(2**31 - 1, 2**31 - 1), ("byte",)),
        (png(4, 4, 16), ("unsupported pixel format", "8 bits")),
    ],
    ids=itertools.count(),
)
def test_what_is_no_image_is_told_with_file_and_byte(tmp_path, content, words):
    path = tmp_path / "a" / "0.png"
    tracemalloc.start()
    try:
        with pytest.raises(UserError) as caught:
            read_file(path, content)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert all(word in str(caught.value) for word in (str(path), "byte ", *words))
    # A header's size is never taken at its word.
    assert peak < 16 << 20


def test_a_file_that_went_away_is_told(folder):
    dataset = open_folder(folder)
    (folder / "Z" / "w.ppm").unlink()
    with pytest.raises(UserError, match=r"w\.ppm: cannot be read"):
        record_of(dataset, 0)


@pytest.mark.parametrize("suffix", [".png", ".jpg", ".bmp", ".ppm", ".webp", ".gif", ".tif"])
def test_truncated_images_are_refused_or_whole(tmp_path, suffix):
    content = encoded(tmp_path, suffix)
    whole = read_file(tmp_path / "a" / f"0{suffix}", content)
    refused = []
    sizes = range(0, len(content), max(1, len(content) // 150))
    path = tmp_path / "a" / f"0{suffix}"
    for size in sizes:
        try:
            record = read_file(path, content[:size])
        except UserError as error:
            refused.append(str(error))
        else:
            # Only data after the pixels, such as a checksum, may be missing.
            assert np.array_equal(record, whole)
    assert len(refused) > 0.8 * len(sizes)
    assert all(f"{path}: byte " in text for text in refused)


@pytest.mark.parametrize("suffix", [".png", ".jpg", ".bmp", ".ppm", ".webp", ".gif", ".tif"])
def test_damaged_images_give_an_error_or_an_image(tmp_path, suffix):
    content, draw = encoded(tmp_path, suffix), random.Random(8)
    path = tmp_path / "a" / f"0{suffix}"
    refused = []
    for _ in range(200):
        try:
            record = read_file(path, damage(content, draw))
        except UserError as error:
            refused.append(str(error))
        else:
            assert (record.dtype, record.ndim, record.shape[0]) == (np.uint8, 3, 3)
    assert len(refused) > 20
    assert all(f"{path}: byte " in text for text in refused)


def test_a_pipe_is_no_image_and_is_not_waited_for(folder):
    os.mkfifo(folder / "b" / "pipe.png")
    (folder / "b" / "link.png").symlink_to(folder / "b" / "pipe.png")
    dataset = open_folder(folder)
    for record, name in ((4, "link.png"), (5, "pipe.png")):
        with pytest.raises(UserError, match=f"{name}: not a regular file"):
            record_of(dataset, record)


def test_images_that_are_left_out_are_told(folder):
    assert not any("left out: b" in note or "links" in note for note in open_folder(folder).notes)
    for name in ("b/deep/a.HEIC", "Z/c.avif"):
        (folder / name).write_bytes(b"")
    outside = folder.parent / f"{folder.name}_outside"
    save(outside / "5.png", pixels(5))
    (folder / "b" / "more").symlink_to(outside)
    (folder / "b" / "loop").symlink_to(folder)
    dataset = open_folder(folder)
    assert len(dataset) == 4
    assert dataset.notes[1:] == (
        f"{folder}: images of other formats are left out: Z/c.avif, b/deep/a.HEIC",
        f"{folder}: folders behind links are not entered: b/loop, b/more",
    )


@pytest.mark.parametrize("suffix", [".gif", ".tif", ".webp"])
def test_of_several_frames_the_first_is_read_and_that_is_said_once(tmp_path, suffix):
    frames = [Image.fromarray(np.full((6, 8, 3), value, np.uint8)) for value in (0, 128, 255)]
    for kind in "ab":
        (tmp_path / kind).mkdir()
        frames[2].save(tmp_path / kind / f"one{suffix}")
        frames[0].save(tmp_path / kind / f"three{suffix}", save_all=True, append_images=frames[1:])
    dataset = open_folder(tmp_path)
    assert [int(record_of(dataset, at).max()) for at in range(4)] == [255, 0, 255, 0]
    files = ", ".join(str(tmp_path / kind / f"three{suffix}") for kind in "ab")
    assert dataset.notes == (f"of several pages or frames the first is read: {files}",)
