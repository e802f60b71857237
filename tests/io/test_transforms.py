"""Transforms, row D5: the effect of each, random draws by record, and evaluation."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from PIL import Image
from refusals import only_problem
from transformed import image, make, rows, values_of

from mxrun.base.errors import SourceLocation, UserError
from mxrun.base.tensor import TensorSpec
from mxrun.io.dataset.fields import Field, LazyField
from mxrun.io.transforms.base import TRANSFORMS, Transform
from mxrun.io.transforms.draws import Draws
from mxrun.io.transforms.pipeline import pipeline
from mxrun.io.transforms.program import RowProgram

BILINEAR = Image.Resampling.BILINEAR
RANDOM = {
    "random_crop": {"size": 9},
    "random_resized_crop": {"size": (8, 10)},
    "flip": {},
    "pad_crop": {"pad": 4},
    "color_jitter": {"brightness": 0.4, "contrast": 0.4, "saturation": 0.4},
    "cutout": {"size": 5},
    "rotation": {"degrees": 30},
    "affine": {"degrees": 9, "translate": 0.2, "scale": (0.8, 1.2), "shear": 8},
    "lighting": {"std": 0.2},
    "grayscale": {"probability": 0.5},
}
FIXED = {
    "resize": {"size": 7},
    "center_crop": {"size": (6, 5)},
    "normalize": {"mean": (0.1, 0.2, 0.3), "std": 0.5},
}


def apply(transform: Transform, record: np.ndarray, number: int = 0, epoch: int = 1) -> np.ndarray:
    return rows(pipeline([(transform, None)]), record, [number], epoch)[0]


def bytes_of(row: np.ndarray) -> np.ndarray:
    return np.rint(row * 255).astype(np.uint8)


def test_D5_every_transform_is_listed_and_described():
    assert set(TRANSFORMS) == {*RANDOM, *FIXED, "one_hot", "mixup"}
    for name in TRANSFORMS:
        assert TRANSFORMS.get(name).__doc__
        for field in TRANSFORMS.get(name).model_fields.values():
            assert field.description


@pytest.mark.parametrize("name", RANDOM)
def test_D5_draws_belong_to_seed_epoch_record_and_position(name):
    transform, record = make(name, **RANDOM[name]), image()
    untouched = record.copy()

    def row(seed=3, epoch=1, number=0, before=0):
        first = [(make("resize", size=(12, 16)), None)] * before
        return rows(pipeline([*first, (transform, None)]), record, [number], epoch, seed).tobytes()

    assert row() == row()
    for other in ("seed", "epoch", "number"):
        assert len({row(**{other: value}) for value in range(12)}) > 1, other
    assert len({row(before=count) for count in range(12)}) > 1
    assert np.array_equal(record, untouched)


@pytest.mark.parametrize("name", [*RANDOM, *FIXED])
@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_D5_the_shape_is_known_before_and_bytes_equal_their_values(name, dtype):
    transform = make(name, **(RANDOM | FIXED)[name])
    record = image() if dtype == np.uint8 else values_of(image())
    made = rows(pipeline([(transform, None)]), record, [*range(5)])
    assert made.shape[1:] == transform.output((3, 12, 16))
    assert np.isfinite(made).all()
    assert transform.output((3, None, None))[0] == 3


@pytest.mark.parametrize("name", RANDOM)
def test_D5_nothing_random_is_left_for_evaluation(name):
    transform = make(name, **RANDOM[name])
    evaluation = pipeline([(transform, None)]).evaluation()
    assert evaluation.evaluation() == evaluation
    seen = {
        row.tobytes()
        for seed in range(3)
        for epoch in range(3)
        for row in rows(evaluation, image(), [0, 1, 2], epoch, seed)
    }
    assert len(seen) == 1
    assert evaluation.output("data", (3, 12, 16), "uint8")[0] == transform.output((3, 12, 16))


def test_D5_evaluation_takes_the_middle():
    record = image()
    row = {name: make(name, **parameters).evaluation() for name, parameters in RANDOM.items()}
    assert row["flip"] == row["pad_crop"] == row["color_jitter"] == row["cutout"] == ()
    assert row["random_crop"] == (make("center_crop", size=9),)
    middle = (make("resize", size=11), make("center_crop", size=(8, 10)))
    assert row["random_resized_crop"] == middle
    assert np.array_equal(bytes_of(apply(row["random_crop"][0], record)), record[:, 1:10, 3:12])
    for name, parameters in FIXED.items():
        assert make(name, **parameters).evaluation() == (make(name, **parameters),)


def test_crops_are_parts_of_the_image_and_reach_every_position():
    record = image()
    parts = {record[:, y : y + 9, x : x + 9].tobytes(): (y, x) for y in range(4) for x in range(8)}
    transform = make("random_crop", size=9)
    made = rows(pipeline([(transform, None)]), record, [*range(600)])
    seen = [parts[bytes_of(row).tobytes()] for row in made]
    assert set(seen) == set(parts.values())
    counts = np.bincount([y * 8 + x for y, x in seen])
    # 32 positions, 18.75 each on average; a deviation by 16 has a chance below 1e-3 in all.
    assert abs(counts - 600 / 32).max() < 16


def test_pad_crop_is_a_part_of_the_bordered_image():
    record, pad = image(), 3
    bordered = np.pad(record, ((0, 0), (pad, pad), (pad, pad)))
    parts = {
        np.ascontiguousarray(bordered[:, y : y + 12, x : x + 16]).tobytes()
        for y in range(2 * pad + 1)
        for x in range(2 * pad + 1)
    }
    transform = make("pad_crop", pad=pad)
    made = rows(pipeline([(transform, None)]), record, [*range(500)])
    assert {bytes_of(row).tobytes() for row in made} == parts
    # With a border wider than the image, a crop may contain none of it.
    wide = rows(pipeline([(make("pad_crop", pad=40), None)]), record, [*range(40)])
    assert {bool(row.any()) for row in wide} == {True, False}


def test_flips_happen_as_often_as_asked():
    record = image()
    flipped = np.ascontiguousarray(record[:, :, ::-1])
    for probability, least, most in ((0.25, 60, 140), (1.0, 400, 400)):
        made = bytes_of(
            rows(pipeline([(make("flip", probability=probability), None)]), record, [*range(400)])
        )
        count = sum(np.array_equal(row, flipped) for row in made)
        assert least <= count <= most
        assert all(np.array_equal(row, flipped) or np.array_equal(row, record) for row in made)


def test_cutout_sets_one_square_to_zero():
    record = image()
    sizes = set()
    for row in rows(pipeline([(make("cutout", size=5), None)]), record, [*range(300)]):
        zeros = row == 0
        assert (zeros == zeros[:1]).all()
        down, across = zeros[0].any(1), zeros[0].any(0)
        assert np.array_equal(zeros[0], np.outer(down, across))
        sizes.add((int(down.sum()), int(across.sum())))
        assert np.array_equal(row[~zeros], values_of(record)[~zeros])
    assert sizes == {(a, b) for a in (3, 4, 5) for b in (3, 4, 5)}


@pytest.mark.parametrize("size", [5, 20, (9, 30), (12, 16)])
def test_resize_is_pillows_bilinear_filter(size):
    record = image()
    height, width = size if isinstance(size, tuple) else (size, size * 16 // 12)
    made = apply(make("resize", size=size), record)
    assert np.abs(apply(make("resize", size=size), values_of(record)) - made).max() < 1e-6
    for channel, values in zip(values_of(record), made, strict=True):
        # In float32 Pillow does not round to bytes either.
        picture = Image.fromarray(channel).resize((width, height), BILINEAR)
        assert np.abs(values - np.asarray(picture)).max() < 1e-6


def test_resize_keeps_the_ratio_whichever_side_is_shorter():
    transform = make("resize", size=6)
    assert transform.output((3, 12, 17)) == (3, 6, 8)
    assert transform.output((3, 17, 12)) == (3, 8, 6)
    assert transform.output((3, 1, 1000)) == (3, 6, 6000)
    assert transform.output((3, None, None)) == (3, None, None)


def test_random_resized_crops_have_the_areas_and_ratios_asked_for():
    """The values of the image are its coordinates, so the corners of a crop give its position."""
    side = 240
    record = np.stack(np.mgrid[:side, :side].astype(np.float32))
    transform = make("random_resized_crop", size=60, area=(0.2, 0.5), ratio=(0.5, 2.0))
    areas, ratios = [], []
    for made in rows(pipeline([(transform, None)]), record, [*range(300)]):
        # Rows of the result are `scale` apart; bilinear filters preserve a ramp away from the
        # edges.
        height = float(made[0, 40, 30] - made[0, 20, 30]) * 3
        width = float(made[1, 30, 40] - made[1, 30, 20]) * 3
        areas.append(height * width / side**2)
        ratios.append(width / height)
    assert 0.19 < min(areas) < 0.23
    assert 0.47 < max(areas) < 0.51
    assert 0.48 < min(ratios) < 0.6
    assert 1.7 < max(ratios) < 2.05
    assert abs(np.mean(np.log(ratios))) < 0.1


def test_a_random_resized_crop_that_never_fits_takes_the_middle():
    record = image(3, 4, 40)
    transform = make("random_resized_crop", size=4, area=(1.0, 1.0), ratio=(1.0, 1.0))
    assert np.array_equal(apply(transform, record), values_of(record[:, :, 18:22]))
    tall = image(3, 40, 4)
    assert np.array_equal(apply(transform, tall), values_of(tall[:, 18:22]))


def test_normalize_is_per_channel_on_values():
    made = apply(make("normalize", mean=(0.1, 0.2, 0.3), std=(1.0, 2.0, 4.0)), image())
    mean, std = np.array([0.1, 0.2, 0.3]), np.array([1.0, 2.0, 4.0])
    expected = (image() / 255 - mean[:, None, None]) / std[:, None, None]
    assert np.abs(made - expected).max() < 1e-6
    vector = np.arange(3, dtype=np.float32)
    assert apply(make("normalize", mean=(0.0, 1.0, 2.0)), vector).tolist() == [0, 0, 0]
    assert apply(make("normalize", mean=1.0, std=2.0), vector).tolist() == [-0.5, 0, 0.5]


def test_color_jitter_is_its_formula():
    record = values_of(image())
    draws = Draws(3, epoch=1, record=7).at(0)((3,))
    brightness, contrast, saturation = 1 + np.array([0.5, 0.3, 0.8]) * (2 * draws - 1)

    def grey(colour):
        return 0.299 * colour[0] + 0.587 * colour[1] + 0.114 * colour[2]

    expected = np.clip(record * brightness, 0, 1)
    expected = np.clip((expected - (mean := grey(expected).mean())) * contrast + mean, 0, 1)
    expected = np.clip((expected - grey(expected)) * saturation + grey(expected), 0, 1)
    transform = make("color_jitter", brightness=0.5, contrast=0.3, saturation=0.8)
    made = apply(transform, image(), number=7)
    assert np.abs(made - expected).max() < 1e-5
    assert apply(make("color_jitter", brightness=1.0, contrast=1.0), image(1)).shape == (1, 12, 16)


def test_one_hot():
    transform = make("one_hot", classes=4)
    assert apply(transform, np.array(2, np.int32)).tolist() == [0, 0, 1, 0]
    steps = pipeline([(transform, SourceLocation("c.yaml", 9, 5))])
    wanted = {"label": TensorSpec((4,)), "data": TensorSpec((2,))}
    assert steps.output("label", (), "int32") == ((4,), "float32")
    assert steps.source(wanted) == {"label": TensorSpec((), "int32"), "data": TensorSpec((2,))}
    for label in (-1, 4):
        with pytest.raises(UserError, match="not a class number") as caught:
            rows(steps, np.array(label, np.int32), [0])
        assert caught.value.diagnostics[0].place == SourceLocation("c.yaml", 9, 5)


@pytest.mark.parametrize(
    ("name", "parameters", "shape", "words"),
    [
        ("center_crop", {"size": 13}, (3, 12, 16), ("smaller", "[13, 13]", "[12, 16]")),
        ("random_crop", {"size": (4, 17)}, (3, None, 16), ("smaller", "resize")),
        ("flip", {}, (7,), ("not an image", "[7]")),
        ("resize", {"size": 4}, (8, 8), ("not an image", "[8, 8]")),
        ("normalize", {"mean": (0.1, 0.2)}, (3, 4, 4), ("mean is for 2", "has 3", "[3, 4, 4]")),
        ("normalize", {"std": (0.1, 0.2)}, (), ("std is for 2 channels", "none")),
        ("color_jitter", {"saturation": 0.1}, (1, 4, 4), ("[3, height, width]",)),
        ("color_jitter", {"contrast": 1}, (2, 4, 4), ("or [1, height, width]",)),
        ("one_hot", {"classes": 3}, (2,), ("a class number is a scalar", "[2]")),
    ],
)
def test_D5_a_shape_that_a_transform_cannot_take_is_told_with_its_place(
    name, parameters, shape, words
):
    transform, place = make(name, **parameters), SourceLocation("c.yaml", 4, 2)
    found = only_problem(pipeline([(transform, place)]).output, transform.field, shape, "float32")
    assert found.place == place
    assert all(word in str(found) for word in (name, *words))
    # A record may differ from the declared spec of its data set or of the network's input.
    steps, record = pipeline([(transform, place)]), np.zeros([size or 5 for size in shape], "f4")
    column = LazyField(lambda index: record, 1, record.shape, "float32")
    program = RowProgram(steps, transform.field, column, TensorSpec((3, 4, 4)), 0)
    zero, target = np.zeros(1, np.int64), np.ones((1, 3, 4, 4), np.float32)
    ((row, error),) = program.write(program.read(zero), zero, zero, target)
    assert row == 0
    assert not target.any()
    assert error.diagnostics[0].place == place
    assert all(word in str(error) for word in (name, words[0]))


@pytest.mark.parametrize(
    ("name", "parameters", "wanted"),
    [
        ("normalize", {}, "a mean other than 0 or a std other than 1"),
        ("normalize", {"mean": (0, 0, 0), "std": (1, 1, 1)}, "a mean other than 0"),
        ("flip", {"probability": 0}, "a probability above 0"),
        ("color_jitter", {}, "brightness, contrast, saturation or hue above 0"),
    ],
)
def test_a_transform_that_changes_nothing_is_refused_with_its_place(name, parameters, wanted):
    place = SourceLocation("c.yaml", 4, 2)
    with pytest.raises(UserError, match=f"{name} changes nothing") as caught:
        pipeline([(make("resize", size=4), None), (make(name, **parameters), place)])
    (found,) = caught.value.diagnostics
    assert found.place == place
    assert wanted in found.expected


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("normalize", {"mean": (0, 0.1)}),
        ("normalize", {"std": (1, 2)}),
        ("color_jitter", {"saturation": 0.1}),
        ("resize", {"size": 12}),
    ],
)
def test_a_transform_that_may_change_something_is_taken(name, parameters):
    assert pipeline([(make(name, **parameters), None)])


def test_color_jitter_behind_normalize_is_refused():
    place = SourceLocation("c.yaml", 4, 2)
    moved, jitter = make("normalize", mean=0.5), make("color_jitter", contrast=0.1)
    with pytest.raises(UserError, match="not normalized"):
        pipeline([(moved, None), (jitter, place)])


def test_small_images_of_one_shape_are_moved_together_to_the_same_rows():
    images = np.random.default_rng(0).integers(0, 256, (9, 3, 12, 16), np.uint8)
    listed = [("pad_crop", {"pad": 2}), ("flip", {}), ("normalize", {"mean": 0.5, "std": 0.25})]
    steps = pipeline([(make(name, **parameters), None) for name, parameters in listed])
    numbers, epochs = np.array([4, 0, 8, 3, 3]), np.array([2, 2, 1, 2, 1])

    def rows(column):
        program = RowProgram(steps, "data", column, TensorSpec((3, 12, 16)), 7)
        target = np.ones((5, 3, 12, 16), np.float32)
        assert not program.write(program.read(numbers), numbers, epochs, target)
        return target.tobytes()

    known = LazyField(lambda index: images[index], 9, (3, 12, 16), "uint8", 1 / 255)
    alone = replace(known, shape=(3, None, None))
    assert rows(known) == rows(alone) == rows(Field(images, 1 / 255))
