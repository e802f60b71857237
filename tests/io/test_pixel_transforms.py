"""Transforms of pixels: their loops against NumPy, formulas and Pillow."""

from __future__ import annotations

import math
import tracemalloc

import numpy as np
import pytest
from PIL import Image
from transformed import image, make, rows, values_of

from mxrun.base.errors import SourceLocation, UserError
from mxrun.base.tensor import TensorSpec
from mxrun.io.dataset.fields import LazyField
from mxrun.io.transforms.draws import Draws
from mxrun.io.transforms.pipeline import pipeline
from mxrun.io.transforms.program import RowProgram
from mxrun.io.transforms.resample import WindowTable, WindowWriter
from mxrun.io.transforms.windows import ImageWindows

CHAINS = {
    "crops": ["random_resized_crop", "flip", "normalize"],
    "border": ["pad_crop", "flip", "cutout", "normalize"],
    "border, then resized": ["pad_crop", "random_resized_crop"],
    "resized, then a border": ["random_resized_crop", "pad_crop", "flip"],
    "flipped first": ["flip", "random_crop", "resize"],
    "colours": ["color_jitter", "grayscale", "lighting"],
    "warped": ["rotation", "affine", "random_crop"],
    "colours, then crops": ["color_jitter", "random_resized_crop", "flip", "cutout"],
}
PARAMETERS = {
    "random_crop": {"size": 9},
    "random_resized_crop": {"size": (8, 10)},
    "flip": {},
    "pad_crop": {"pad": 4},
    "cutout": {"size": 5},
    "rotation": {"degrees": 30},
    "affine": {"degrees": 9, "translate": 0.2, "scale": (0.8, 1.2), "shear": 8},
    "lighting": {"std": 0.2},
    "grayscale": {"probability": 0.5},
    "color_jitter": {"brightness": 0.4, "contrast": 0.4, "saturation": 0.4, "hue": 0.3},
    "normalize": {"mean": (0.1, 0.2, 0.3), "std": (0.5, 0.6, 0.7)},
    "resize": {"size": (11, 7)},
}


def chain(names: list[str]):
    return pipeline([(make(name, **PARAMETERS[name]), None) for name in names])


@pytest.mark.parametrize("channels", [1, 2, 3])
@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_windows_are_resampled_as_by_pillow(dtype, channels):
    """Crops between pixels, resized, that reach beyond the borders and are mirrored."""
    random, count = np.random.default_rng(channels), 40
    record = image(channels, 24, 30).astype(dtype)
    windows = ImageWindows.whole(np.full(count, 24), np.full(count, 30))
    for cropped, resized in (((9, 20), (12, 40)), ((4, 9), (2, 20))):
        windows.crop(*random.integers(0, 4, (2, count)), *random.integers(*cropped, (2, count)))
        windows.resize(*random.integers(*resized, (2, count)))
    windows.crop(*random.integers(-3, 4, (2, count)), 9, 7)
    windows.flip(random.random(count) < 0.5)
    target = np.full((count, channels, 9, 7), np.nan, np.float32)
    steps, first = (24 * 30, 30, 1), np.zeros(count, np.int64)
    table = WindowTable.of(windows, first, steps, np.arange(count) * channels * 9 * 7)
    means, deviations = random.random((2, channels), np.float32) + np.float32(0.5)
    writer = WindowWriter(record.dtype, channels, 1 / 255, (means, deviations))
    writer.open(table, target)
    writer.write(record, 0, count)
    for number, made in enumerate(target):
        window = windows.part(slice(number, number + 1))
        y, x = window.y, window.x
        read = record[:, y.low[0] : y.high[0], x.low[0] : x.high[0]].astype(np.float32)
        left, top = (x.start - x.low)[0], (y.start - y.low)[0]
        right, bottom = left + x.length[0], top + y.length[0]
        # Not beyond the borders by a rounding.
        box = left, top, min(right, read.shape[2]), min(bottom, read.shape[1])
        for channel, values in enumerate(made):
            resized = Image.fromarray(read[channel]).resize(
                (int(x.size[0]), int(y.size[0])), Image.Resampling.BILINEAR, box
            )
            bordered = np.pad(np.asarray(resized), 12)
            pixels = bordered[12 + y.offset[0] :, 12 + x.offset[0] :][:9, :7]
            pixels = pixels[:, ::-1] if window.mirrored[0] else pixels
            expected = (pixels / 255 - means[channel]) / deviations[channel]
            assert np.abs(values - expected).max() < 1e-5


@pytest.mark.parametrize("names", CHAINS.values(), ids=CHAINS)
def test_a_row_does_not_depend_on_its_chunk(names):
    record, numbers = image(), [3, 10**9, 0, 77, 12]
    together = rows(chain(names), record, numbers)
    alone = np.concatenate([rows(chain(names), record, [number]) for number in numbers])
    assert np.array_equal(together, alone)


def test_hue_is_rotated_as_in_mxnet():
    """The matrices of MXNet's HueJitterAug."""
    transform = make("color_jitter", hue=0.25)
    draws = Draws(3, epoch=1, record=5).at(0)((4,))
    angle = math.pi * 0.25 * (2 * draws[3] - 1)
    to = np.array([[0.299, 0.587, 0.114], [0.596, -0.274, -0.321], [0.211, -0.523, 0.311]])
    back = np.array([[1.0, 0.956, 0.621], [1.0, -0.272, -0.647], [1.0, -1.107, 1.705]])
    cos, sin = math.cos(angle), math.sin(angle)
    turn = back @ np.array([[1, 0, 0], [0, cos, -sin], [0, sin, cos]]) @ to
    record = values_of(image())
    expected = np.clip(np.einsum("ij,jhw->ihw", turn, record), 0, 1)
    (made,) = rows(pipeline([(transform, None)]), record, [5])
    assert np.abs(made - expected).max() < 1e-5


