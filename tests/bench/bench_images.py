"""Rates of the decoders of JPEG files, and of chains of transforms on one thread and on two.

python tests/bench/bench_images.py decode|images|arrays

Times are those of the thread's processor, so that other work on the machine matters little; the
rates of two threads are by the clock, and need two idle cores.
"""

from __future__ import annotations

import io
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import simplejpeg
from PIL import Image, ImageDraw

from mxrun.base.tensor import TensorSpec
from mxrun.io.dataset.fields import Field, LazyField
from mxrun.io.images.encoded import EncodedImage
from mxrun.io.transforms.base import TRANSFORMS
from mxrun.io.transforms.pipeline import pipeline
from mxrun.io.transforms.program import RowProgram

IMAGES, REPEATS, CHUNK = 24, 8, 16
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def photo(seed: int, width: int = 500, height: int = 375) -> bytes:
    """Return a JPEG file with smooth noise, sensor noise and shapes, at quality 90 in 4:2:0."""
    draws = np.random.default_rng(seed)
    pixels = draws.normal(0, 4, (height, width, 1)) * np.ones(3)
    for side, strength in ((8, 0.47), (32, 0.2), (128, 0.1)):
        coarse = Image.fromarray(draws.integers(0, 256, (side, side, 3), np.uint8))
        pixels += strength * np.asarray(coarse.resize((width, height), Image.Resampling.BICUBIC))
    image = Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8))
    pen = ImageDraw.Draw(image)
    for left, top, size in draws.integers(10, 375, (12, 3)).tolist():
        box = (left, top, left + size // 3, top + size // 3)
        (pen.ellipse if size % 2 else pen.rectangle)(box, fill=(left % 256, top % 256, size % 256))
    stream = io.BytesIO()
    image.save(stream, "JPEG", quality=90)
    return stream.getvalue()


def seconds(work: Callable[[], object], clock: Callable[[], float] = time.thread_time) -> float:
    """Return the least time of `work`."""
    times = []
    for _ in range(REPEATS):
        start = clock()
        work()
        times.append(clock() - start)
    return min(times)


def together(work: Callable[[], object]) -> float:
    """Return the least time in which two threads do `work` once each."""

    def both() -> None:
        threads = [threading.Thread(target=work) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    return seconds(both, time.perf_counter)


def report(name: str, count: int, work: Callable[[], object]) -> None:
    one, clock, two = seconds(work), seconds(work, time.perf_counter), together(work)
    print(
        f"{name:34} {one / count * 1e6:8.1f} us a record, {count / one:9.0f} /s; two threads "
        f"{2 * clock / two:.2f} x one"
    )


def program(transforms: list[tuple[str, dict[str, Any]]], column: Any, shape: Any) -> RowProgram:
    steps = pipeline(
        [(TRANSFORMS.get(name).model_validate(given), None) for name, given in transforms]
    )
    return RowProgram(steps, "data", column, TensorSpec(shape), 1)


def chain(rows: RowProgram, shape: tuple[int, ...], count: int, chunk: int) -> Callable[[], None]:
    """Return a function that makes `count` rows, in chunks."""

    def run() -> None:
        target = np.empty((chunk, *shape), np.float32)
        for first in range(0, count, chunk):
            records = np.arange(first, first + chunk)
            errors = rows.write(rows.read(records), records, np.zeros_like(records), target)
            assert not errors

    return run


def decoders(files: list[bytes]) -> None:
    def each(decode: Callable[[bytes], object]) -> Callable[[], None]:
        return lambda: [decode(content) for content in files] and None

    def pillow(content: bytes, size: tuple[int, int] | None = None) -> Any:
        image = Image.open(io.BytesIO(content))
        if size:
            image.draft("RGB", size)
        return np.asarray(image)

    half = {"min_height": 188, "min_width": 250, "min_factor": 2}
    report("Pillow", IMAGES, each(pillow))
    report("Pillow, half size", IMAGES, each(partial(pillow, size=(250, 187))))
    report("simplejpeg", IMAGES, each(simplejpeg.decode_jpeg))
    report("simplejpeg, half size", IMAGES, each(partial(simplejpeg.decode_jpeg, **half)))


def images(files: list[bytes]) -> None:
    read = [EncodedImage(content, "x.jpg") for content in files]
    column = LazyField(lambda at: read[at % IMAGES], 1 << 20, (3, None, None), "uint8", 1 / 255)
    normalize = ("normalize", {"mean": MEAN, "std": STD})
    shape = (3, 224, 224)
    chains: dict[str, list[tuple[str, dict[str, Any]]]] = {
        "random_resized_crop, flip, normalize": [
            ("random_resized_crop", {"size": 224}),
            ("flip", {}),
            normalize,
        ],
        "resize, center_crop, normalize": [
            ("resize", {"size": 256}),
            ("center_crop", {"size": 224}),
            normalize,
        ],
    }
    for name, transforms in chains.items():
        report(name, 48, chain(program(transforms, column, shape), shape, 48, CHUNK))


def arrays() -> None:
    records = np.random.default_rng(0).integers(0, 256, (4096, 3, 32, 32), np.uint8)
    shape = (3, 32, 32)
    transforms: list[tuple[str, dict[str, Any]]] = [
        ("pad_crop", {"pad": 4}),
        ("flip", {}),
        ("normalize", {"mean": MEAN, "std": STD}),
    ]
    rows = program(transforms, Field(records, 1 / 255), shape)
    for chunk in (32, 64, 256):
        report(f"pad_crop, flip, normalize / {chunk}", 4096, chain(rows, shape, 4096, chunk))


if __name__ == "__main__":
    part = sys.argv[1]
    if part == "arrays":
        arrays()
    else:
        (decoders if part == "decode" else images)([photo(seed) for seed in range(IMAGES)])
