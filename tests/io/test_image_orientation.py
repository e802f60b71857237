"""Photos that are stored turned: upright wherever image files become pixels, as Pillow turns them.

The oracle is `PIL.ImageOps.exif_transpose`.
"""

from __future__ import annotations

import io
import json
import struct
import warnings
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from commands import result
from lazy_columns import record_of
from photos import CONFIG
from PIL import Image, ImageOps, PngImagePlugin
from transformed import make

from mxrun.base.tensor import TensorSpec
from mxrun.commands import datasets
from mxrun.io.dataset.dataset import Dataset
from mxrun.io.dataset.fields import Field, LazyField
from mxrun.io.dataset.request import open_datasets, request_dataset
from mxrun.io.formats.image_record import pack_image_record
from mxrun.io.formats.recordio import RecordWriter
from mxrun.io.formats.tar_shards import TarWriter
from mxrun.io.images.decode import DIVISORS, decode_image, decode_pixels, read_image_header
from mxrun.io.images.encoded import EncodedImage
from mxrun.io.pack.options import PackSettings, PackTarget
from mxrun.io.pack.pack import PackRequest, pack
from mxrun.io.transforms.pipeline import pipeline
from mxrun.io.transforms.program import RowProgram
from mxrun.options.datasets import PeekOptions, StatisticsOptions
from mxrun.survey.images import survey_images

ORIENTATION = 0x0112
ORIENTATIONS = range(1, 9)
HEIGHT, WIDTH = 40, 56


def pixels(number: int = 0) -> np.ndarray:
    """Return a smooth image without any symmetry, uint8 [HEIGHT, WIDTH, 3]."""
    y, x = np.mgrid[:HEIGHT, :WIDTH]
    planes = [4 * x + number, 6 * y, 2 * x + 3 * y + 9 * number]
    return np.minimum(np.stack(planes, axis=2), 255).astype(np.uint8)


def exif_of(orientation: int) -> Image.Exif:
    exif = Image.Exif()
    exif[0x010F] = "a camera"
    exif[ORIENTATION] = orientation
    return exif


def photo(orientation: int, kind: str = "PNG", number: int = 0, **options: object) -> bytes:
    """Return an image file whose EXIF data have an orientation."""
    stream = io.BytesIO()
    Image.fromarray(pixels(number)).save(stream, kind, exif=exif_of(orientation), **options)
    return stream.getvalue()


def turned_by_pillow(content: bytes) -> np.ndarray:
    """Return the upright image, [3, height, width]."""
    with Image.open(io.BytesIO(content)) as image:
        return np.asarray(ImageOps.exif_transpose(image).convert("RGB")).transpose(2, 0, 1)


def stored_pixels(content: bytes) -> np.ndarray:
    with Image.open(io.BytesIO(content)) as image:
        return np.asarray(image.convert("RGB")).transpose(2, 0, 1)


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "TIFF"])
@pytest.mark.parametrize("orientation", ORIENTATIONS)
def test_files_are_turned_as_pillow_turns_them(kind, orientation):
    content = photo(orientation, kind)
    expected = turned_by_pillow(content)
    sides = (WIDTH, HEIGHT) if orientation > 4 else (HEIGHT, WIDTH)
    assert expected.shape == (3, *sides)
    image = EncodedImage(memoryview(content), "x")
    header = read_image_header(image)
    assert (header.height, header.width) == sides
    assert np.array_equal(decode_image(image, 3), expected)
    grey = decode_image(image, 1)
    assert grey.shape == (1, *sides)
    assert np.abs(grey[0] - expected.mean(axis=0)).max() < 40
    stored = EncodedImage(content, "x", as_stored=True)
    # Pillow turns TIFF files itself; their pixels are those that were written.
    as_stored = pixels().transpose(2, 0, 1) if kind == "TIFF" else stored_pixels(content)
    assert np.array_equal(decode_image(stored, 3), as_stored)


def with_late_exif(orientation: int) -> bytes:
    """Return a PNG file whose EXIF data follow the pixels."""
    content = photo(1)
    at = content.index(b"eXIf")
    length = int.from_bytes(content[at - 4 : at], "big")
    without = content[: at - 4] + content[at + 8 + length :]
    body = b"eXIf" + exif_of(orientation).tobytes().removeprefix(b"Exif\0\0")
    chunk = (len(body) - 4).to_bytes(4, "big") + body + zlib.crc32(body).to_bytes(4, "big")
    end = without.index(b"IEND") - 4
    return without[:end] + chunk + without[end:]


