"""Decoded images: the decoder against Pillow, decoding at a part of the size, and damaged files."""

from __future__ import annotations

import gc
import io
import threading
import time
import zlib

import numpy as np
import pytest
from PIL import Image
from transformed import make

from mxrun.base.errors import UserError
from mxrun.base.tensor import TensorSpec
from mxrun.io.dataset.fields import Field, LazyField
from mxrun.io.images.decode import decode_image, decode_pixels, read_image_header
from mxrun.io.images.encoded import EncodedImage
from mxrun.io.transforms.pipeline import pipeline
from mxrun.io.transforms.program import RowProgram

SPEC = TensorSpec((3, 32, 32))


def smooth(height: int, width: int) -> np.ndarray:
    y, x = np.mgrid[:height, :width] / 23
    planes = [np.sin(x + 0.7 * y), np.cos(1.3 * x - y), np.sin(0.4 * x * y / 20)]
    return np.rint(127 + 120 * np.stack(planes, axis=2)).astype(np.uint8)


def file_of(pixels: np.ndarray, kind: str = "JPEG", mode: str = "RGB", **options: object) -> bytes:
    stream = io.BytesIO()
    Image.fromarray(pixels).convert(mode).save(stream, kind, **options)
    return stream.getvalue()


def image_of(content: bytes) -> EncodedImage:
    return EncodedImage(content, "x")


def steps(*names: tuple[str, dict[str, object]]):
    return pipeline([(make(name, **parameters), None) for name, parameters in names])


def rows(transforms, records: list[object], spec: TensorSpec = SPEC) -> np.ndarray:
    column = LazyField(records.__getitem__, len(records), (3, None, None), "uint8", 1 / 255)
    program = RowProgram(transforms, "data", column, spec, 4)
    numbers, found = np.arange(len(records)), np.empty((len(records), *spec.shape), np.float32)
    assert program.write(program.read(numbers), numbers, numbers, found) == []
    return found


@pytest.mark.parametrize(
    ("mode", "options"),
    [
        ("RGB", {"quality": 90}),
        ("RGB", {"quality": 90, "subsampling": 0}),
        ("RGB", {"progressive": True}),
        ("RGB", {"restart_marker_blocks": 3}),
        ("L", {}),
        ("L", {"progressive": True}),
        ("CMYK", {}),
    ],
)
def test_jpeg_images_have_pillows_pixels(mode, options):
    content = file_of(smooth(37, 53), mode=mode, **options)
    picture = Image.open(io.BytesIO(content))
    colour = decode_image(image_of(content), 3)
    assert np.array_equal(colour.transpose(1, 2, 0), np.asarray(picture.convert("RGB")))
    grey = decode_image(image_of(memoryview(content)), 1)
    # The decoder takes the brightness that the file holds, Pillow computes it from colours.
    assert np.abs(grey[0] - np.asarray(picture.convert("L")).astype(int)).max() <= 2


