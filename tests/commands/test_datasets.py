"""`datasets`: samples, statistics and checks of a config's data, and the catalogue."""

from __future__ import annotations

import re
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from photos import COLORS, CONFIG, damage, write_photos
from PIL import Image

from mxrun.base.errors import UserError
from mxrun.commands import datasets
from mxrun.io.dataset.dataset import Dataset
from mxrun.io.dataset.fields import Field
from mxrun.io.loading.batch import SAMPLE_WEIGHT
from mxrun.io.loading.open import open_iterator
from mxrun.io.loading.staging import Staging, staging_specs
from mxrun.io.pack.options import PackSettings, PackTarget
from mxrun.io.pack.pack import PackRequest, pack
from mxrun.options.datasets import CheckDataOptions, PeekOptions, StatisticsOptions
from mxrun.report.image_sheet import image_sheet
from mxrun.survey.data_sample import DataSample
from mxrun.survey.images import survey_images


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    return write_photos(tmp_path)


def sample(config: Path, **options: Any) -> DataSample:
    chosen = PeekOptions(config=str(config), **options)
    return datasets.sample(datasets.open_sections(config), chosen)


def measured(config: Path, workers: int = 2) -> dict[str, Any]:
    options = StatisticsOptions(config=str(config), workers=workers)
    sections = datasets.open_sections(config)
    return datasets.statistics(sections, options, lambda records: None).to_json()


def checked(config: Path, workers: int = 2) -> dict[str, Any]:
    options = CheckDataOptions(config=str(config), workers=workers)
    seen: list[int] = []
    sections = datasets.open_sections(config)
    report = datasets.check(sections, options, seen.append).to_json()
    assert seen[-1] == datasets.count_records(sections)
    return report


def test_every_data_set_is_listed_and_described() -> None:
    rows = {row["name"]: row["kind"] for row in datasets.dataset_rows()}
    kinds = {"mnist": "published", "digits": "bundled", "csv": "your files"}
    assert kinds.items() <= rows.items()
    assert rows["synthetic"] == "synthetic"
    for name, kind in rows.items():
        found = datasets.dataset_description(name)
        assert found["description"]
        assert f"dataset: {name}" in found["example"]
        assert (found["files"] is not None) == (kind == "published")
    cifar = datasets.dataset_description("cifar10")
    assert cifar["splits"] == ["train", "test"]
    assert [option["name"] for option in cifar["options"]] == ["path"]
    assert cifar["files"]["fetch"] == "mxrun datasets fetch cifar10"
    assert len(cifar["files"]["files"][0]["members"]) == 6
    assert "CC BY 4.0" in datasets.dataset_description("digits")["licence"]
    with pytest.raises(UserError, match="did you mean 'mnist'"):
        datasets.dataset_description("minst")


def test_a_sample_is_what_training_reads(photos: Path) -> None:
    sections = datasets.open_sections(photos / "photos.yaml")
    dataset = sections.section("train")
    arrays = [
        {name: np.zeros(spec.shape, spec.dtype) for name, spec in specs.items()}
        for specs in [staging_specs(dataset.inputs, 4)] * 3
    ]
    slots = arrays.pop() | {SAMPLE_WEIGHT: np.zeros(4, np.float32)}
    seed = sections.built.options.seed
    iterator = open_iterator(
        dataset, 4, shuffle=True, seed=seed, workers=2, staging=Staging(arrays)
    )
    iterator.reset(2)
    numbers, rows = [], []
    while (batch := iterator.next_into(slots)) is not None:
        numbers += batch.indices[: batch.valid].tolist()
        rows += list(slots["data"][: batch.valid].copy())
    iterator.close()
    found = datasets.sample(sections, PeekOptions(config="", count=10, epoch=2))
    assert [record.number for record in found.records] == numbers
    for record, row in zip(found.records, rows, strict=True):
        assert np.array_equal(record.rows["data"], row)
        assert record.label == Path(record.file).parent.name
    other = datasets.sample(sections, PeekOptions(config="", count=10, epoch=3))
    assert [record.number for record in other.records] != numbers
    assert other.seed == seed
    again = datasets.sample(sections, PeekOptions(config="", count=10, epoch=3, seed=seed + 1))
    assert again.to_json()["records"] != other.to_json()["records"]


