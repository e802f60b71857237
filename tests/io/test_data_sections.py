"""Data section of a config: transforms, options that evaluation inherits, locations of errors."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from layer_configs import classifier, config_file, network_text
from refusals import only_problem

from mxrun.base.errors import Diagnostic, UserError
from mxrun.config import parse
from mxrun.frontend import ModelDefinition, build
from mxrun.frontend.data import evaluation_pipeline
from mxrun.io.dataset.dataset import Dataset
from mxrun.io.dataset.request import open_datasets
from mxrun.io.transforms.geometry import CenterCrop, Flip, PadCrop, Resize
from mxrun.io.transforms.label import OneHot
from mxrun.io.transforms.pipeline import NO_TRANSFORMS

HEAD = (
    network_text(classifier(10), inputs="{data: [3, 8, 8], label: []}")
    + """\
train: {epochs: 1, optimizer: sgd, metrics: []}
data:
  batch_size: 4
"""
)


def built(folder: Path, data: str, head: str = HEAD) -> ModelDefinition:
    """Build the config; the data section starts in its line 10."""
    path = config_file(folder, head + data)
    return build(parse(path))


def problems(folder: Path, data: str) -> list[Diagnostic]:
    with pytest.raises(UserError) as caught:
        built(folder, data)
    return list(caught.value.diagnostics)


TRAIN = "  train: {dataset: synthetic, split: train, records: 20"


def test_defaults(tmp_path):
    one = built(tmp_path, f"{TRAIN}}}\n  eval: {{dataset: synthetic, split: test}}\n")
    data = one.options.data
    assert (data.workers, data.prefetch, data.last_batch) == (None, 2, None)
    assert 1 <= data.loader_threads <= 8
    for request in one.data.values():
        assert request.pipeline == NO_TRANSFORMS
        assert not request.prefetched


def test_evaluation_inherits_what_is_not_random(tmp_path):
    section = (
        f"{TRAIN}, transforms: [{{pad_crop: {{pad: 2}}}}, flip, {{random_crop: {{size: 8}}}}]}}\n"
    )
    one = built(tmp_path, section + "  eval: {dataset: synthetic, split: test}\n")
    steps = [step.transform for step in one.data["train"].pipeline.steps]
    assert [type(step) for step in steps[:2]] == [PadCrop, Flip]
    (kept,) = one.data["eval"].pipeline.steps
    assert kept.transform == CenterCrop(size=8)
    assert str(kept.place).endswith("net.yaml:10:100")
    assert evaluation_pipeline(one.options.data) == one.data["eval"].pipeline
    assert one.data["train"].prefetched
    # Without a section for evaluation, its transforms are known all the same.
    alone = built(tmp_path, section)
    assert evaluation_pipeline(alone.options.data) == one.data["eval"].pipeline


def test_evaluation_may_have_its_own(tmp_path):
    eval_section = (
        "  eval: {dataset: synthetic, split: test, transforms: [{resize: {size: 8}}, flip]}\n"
    )
    one = built(tmp_path, f"{TRAIN}, transforms: [flip]}}\n{eval_section}")
    assert [step.transform for step in one.data["eval"].pipeline.steps] == [Resize(size=8)]
    none = "  eval: {dataset: synthetic, split: test, transforms: []}\n"
    one = built(tmp_path, f"{TRAIN}, transforms: [{{center_crop: {{size: 8}}}}]}}\n{none}")
    assert one.data["eval"].pipeline == NO_TRANSFORMS


@pytest.mark.parametrize(
    ("data", "line", "words"),
    [
        ("  workers: -1\n", 11, ("data.workers", ">= 0")),
        ("  prefetch: 17\n", 11, ("data.prefetch", "<= 16")),
        ("  last_batch: dicard\n", 11, ("data.last_batch", "'discard'")),
    ],
)
def test_what_is_wrong_with_the_section_has_a_place(tmp_path, data, line, words):
    (found,) = problems(tmp_path, f"{TRAIN}}}\n{data}")
    assert found.place is not None
    assert found.place.line == line
    assert all(word in str(found) for word in words), str(found)


@pytest.mark.parametrize(
    ("transforms", "culprit", "words"),
    [
        ("[flop]", "flop", ("unknown transform 'flop'", "'flip'")),
        ("[flip, {resize: {sise: 3}}]", "sise", ("resize", "'sise'", "'size'")),
        ("[{resize: {size: -3}}]", "-3", ("resize", "'size'", "-3")),
        ("[{flip: {probability: 2}}]", "2}", ("probability", "2")),
        ("[{random_resized_crop: {size: 8, area: [0.5, 2.0]}}]", "[0.5", ("at most 1",)),
        ("[{random_resized_crop: {size: 8, ratio: [2.0, 1.0]}}]", "[2.0", ("least <= greatest",)),
        ("flip", "flip", ("data.train.transforms", "[{kind: {parameter: value}}, ...]")),
        ("[3]", "3", ("data.train.transforms[0]", "{kind: {parameter: value}}")),
        ("[normalize, color_jitter]", "color", ("not normalized ones",)),
    ],
)
def test_what_is_wrong_with_transforms_has_a_place(tmp_path, transforms, culprit, words):
    section = f"  train:\n    dataset: synthetic\n    transforms: {transforms}\n    split: train\n"
    found = problems(tmp_path, section)
    place = (12, len("    transforms: ") + transforms.index(culprit) + 1)
    assert any(
        each.place is not None
        and (each.place.line, each.place.column) == place
        and all(word in str(each) for word in words)
        for each in found
    ), [str(each) for each in found]


def opened(one: ModelDefinition) -> dict[str, Dataset]:
    return open_datasets(one.data, one.model.records)


def test_a_shape_that_does_not_become_the_networks_is_told_before_training(tmp_path):
    """Reported once, at its location, though train and eval share the transform."""
    section = (
        "  train:\n    dataset: synthetic\n    records: 20\n    split: train\n    transforms:\n"
        "      - flip\n      - center_crop: {size: 9}\n"
        "  eval: {dataset: synthetic, split: test, records: 20}\n"
    )
    found = only_problem(opened, built(tmp_path, section))
    assert found.place is not None
    assert found.place.line == 16
    assert "center_crop: the image is smaller" in found.problem
    with pytest.raises(UserError, match="does not fit") as caught:
        opened(built(tmp_path, f"{TRAIN}, transforms: [{{resize: {{size: 7}}}}]}}\n"))
    (found,) = caught.value.diagnostics
    assert (found.expected, found.got) == ("float32[3, 7, 7]", "float32[3, 8, 8]")


def test_images_of_any_size_need_a_transform_only_where_they_differ(tmp_path):
    from PIL import Image

    (tmp_path / "images" / "a").mkdir(parents=True)
    Image.fromarray(np.zeros((9, 9, 3), np.uint8)).save(tmp_path / "images" / "a" / "0.png")
    section = "  train: {dataset: image_folder, split: all, path: images"
    one = built(tmp_path, f"{section}}}\n")
    assert one.data["train"].prefetched
    assert len(opened(one)["train"]) == 1
    exact = f"{section}, transforms: [{{resize: {{size: [7, 8]}}}}]}}\n"
    with pytest.raises(UserError, match="does not fit") as caught:
        opened(built(tmp_path, exact))
    assert caught.value.diagnostics[0].expected == "float32[3, 7, 8]"
    # No transform makes images of the one width and height that this network needs.
    tall = HEAD.replace("[3, 8, 8]", "[3, 8]")
    with pytest.raises(UserError, match="is not an image") as caught:
        opened(built(tmp_path, f"{section}}}\n", tall))
    assert caught.value.diagnostics[0].got == "[3, 8]"


def test_labels_may_become_one_hot(tmp_path):
    head = HEAD.replace("label: []", "label: [10]").replace(
        "SoftmaxOutput: {name: softmax, label: label}",
        "LinearRegressionOutput: {name: out, label: label}",
    )
    section = f"{TRAIN}, transforms: [{{one_hot: {{classes: 10}}}}]}}\n"
    one = built(tmp_path, section, head)
    dataset = opened(one)["train"]
    assert one.data["train"].pipeline.steps[0].transform == OneHot(classes=10)
    assert dataset.fields["label"].spec.dtype == "int32"
    assert dataset.inputs["label"].shape == (10,)
