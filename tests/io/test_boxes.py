"""Boxes move with their images: against painted rectangles and MXNet's formulas."""

from __future__ import annotations

import numpy as np
import pytest
from transformed import make

from mxrun.base.errors import SourceLocation
from mxrun.base.tensor import TensorSpec
from mxrun.io.dataset.dataset import Dataset
from mxrun.io.dataset.fields import Field, LazyField
from mxrun.io.loading.open import open_iterator
from mxrun.io.loading.staging import Staging, staging_specs
from mxrun.io.transforms.boxes import MIN_COVERAGE, move_boxes
from mxrun.io.transforms.pipeline import pipeline
from mxrun.io.transforms.program import RowProgram

HEIGHT, WIDTH, OBJECTS = 48, 64, 3
PLACE = SourceLocation("c.yaml", 4, 2)
CHAINS = {
    "nothing": ([], (HEIGHT, WIDTH)),
    "resize": ([("resize", {"size": (96, 40)})], (96, 40)),
    "flip": ([("flip", {"probability": 1})], (HEIGHT, WIDTH)),
    "crop": ([("random_crop", {"size": 40})], (40, 40)),
    "border": ([("pad_crop", {"pad": 9})], (HEIGHT, WIDTH)),
    "flipped crop": ([("flip", {}), ("random_crop", {"size": 40}), ("flip", {})], (40, 40)),
    "resized crop": ([("random_resized_crop", {"size": 80, "area": (0.4, 1)})], (80, 80)),
    "two stages": (
        [
            ("pad_crop", {"pad": 6}),
            ("flip", {}),
            ("random_resized_crop", {"size": 90, "area": (0.4, 1)}),
        ],
        (90, 90),
    ),
    "with colours": (
        [("color_jitter", {"brightness": 0.1}), ("random_crop", {"size": 40}), ("flip", {})],
        (40, 40),
    ),
}


def steps(given: list[tuple[str, dict[str, object]]]):
    return pipeline([(make(name, **parameters), PLACE) for name, parameters in given])


def painted(number: int) -> tuple[np.ndarray, np.ndarray]:
    """Return an image with a rectangle, and its label with further numbers and padding."""
    draws = np.random.default_rng(number)
    top, left = draws.integers(0, 24), draws.integers(0, 36)
    bottom, right = top + draws.integers(8, 24), left + draws.integers(8, 28)
    image = np.zeros((3, HEIGHT, WIDTH), np.uint8)
    image[:, top:bottom, left:right] = 200
    label = np.full((OBJECTS, 6), -1, np.float32)
    label[0] = 2, left / WIDTH, top / HEIGHT, right / WIDTH, bottom / HEIGHT, 0.5
    return image, label


@pytest.mark.parametrize("name", CHAINS)
def test_a_box_stays_around_its_object(name):
    given, size = CHAINS[name]
    count = 60
    images, labels = zip(*map(painted, range(count)), strict=True)
    data = RowProgram(
        steps(given), "data", Field(np.stack(images), 1 / 255), TensorSpec((3, *size)), 5
    )
    boxes = Field(np.stack(labels), boxes=True)
    label = RowProgram(steps(given), "label", boxes, TensorSpec((OBJECTS, 6)), 5)
    records, rows = np.arange(count), np.empty((count, 3, *size), np.float32)
    moved = np.empty((count, OBJECTS, 6), np.float32)
    done = data.write(data.read(records), records, records, rows)
    assert label.write(label.read(records), records, records, moved, done.moves) == []
    kept = 0
    for row, found in zip(rows, moved, strict=True):
        assert (found[1:] == -1).all()
        visible = row[0] > row.max() / 2
        if found[0, 0] == -1:
            assert (found == -1).all()
            continue
        kept += 1
        assert (found[0, 0], found[0, 5]) == (2, 0.5)
        ys, xs = np.flatnonzero(visible.any(1)), np.flatnonzero(visible.any(0))
        corners = found[0, 1:5] * [size[1], size[0], size[1], size[0]]
        expected = np.array([xs[0], ys[0], xs[-1] + 1, ys[-1] + 1])
        assert np.abs(corners - expected).max() <= 1.01
    assert kept > count / 2