def test_pictures_look_as_they_did_before_normalize(photos: Path) -> None:
    found = sample(photos / "photos.yaml", count=6)
    for record, picture in zip(found.records, found.images["data"], strict=True):
        assert record.rows["data"].min() == -0.5
        assert (picture == COLORS[record.label]).all()
    assert found.notes == ()


def test_values_beyond_the_range_are_stretched(photos: Path) -> None:
    archive = {"data": np.array([[[[-3.0, 1.0], [5.0, 1.0]]]] * 2, np.float32), "label": [0, 1]}
    np.savez(photos / "rows.npz", **archive)
    text = CONFIG.format(transforms="").replace("[3, 8, 8]", "[1, 2, 2]")
    text = text.replace("image_folder, path: photos", "npz, path: rows.npz")
    (photos / "rows.yaml").write_text(text.replace("image_folder", "npz"))
    found = sample(photos / "rows.yaml", count=1)
    assert found.notes == ("data: black is -3 and white is 5",)
    assert found.images["data"][0].tolist() == [[0, 128], [255, 128]]


def test_raw_records_have_their_own_sizes(photos: Path) -> None:
    found = sample(photos / "photos.yaml", split="eval", raw=True)
    assert [record.number for record in found.records] == list(range(10))
    shapes = [picture.shape for picture in found.images["data"]]
    assert shapes[:5] == [(8, 8 + number, 3) for number in range(5)]


def test_sheets_show_every_picture(photos: Path, tmp_path: Path) -> None:
    found = sample(photos / "photos.yaml", count=10)
    captions = [[record.label, "\N{GREEK SMALL LETTER ALPHA}" * 200] for record in found.records]
    content = image_sheet(found.images["data"], captions)
    assert content == image_sheet(found.images["data"], captions)
    (tmp_path / "sheet.png").write_bytes(content)
    sheet = np.asarray(Image.open(tmp_path / "sheet.png"))
    for kind, color in COLORS.items():
        count = sum(record.label == kind for record in found.records)
        assert (sheet == color).all(2).sum() == count * 96 * 96
    large = image_sheet([np.zeros((4000, 2, 3), np.uint8)], [[]])
    (tmp_path / "large.png").write_bytes(large)
    with Image.open(tmp_path / "large.png") as picture:
        assert picture.height < 300


def test_a_sheet_has_the_name_of_a_png_file(photos: Path) -> None:
    found = sample(photos / "photos.yaml", count=1)
    assert datasets.sheet_files(found, Path("a.PNG")) == {"data": Path("a.PNG")}
    with pytest.raises(UserError, match=r"a\.jpg: the sheet is a PNG file"):
        datasets.sheet_files(found, Path("a.jpg"))


def test_boxes_are_drawn(photos: Path) -> None:
    pixels = np.zeros((2, 3, 20, 20), np.uint8)
    boxes = np.full((2, 2, 5), -1, np.float32)
    boxes[0, 0] = [1, 0.25, 0.5, 0.75, 1]
    source = Dataset("arrays", {"data": Field.images(pixels), "label": Field(boxes)})
    options = PackSettings("rec", "png")
    request = PackRequest(source, PackTarget(photos / "boxes.rec", options), photos, 1)
    pack(request, lambda: False, lambda records: None)
    text = CONFIG.format(transforms="").replace(
        "[3, 8, 8], label: []", "[3, 20, 20], label: [2, 5]"
    )
    text = text.replace("image_folder, path: photos", "recordio, path: boxes.rec")
    layers = (
        "[{FullyConnected: {num_hidden: 10}}, {Reshape: {shape: [0, 2, 5]}}, "
        "{LinearRegressionOutput: {label: label}}]"
    )
    text = re.sub(r"layers: .*", f"layers: {layers}", text.replace("image_folder", "recordio"))
    (photos / "boxes.yaml").write_text(text)
    found = sample(photos / "boxes.yaml", split="eval")
    assert [record.label for record in found.records] == ["1", ""]
    drawn = [record.boxes for record in found.records]
    assert drawn[0].tolist() == boxes[0, :1].tolist()
    (photos / "boxes.png").write_bytes(image_sheet(found.images["data"], [[], []], drawn))
    sheet = np.asarray(Image.open(photos / "boxes.png")).astype(int)
    # The colour of class 1, in the lower half of the first tile of 80 pixels.
    rows, columns = np.nonzero((abs(sheet - [0x56, 0xB4, 0xE9]) < 2).all(2))
    assert (rows.min() - 8, columns.min() - 8, columns.max() - 8) == (40, 20, 60)