def with_raw_profile(orientation: int) -> bytes:
    """Return a PNG file with EXIF data in a text, as ImageMagick writes them."""
    data = exif_of(orientation).tobytes()
    text = f"\nexif\n{len(data):8}\n{data.hex()}\n"
    info = PngImagePlugin.PngInfo()
    info.add_text("Raw profile type exif", text, zip=True)
    stream = io.BytesIO()
    Image.fromarray(pixels()).save(stream, "PNG", pnginfo=info)
    return stream.getvalue()


def with_xmp(kind: str) -> Callable[[int], bytes]:
    def made(orientation: int) -> bytes:
        xmp = f'<rdf:Description tiff:Orientation="{orientation}"/>'.encode()
        stream = io.BytesIO()
        if kind == "JPEG":
            Image.fromarray(pixels()).save(stream, kind, xmp=xmp)
            return stream.getvalue()
        info = PngImagePlugin.PngInfo()
        info.add_itxt("XML:com.adobe.xmp", xmp.decode())
        Image.fromarray(pixels()).save(stream, kind, pnginfo=info)
        return stream.getvalue()

    return made


@pytest.mark.parametrize(
    "made", [with_late_exif, with_raw_profile, with_xmp("JPEG"), with_xmp("PNG")]
)
def test_orientations_are_found_wherever_files_hold_them(made):
    for orientation in (1, 3, 6):
        content = made(orientation)
        expected = turned_by_pillow(content)
        assert (expected.shape[1] == WIDTH) == (orientation == 6)
        assert np.array_equal(decode_image(EncodedImage(content, "x"), 3), expected)


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP"])
def test_damaged_exif_data_turn_nothing(kind):
    whole = exif_of(6).tobytes()
    upright = {True: 0, False: 0}
    # Pillow reads no further tag after the damaged offset of another one, bytes 16 to 27.
    for at in (*range(6, 16), *range(28, len(whole))):
        stream = io.BytesIO()
        damaged = whole[:at] + bytes([whole[at] ^ 0xFF]) + whole[at + 1 :]
        Image.fromarray(pixels()).save(stream, kind, exif=damaged)
        content = stream.getvalue()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                expected = turned_by_pillow(content)
            except (OSError, ValueError, SyntaxError, LookupError, TypeError, struct.error):
                expected = stored_pixels(content)
        assert np.array_equal(decode_image(EncodedImage(content, "x"), 3), expected)
        upright[expected.shape[1] == WIDTH] += 1
    assert min(upright.values()) > 5
    for number in (0, 9, 65535):
        image = EncodedImage(photo(number, kind), "x")
        assert decode_image(image, 3).shape == (3, HEIGHT, WIDTH)


@pytest.mark.parametrize("orientation", ORIENTATIONS)
@pytest.mark.parametrize("divisor", DIVISORS)
def test_photos_decoded_at_a_part_of_their_size_are_turned(orientation, divisor):
    content = photo(orientation, "JPEG", quality=95)
    image = EncodedImage(content, "x")
    header = read_image_header(image)
    memory = np.zeros(HEIGHT * WIDTH * 3, np.uint8)
    found = decode_pixels(image, header, 3, divisor, memory)
    upright = Image.fromarray(np.ascontiguousarray(turned_by_pillow(content).transpose(1, 2, 0)))
    expected = np.asarray(upright.reduce(divisor))
    assert found.shape == expected.shape
    assert np.abs(found.astype(int) - expected).mean() < 4


def rows_of(records: list[object], given: list[tuple[str, dict[str, object]]]) -> list[np.ndarray]:
    """Return the rows of images after transforms, and those of a box in each."""
    transforms = pipeline([(make(name, **options), None) for name, options in given])
    column = LazyField(records.__getitem__, len(records), (3, None, None), "uint8", 1 / 255)
    program = RowProgram(transforms, "data", column, TensorSpec((3, 24, 24)), 4)
    numbers, found = np.arange(len(records)), np.empty((len(records), 3, 24, 24), np.float32)
    done = program.write(program.read(numbers), numbers, numbers, found)
    assert done == []
    boxes = Field(np.float32([[[1, 0.3, 0.2, 0.6, 0.9]]] * len(records)), boxes=True)
    label = RowProgram(transforms, "label", boxes, TensorSpec((1, 5)), 4)
    moved = np.empty((len(records), 1, 5), np.float32)
    assert label.write(label.read(numbers), numbers, numbers, moved, done.moves) == []
    return [found, moved]