def test_lighting_adds_one_colour_of_the_right_spread():
    record = np.full((3, 2, 2), 0.5, np.float32)
    made = rows(pipeline([(make("lighting", std=0.5), None)]), record, [*range(4000)]) - 0.5
    assert (np.ptp(made.reshape(4000, 3, 4), axis=2) < 1e-6).all()
    vectors = np.array(
        [[-0.5675, 0.7192, 0.4009], [-0.5808, -0.0045, -0.8140], [-0.5836, -0.6948, 0.4203]]
    )
    eigenvalues = np.array([55.46, 4.794, 1.148]) / 255
    expected = vectors @ np.diag((0.5 * eigenvalues) ** 2) @ vectors.T
    assert np.abs(np.cov(made[:, :, 0, 0].T) - expected).max() < 0.06 * expected.max()


def test_grayscale_changes_as_many_images_as_asked():
    record = values_of(image())
    made = rows(pipeline([(make("grayscale", probability=0.3), None)]), record, [*range(500)])
    grey = np.tensordot([0.299, 0.587, 0.114], record, 1)
    is_grey = np.abs(made - grey).reshape(500, -1).max(1) < 1e-6
    assert 110 < is_grey.sum() < 190
    assert (made[~is_grey] == record).all()
    always = make("grayscale", probability=1)
    assert always.evaluation() == (always,)


def test_rotation_is_pillows():
    record = values_of(image(1, 24, 24))
    transform = make("rotation", degrees=40)
    for number in range(5):
        angle = 40 * (2 * Draws(3, 1, number).at(0)((1,))[0] - 1)
        (made,) = rows(pipeline([(transform, None)]), record, [number])
        picture = Image.fromarray(record[0]).rotate(-angle, Image.Resampling.BILINEAR)
        # Pillow leaves out what lies partly outside.
        inner = (slice(None), slice(7, 17), slice(7, 17))
        assert np.abs(made[inner] - np.asarray(picture)[np.newaxis][inner]).max() < 1e-4


def test_an_affine_map_moves_a_ramp_by_its_matrix():
    """On an image whose values are coordinates, interpolation gives the source's place."""
    side = 64
    record = np.stack(np.mgrid[:side, :side].astype(np.float32))
    given = {"degrees": 20, "translate": 0.1, "scale": (0.9, 1.2), "shear": 10}
    made = rows(pipeline([(make("affine", **given), None)]), record, [*range(20)])
    for number, (down, across) in enumerate(made):
        drawn = Draws(3, 1, number).at(0)((5,))
        angle, shear = np.radians(20) * (2 * drawn[0] - 1), np.radians(10) * (2 * drawn[1] - 1)
        scale = 0.9 + 0.3 * drawn[2]
        shift = 0.1 * side * (2 * drawn[3:] - 1)
        turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
        forward = scale * turn @ np.array([[1, np.tan(shear)], [0, 1]])
        for place in ((32, 32), (25, 40)):
            source = np.linalg.solve(forward, np.array(place) - (side - 1) / 2 - shift)
            found = np.array([across[place[1], place[0]], down[place[1], place[0]]])
            assert np.abs(found - source - (side - 1) / 2).max() < 1e-3


@pytest.mark.parametrize(
    ("name", "parameters", "wanted"),
    [
        ("affine", {}, "degrees, translate or shear above 0"),
        ("grayscale", {"probability": 0}, "a probability above 0"),
    ],
)
def test_what_changes_nothing_is_refused(name, parameters, wanted):
    place = SourceLocation("c.yaml", 4, 2)
    with pytest.raises(UserError, match=f"{name} changes nothing") as caught:
        pipeline([(make(name, **parameters), place)])
    assert wanted in caught.value.diagnostics[0].expected


@pytest.mark.parametrize("after", ["rotation", "center_crop", None])
def test_a_strip_that_becomes_too_large_fails_alone_and_takes_no_memory(after):
    """Resized to 11 rows, a strip of 8 million pixels would take a gigabyte."""
    names = {"rotation": {"degrees": 30}, "center_crop": {"size": 11}}
    steps = [(make("resize", size=11), None), (make("center_crop", size=(11, 11)), None)]
    steps = steps[:1] if after is None else [steps[0], (make(after, **names[after]), None)]
    if after == "rotation":
        steps.append((make("center_crop", size=11), None))
    strip, whole = np.zeros((1, 1, 8_000_000), np.uint8), image(1, 22, 22)
    records = [whole, strip, whole]
    column = LazyField(records.__getitem__, 3, (1, None, None), "uint8", 1 / 255)
    program = RowProgram(pipeline(steps), "data", column, TensorSpec((1, 11, 11)), 0)
    found = np.full((3, 1, 11, 11), np.nan, np.float32)
    numbers = np.arange(3)
    tracemalloc.start()
    try:
        failed = program.write(program.read(numbers), numbers, numbers * 0, found)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert [row for row, _ in failed] == ([] if after == "center_crop" else [1])
    assert np.isfinite(found[[0, 2]]).all()
    assert peak < 400 << 20