@pytest.mark.parametrize("divisor", [2, 4, 8])
def test_jpeg_images_are_decoded_at_a_part_of_their_size(divisor):
    image = image_of(file_of(smooth(203, 310), quality=95))
    header = read_image_header(image)
    assert (header.height, header.width) == (203, 310)
    memory = np.zeros(203 * 310 * 3, np.uint8)
    pixels = decode_pixels(image, header, 3, divisor, memory)
    assert pixels.shape == (-(-203 // divisor), -(-310 // divisor), 3)
    assert np.shares_memory(pixels, memory)
    small = np.asarray(Image.fromarray(smooth(203, 310)).reduce(divisor)).astype(int)
    assert np.abs(pixels - small).mean() < 3


@pytest.mark.parametrize(
    "transforms",
    [
        [("resize", {"size": (32, 32)})],
        [("resize", {"size": 40}), ("center_crop", {"size": 32})],
        [("random_resized_crop", {"size": 32, "area": (0.4, 1)}), ("flip", {})],
        [("random_crop", {"size": 400}), ("flip", {}), ("resize", {"size": (32, 32)})],
    ],
)
def test_large_images_give_nearly_the_same_rows(transforms):
    """Decoding at a part of the size replaces a part of the filter."""
    content = file_of(smooth(500, 640), quality=95)
    array = decode_image(image_of(content), 3)
    found = rows(steps(*transforms), [image_of(content)] * 6)
    expected = rows(steps(*transforms), [array] * 6)
    assert np.abs(found - expected).mean() < 0.01
    assert np.abs(found - expected).max() < 0.1


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "BMP", "PPM", "WEBP", "TIFF"])
@pytest.mark.parametrize(
    "transforms",
    [
        [("random_crop", {"size": 32}), ("flip", {}), ("normalize", {"mean": 0.4, "std": 0.3})],
        [("random_resized_crop", {"size": 32, "area": (0.2, 0.5)}), ("flip", {})],
        [("pad_crop", {"pad": 4}), ("center_crop", {"size": 32}), ("cutout", {"size": 6})],
    ],
)
def test_files_and_arrays_of_the_same_pixels_give_the_same_bits(kind, transforms):
    contents = [file_of(smooth(40 + number, 50), kind) for number in range(5)]
    arrays = [decode_image(image_of(content), 3) for content in contents]
    found = rows(steps(*transforms), [image_of(content) for content in contents])
    assert np.array_equal(found, rows(steps(*transforms), arrays))
    mixed = [image_of(content) if at % 2 else arrays[at] for at, content in enumerate(contents)]
    assert np.array_equal(found, rows(steps(*transforms), mixed))


def test_a_stack_in_memory_gives_the_bits_of_its_records():
    images = np.stack([smooth(40, 50).transpose(2, 0, 1) + number for number in range(5)])
    transforms = steps(("random_resized_crop", {"size": 32}), ("flip", {}))
    program = RowProgram(transforms, "data", Field(images, 1 / 255), SPEC, 4)
    numbers, found = np.arange(5), np.empty((5, *SPEC.shape), np.float32)
    assert program.write(program.read(numbers), numbers, numbers, found) == []
    assert np.array_equal(found, rows(transforms, list(images)))