@pytest.mark.parametrize(
    "steps",
    [
        [("resize", {"size": (24, 24)})],
        [("random_crop", {"size": 24}), ("flip", {}), ("normalize", {"mean": 0.4, "std": 0.3})],
        [("color_jitter", {"brightness": 0.2}), ("center_crop", {"size": 24})],
    ],
)
def test_transforms_see_upright_images(steps):
    """Boxes are those of upright images, and move with them."""
    contents = [photo(orientation) for orientation in ORIENTATIONS]
    found = rows_of([EncodedImage(content, "x") for content in contents], steps)
    expected = rows_of([turned_by_pillow(content) for content in contents], steps)
    assert all(map(np.array_equal, found, expected))


def photos() -> list[bytes]:
    return [
        photo(orientation, "JPEG" if orientation % 2 else "PNG", orientation)
        for orientation in ORIENTATIONS
    ]


def in_folder(folder: Path) -> str:
    for number, content in enumerate(photos()):
        path = folder / "photos" / str(number % 2) / f"{number}.{'png' if number % 2 else 'jpg'}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return "photos"


def in_list(folder: Path) -> str:
    in_folder(folder)
    names = sorted(path.relative_to(folder) for path in (folder / "photos").glob("*/*"))
    (folder / "list.csv").write_text("".join(f"{name},{name.parent.name}\n" for name in names))
    return "list.csv"


def in_records(folder: Path) -> str:
    with (folder / "a.rec").open("wb") as stream:
        writer = RecordWriter(stream)
        for number, content in enumerate(photos()):
            writer.write(number, pack_image_record(float(number % 2), number, content))
    return "a.rec"


def in_tar(folder: Path) -> str:
    with (folder / "a.tar").open("wb") as stream:
        writer = TarWriter(stream)
        for number, content in enumerate(photos()):
            writer.write(f"{number:03}", {"jpg": content, "cls": b"%d" % (number % 2)})
        writer.close()
    return "a.tar"


def in_parquet(folder: Path) -> str:
    pyarrow = pytest.importorskip("pyarrow", reason="pyarrow, an extra, is not installed")
    parquet = pytest.importorskip("pyarrow.parquet")
    labels = [number % 2 for number in range(8)]
    table = {"data": pyarrow.array(photos(), pyarrow.binary()), "label": labels}
    parquet.write_table(pyarrow.table(table), folder / "a.parquet")
    return "a.parquet"


FORMATS = {
    "image_folder": in_folder,
    "image_list": in_list,
    "recordio": in_records,
    "webdataset": in_tar,
    "parquet": in_parquet,
}


def opened(name: str, path: Path, **options: object) -> Dataset:
    request = request_dataset(name, {"path": str(path), **options}, "all")
    inputs = {"data": TensorSpec((3, HEIGHT, WIDTH)), "label": TensorSpec((), "int32")}
    # The inputs have the size of upright photos alone: sizes are compared when a batch is made.
    return open_datasets({"it": request}, inputs)["it"]


def sorted_pixels(images: list[np.ndarray]) -> list[bytes]:
    return sorted(repr(image.shape).encode() + image.tobytes() for image in images)


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_gives_upright_images_unless_a_key_says_no(tmp_path, name):
    path = tmp_path / FORMATS[name](tmp_path)
    for options, oracle in (({}, turned_by_pillow), ({"exif_orientation": False}, stored_pixels)):
        dataset = opened(name, path, **options)
        found = [record_of(dataset, index) for index in range(len(dataset))]
        assert sorted_pixels(found) == sorted_pixels([oracle(content) for content in photos()])