def test_statistics_are_those_of_all_values(photos: Path) -> None:
    report = measured(photos / "photos.yaml")
    train = report["sections"]["train"]
    assert train["classes"] == {"blue": 5, "red": 5}
    data = train["fields"]["data"]
    assert data["mean"] == (0.5, 0.0, 0.5)
    assert data["std"] == (0.5, 1.0, 0.5)
    sizes = data["sizes"]
    assert (sizes["least"], sizes["greatest"], sizes["images"]) == ((8, 8), (8, 12), 10)
    assert report["sections"]["eval"]["records"] == 10
    assert measured(photos / "photos.yaml", 1) == report
    # What is printed can be pasted.
    transform = report["transforms"]["data"]
    assert transform == "normalize: {mean: [0.5, 0.0, 0.5], std: [0.5, 1.0, 0.5]}"
    text = CONFIG.format(transforms=f"{{resize: {{size: [8, 8]}}}}, {{{transform}}}")
    (photos / "photos.yaml").write_text(text)
    found = sample(photos / "photos.yaml", count=10)
    values = np.stack([record.rows["data"] for record in found.records])
    assert np.allclose(values[:, 0].mean(), 0)
    assert np.allclose(values[:, 0].std(), 1)


@pytest.mark.parametrize("number", ["-1", "2000000000"])
def test_classes_may_have_any_numbers(tmp_path: Path, number: str) -> None:
    (tmp_path / "t.csv").write_text(f"a,b,label\n1,2,0\n3,4,{number}\n5,6,{number}\n")
    (tmp_path / "t.yaml").write_text(
        "name: t\n"
        "network:\n"
        "  inputs: {data: [2], label: []}\n"
        "  layers: [{FullyConnected: {num_hidden: 2}}, SoftmaxOutput: {label: label}]\n"
        "data: {batch_size: 1, train: {dataset: csv, path: t.csv}}\n"
        "train: {epochs: 1, optimizer: {sgd: {lr: 0.1}}}\n"
    )
    train = measured(tmp_path / "t.yaml")["sections"]["train"]
    assert train["classes"] == {"0": 1, number: 2}


def test_numbers_of_encoded_columns_have_names(tmp_path: Path) -> None:
    rows = "10,paris,a\n20,rome,b\n30,paris,a\n40,rome,b\n"
    (tmp_path / "t.csv").write_text(f"age,city,kind\n{rows}")
    (tmp_path / "t.yaml").write_text(
        "name: t\n"
        "network:\n"
        "  inputs: {data: [3], label: []}\n"
        "  layers: [{FullyConnected: {num_hidden: 2}}, SoftmaxOutput: {label: label}]\n"
        "data:\n"
        "  batch_size: 2\n"
        "  train: {dataset: csv, path: t.csv, header: true, label: kind, columns: auto}\n"
        "train: {epochs: 1, optimizer: {sgd: {lr: 0.1}}}\n"
    )
    names = ("age", "city=paris", "city=rome")
    found = sample(tmp_path / "t.yaml", count=4)
    assert found.columns == names
    assert [record.rows["data"][1:].tolist() for record in found.records] == [[1, 0], [0, 1]] * 2
    field = measured(tmp_path / "t.yaml")["sections"]["train"]["fields"]["data"]
    assert field["names"] == names
    assert field["mean"][1:] == (0.5, 0.5)
    assert checked(tmp_path / "t.yaml")["passed"]