def test_boxes_are_clipped_and_left_out_as_by_mxnet():
    """Coverage and clipping of DetRandomCropAug._update_labels."""
    draws = np.random.default_rng(0)
    corners = np.sort(draws.random((500, OBJECTS, 2, 2)), axis=2).reshape(500, OBJECTS, 4)
    label = np.concatenate([draws.integers(0, 9, (500, OBJECTS, 1)), corners], axis=2)
    label = label.astype(np.float32)
    image = np.zeros((500, 1, 20, 30), np.uint8)
    crop, spec = steps([("random_crop", {"size": (12, 15)})]), TensorSpec((1, 12, 15))
    data = RowProgram(crop, "data", Field(image, 1.0), spec, 1)
    records, rows = np.arange(500), np.empty((500, 1, 12, 15), np.float32)
    done = data.write(data.read(records), records, records, rows)
    moved = np.empty_like(label)
    move_boxes(label, done.moves, moved)
    (move,) = done.moves
    dropped = 0
    for number in records:
        x, y = move.windows.x.offset[number] / 30, move.windows.y.offset[number] / 20
        out = label[number].astype(float)
        out[:, (1, 3)] = (out[:, (1, 3)] - x) / (15 / 30)
        out[:, (2, 4)] = (out[:, (2, 4)] - y) / (12 / 20)
        out[:, 1:5] = np.clip(out[:, 1:5], 0, 1)
        before = (label[number][:, 3] - label[number][:, 1]) * (
            label[number][:, 4] - label[number][:, 2]
        )
        after = (out[:, 3] - out[:, 1]) * (out[:, 4] - out[:, 2]) * (15 / 30) * (12 / 20)
        kept = out[(after / before > MIN_COVERAGE) & (after > 0)]
        dropped += OBJECTS - len(kept)
        assert np.allclose(moved[number, : len(kept)], kept, atol=1e-5)
        assert (moved[number, len(kept) :] == -1).all()
    assert 100 < dropped < 1400


def test_the_iterator_moves_boxes_with_images():
    images, labels = zip(*map(painted, range(6)), strict=True)
    column = LazyField(lambda at: images[at], 6, (3, None, None), "uint8", 1 / 255)
    inputs = {"label": TensorSpec((OBJECTS, 6)), "data": TensorSpec((3, HEIGHT, WIDTH))}
    fields = {"label": Field(np.stack(labels), boxes=True)}
    flipped = steps([("flip", {"probability": 1})])
    dataset = Dataset("boxes", fields, lazy={"data": column}, inputs=inputs, pipeline=flipped)
    assert dataset.check(inputs, {}, flipped) == ()
    specs = staging_specs(inputs, 3)
    staged = [{name: np.empty(spec.shape, spec.dtype) for name, spec in specs.items()}]
    iterator = open_iterator(dataset, 3, workers=2, staging=Staging(staged))
    try:
        slots = {name: np.empty(s.shape, s.dtype) for name, s in iterator.specs.items()}
        iterator.next_into(slots)
    finally:
        iterator.close()
    for found, label in zip(slots["label"], labels, strict=False):
        left, right = 1 - label[0, 3], 1 - label[0, 1]
        assert found[0, 1:5] == pytest.approx([left, label[0, 2], right, label[0, 4]], abs=1e-6)


@pytest.mark.parametrize("given", [("rotation", {"degrees": 5}), ("mixup", {})])
def test_transforms_that_cannot_move_boxes_are_refused(given):
    image, label = painted(0)
    fields = {"data": Field(image[np.newaxis], 1 / 255), "label": Field(label[np.newaxis])}
    inputs = {"data": TensorSpec(image.shape), "label": TensorSpec(label.shape)}
    plain = Dataset("boxes", fields)
    boxes = Dataset("boxes", {**fields, "label": Field(label[np.newaxis], boxes=True)})
    assert plain.check(inputs, {}, steps([given])) == ()
    (found,) = boxes.check(inputs, {}, steps([given]))
    assert found.place == PLACE
    assert f"{given[0]} cannot move the boxes of 'label'" in found.problem