def test_surveys_and_statistics_measure_upright_images(tmp_path):
    for bright in ("a", "b"):
        for number in range(5):
            path = tmp_path / f"photos/{bright}/{number}.jpg"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(photo(6, "JPEG", number))
    survey = survey_images(str(tmp_path / "photos"))
    assert survey.sizes is not None
    assert tuple(survey.sizes.median) == (WIDTH, HEIGHT)
    config = CONFIG.format(transforms="{resize: {size: [8, 8]}}")
    (tmp_path / "photos.yaml").write_text(config)
    for key, sides in (("true", (WIDTH, HEIGHT)), ("false", (HEIGHT, WIDTH))):
        changes = (f"data.train.exif_orientation={key}",)
        path = tmp_path / "photos.yaml"
        sections = datasets.open_sections(path, changes)
        options = StatisticsOptions(config=str(path), workers=1)
        measured = datasets.statistics(sections, options, lambda records: None).to_json()
        sizes = measured["sections"]["train"]["fields"]["data"]["sizes"]
        assert tuple(sizes["median"]) == sides
        sample = datasets.sample(sections, PeekOptions(config=str(path), count=1, raw=True))
        assert sample.records[0].rows["data"].shape == (3, *sides)


@pytest.mark.parametrize("encoding", ["keep", "png", "raw"])
@pytest.mark.parametrize("form", ["rec", "tar"])
def test_packs_are_read_as_their_source(tmp_path, encoding, form):
    """Files that are kept have their EXIF data; other encodings store upright pixels without."""
    source = opened("image_folder", tmp_path / in_folder(tmp_path))
    target = PackTarget(tmp_path / f"p.{form}", PackSettings(form, encoding))
    pack(PackRequest(source, target, tmp_path, 2), lambda: False, lambda records: None)
    reader = "recordio" if form == "rec" else "webdataset"
    expected = [record_of(source, index) for index in range(8)]
    assert [image.shape for image in expected] != [(3, HEIGHT, WIDTH)] * 8
    for as_stored in (False, True):
        packed = opened(reader, tmp_path / f"p.{form}", exif_orientation=not as_stored)
        found = [record_of(packed, index) for index in range(8)]
        is_same = sorted_pixels(found) == sorted_pixels(expected)
        assert is_same == (not as_stored or encoding != "keep")


NETWORK = {
    "inputs": {"data": [1, 16, 16], "label": []},
    "layers": [{"FullyConnected": {"num_hidden": 2}}, {"SoftmaxOutput": {"label": "label"}}],
}


def half_bright(path: Path, bright: str, orientation: int, seed: int) -> None:
    """Write a photo whose upper or lower half is bright once it is upright."""
    upright = np.random.default_rng(seed).integers(0, 60, (16, 16)).astype(np.uint8)
    upright[slice(0, 8) if bright == "up" else slice(8, 16)] += 180
    # Turned by 180 degrees, it is stored as it must be for orientation 3.
    stored = upright[::-1, ::-1] if orientation == 3 else upright
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(stored).save(path, exif=exif_of(orientation))


@pytest.mark.full
def test_runs_treat_files_as_their_training_did(tmp_path):
    for bright in ("down", "up"):
        for number in range(8):
            half_bright(tmp_path / f"train/{bright}/{number}.png", bright, 1, number)
            half_bright(tmp_path / f"turned/{bright}/{number}.png", bright, 3, number + 8)
    rows = [
        f"turned/{bright}/{number}.png,{bright}" for bright in ("down", "up") for number in "01"
    ]
    (tmp_path / "list.csv").write_text("\n".join(rows) + "\n")
    for name, more, accuracy in (("u", {}, 1.0), ("s", {"exif_orientation": False}, 0.0)):
        train = {"dataset": "image_folder", "path": "train", **more}
        config = {
            "name": name,
            "network": NETWORK,
            "data": {
                "batch_size": 4,
                "train": {**train, "transforms": [{"normalize": {"mean": 0.5}}]},
                "eval": {"dataset": "image_folder", "path": "turned"},
            },
            "train": {"epochs": 6, "optimizer": {"sgd": {"lr": 0.1}}, "metrics": ["accuracy"]},
        }
        (tmp_path / f"{name}.yaml").write_text(json.dumps(config))
        result("train", f"{name}.yaml", cwd=tmp_path)
        run = f"runs/{name}"
        assert result("evaluate", run, cwd=tmp_path)["metrics"]["accuracy"] == accuracy
        # Another data set that reads the same files.
        listed = result("evaluate", run, "list.csv", cwd=tmp_path)
        assert listed["metrics"]["accuracy"] == accuracy
        inferred = result("infer", run, "turned/up/0.png", cwd=tmp_path)["results"]
        assert inferred[0]["top"][0]["name"] == ("up" if accuracy else "down")
        report = result("datasets", "check", f"{name}.yaml", cwd=tmp_path)
        assert report["turned"] == {"train": 0, "eval": 16 if accuracy else 0}