def test_statistics_agree_with_numpy_on_digits() -> None:
    from mxrun.datasets.digits import DigitsOptions, read

    report = measured(Path("digits_lenet"))
    images = read(DigitsOptions(), "train", {}).fields["data"].records / 16
    field = report["sections"]["train"]["fields"]["data"]
    assert field["mean"] == (round(images.mean(), 4),)
    assert field["std"] == (float(f"{images.std():.4g}"),)
    assert (field["least"], field["greatest"]) == ((0.0,), (1.0,))


def test_statistics_of_large_images_take_little_more_than_their_pixels(photos: Path) -> None:
    pixels = np.zeros((1200, 1200, 3), np.uint8)
    pixels[:600] = (255, 51, 0)
    for number in range(5):
        Image.fromarray(pixels).save(photos / "photos" / "red" / f"{number}.png")
    tracemalloc.start()
    try:
        found = measured(photos / "photos.yaml", 1)["sections"]["train"]["fields"]["data"]
        survey = survey_images(str(photos / "photos"))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (found["mean"], survey.mean) == ((0.25, 0.05, 0.5), (0.25, 0.05, 0.5))
    assert peak < 4 * pixels.nbytes


def test_statistics_leave_out_what_cannot_be_read(photos: Path) -> None:
    damage(photos)
    train = measured(photos / "photos.yaml")["sections"]["train"]
    assert (train["records"], train["unreadable"]) == (10, 2)
    assert train["fields"]["data"]["sizes"]["images"] == 8


@pytest.mark.parametrize("workers", [1, 4])
def test_a_check_lists_every_damaged_record(photos: Path, workers: int) -> None:
    assert checked(photos / "photos.yaml")["passed"]
    damage(photos)
    report = checked(photos / "photos.yaml", workers)
    assert report["records"] == {"train": 10, "eval": 10}
    assert not report["passed"]
    found = [(each["section"], each["record"], each["file"]) for each in report["damaged"]]
    blue, red = str(photos / "photos/blue/1.png"), str(photos / "photos/red/3.png")
    both = [(1, blue), (8, red)]
    assert found == [(role, *each) for role in ("train", "eval") for each in both]
    assert [each["offset"] for each in report["damaged"]] == [0, 0, 0, 0]
    assert "byte 0: the file is empty" in report["damaged"][0]["problem"]


def test_a_check_counts_images_of_several_frames(photos: Path) -> None:
    frames = [Image.new("RGB", (24, 24), color) for color in ("red", "blue")]
    (photos / "photos.yaml").write_text(CONFIG.format(transforms="{resize: {size: [8, 8]}}"))
    frames[0].save(photos / "photos/red/0.gif", save_all=True, append_images=frames[1:])
    found = checked(photos / "photos.yaml")
    assert found["framed"] == {"train": 1, "eval": 1}
    assert not found["damaged"]


def test_a_check_finds_records_that_do_not_fit(photos: Path) -> None:
    (photos / "photos.yaml").write_text(CONFIG.format(transforms="{center_crop: {size: 8}}"))
    Image.new("RGB", (7, 8)).save(photos / "photos/red/4.png")
    damaged = checked(photos / "photos.yaml")["damaged"]
    assert [each["record"] for each in damaged] == [9, 9]
    assert "center_crop" in damaged[0]["problem"]
    Image.new("RGB", (8, 8)).save(photos / "photos/red/4.png")
    (photos / "photos.yaml").write_text(CONFIG.format(transforms=""))
    damaged = checked(photos / "photos.yaml")["damaged"]
    wide = [1, 2, 3, 4, 6, 7, 8]
    assert [each["record"] for each in damaged] == wide * 2
    assert (
        damaged[0]["problem"] == "data has the shape [3, 8, 9] after its transforms, not [3, 8, 8]"
    )