def test_threads_share_a_program():
    images = [image_of(file_of(smooth(60 + number, 70))) for number in range(8)]
    transforms = steps(("random_resized_crop", {"size": 32}), ("flip", {}))
    expected = rows(transforms, images)
    column = LazyField(images.__getitem__, 8, (3, None, None), "uint8", 1 / 255)
    program = RowProgram(transforms, "data", column, SPEC, 4)
    found = np.empty((20, 8, *SPEC.shape), np.float32)

    def work(first: int) -> None:
        for turn in range(first, 20, 4):
            numbers = np.arange(8)
            program.write(program.read(numbers), numbers, numbers, found[turn])

    threads = [threading.Thread(target=work, args=(first,)) for first in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (found == expected).all()


def test_one_damaged_image_leaves_the_others_complete():
    contents = [file_of(smooth(40, 50 + number)) for number in range(4)]
    records = [image_of(content) for content in contents]
    transforms = steps(("resize", {"size": (32, 32)}))
    expected = rows(transforms, records)
    broken = EncodedImage(contents[2][: len(contents[2]) // 2], "broken.jpg")
    small = smooth(40, 50).transpose(2, 0, 1)[:1]
    column = LazyField(
        [records[0], small, broken, records[3]].__getitem__, 4, (3, None, None), "uint8", 1 / 255
    )
    program = RowProgram(transforms, "data", column, SPEC, 4)
    numbers, found = np.arange(4), np.full((4, *SPEC.shape), 9, np.float32)
    errors = program.write(program.read(numbers), numbers, numbers, found)
    assert [row for row, _ in errors] == [1, 2]
    assert "broken.jpg: byte" in str(errors[1][1])
    assert "[1, 32, 32]" in str(errors[0][1])
    assert not found[[1, 2]].any()
    assert np.array_equal(found[[0, 3]], expected[[0, 3]])


def test_damage_without_a_lost_pixel_is_accepted():
    content = file_of(smooth(40, 50))
    scan = content.rindex(b"\xff\xda")
    end = len(content) - 2
    noted = content[:end] + b"\x00\x00\x00" + content[end:]
    assert scan < end
    assert np.array_equal(decode_image(image_of(noted), 3), decode_image(image_of(content), 3))
    for cut in (scan + 100, end - 10, end):
        with pytest.raises(UserError, match="cannot be decoded"):
            decode_image(image_of(content[:cut]), 3)


def segment(marker: int, body: bytes) -> bytes:
    return bytes([0xFF, marker]) + (len(body) + 2).to_bytes(2, "big") + body


def test_arithmetic_coding_is_refused_before_decoding():
    """Such a scan costs as much as any other, and needs no more than its header."""
    side, components = 8192, 3
    numbers = range(1, components + 1)
    frame = bytes([8, *side.to_bytes(2, "big"), *side.to_bytes(2, "big"), components])
    content = b"\xff\xd8" + segment(0xDB, bytes([0] + [1] * 64))
    content += segment(0xCA, frame + b"".join(bytes([each, 0x11, 0]) for each in numbers))
    scan = bytes([components]) + b"".join(bytes([each, 0]) for each in numbers) + bytes(3)
    content += segment(0xDA, scan) + b"\x55\xaa" * 40
    for low in range(12, -1, -1):
        for each in numbers:
            refined = bytes([1, each, 0, 1, 63, (0 if low == 12 else low + 1) << 4 | low])
            content += segment(0xDA, refined) + b"\x37\xab" * 200
    # A collection of all objects of a test process takes longer than that.
    gc.disable()
    started = time.thread_time()
    try:
        with pytest.raises(UserError, match="unsupported JPEG coding"):
            decode_image(image_of(content + b"\xff\xd9"), 3)
        assert time.thread_time() - started < 0.2
    finally:
        gc.enable()


def png(width: int, height: int, data: bytes, color: int = 2, interlaced: int = 0) -> bytes:
    def chunk(kind: bytes, body: bytes) -> bytes:
        check = zlib.crc32(kind + body).to_bytes(4, "big")
        return len(body).to_bytes(4, "big") + kind + body + check

    sides = width.to_bytes(4, "big") + height.to_bytes(4, "big")
    header = chunk(b"IHDR", sides + bytes([8, color, 0, 0, interlaced]))
    packed = zlib.compress(data)
    half = len(packed) // 2
    parts = chunk(b"IDAT", packed[:half]) + chunk(b"IDAT", packed[half:])
    return b"\x89PNG\r\n\x1a\n" + header + parts + chunk(b"IEND", b"")


@pytest.mark.parametrize(("color", "channels"), [(0, 1), (2, 3), (4, 2), (6, 4)])
def test_a_png_file_with_rows_missing_is_refused(color, channels):
    width, height = 300, 280
    whole = (b"\0" + bytes(range(100)) * (3 * channels)) * height
    assert decode_image(image_of(png(width, height, whole, color)), 3).shape == (3, height, width)
    for lacking in (1, width * channels + 1, len(whole) // 2):
        content = png(width, height, whole[:-lacking], color)
        with pytest.raises(UserError, match=f"ends {lacking} bytes of pixels too early"):
            decode_image(image_of(content), 3)


def test_interlaced_png_files_are_complete_or_refused():
    # Eight rows and columns: each pass has its share of the 64 pixels.
    sizes = [(1, 1), (1, 1), (1, 2), (2, 2), (2, 4), (4, 4), (4, 8)]
    whole = b"".join((b"\0" + bytes(columns)) * rows for rows, columns in sizes)
    assert not decode_image(image_of(png(8, 8, whole, 0, 1)), 1).any()
    with pytest.raises(UserError, match="ends 9 bytes of pixels too early"):
        decode_image(image_of(png(8, 8, whole[:-9], 0, 1)), 1)
