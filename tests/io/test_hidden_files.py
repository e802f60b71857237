"""Hidden files and folders hold no images: copies of notebooks, thumbnails, forks, bins."""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest
from PIL import Image

from mxrun.base.errors import UserError
from mxrun.base.tensor import TensorSpec
from mxrun.commands.pack import prepare
from mxrun.inference.records import input_files
from mxrun.io.dataset.dataset import Dataset
from mxrun.io.dataset.request import open_datasets, request_dataset
from mxrun.options.pack import PackOptions
from mxrun.survey.images import survey_images

SHOWN = ["cat/0.png", "cat/a.b/1.png", "dog/3.png", "dog/@home/2.png"]
HIDDEN = [
    "cat/.ipynb_checkpoints/0-checkpoint.png",
    "cat/.thumbnails/0.png",
    "cat/a.b/@eaDir/1.png/SYNOPHOTO_THUMB_M.jpg",
    "dog/.@__thumb/s1003.png",
    "dog/._3.png",
    "dog/#recycle/9.png",
    "__MACOSX/dog/3.png",
    ".Trash/dog/8.png",
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    root = tmp_path / "photos"
    for name in (*SHOWN, *HIDDEN):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (8, 6)).save(root / name)
    return root


def opened(name: str, path: Path) -> Dataset:
    request = request_dataset(name, {"path": str(path)}, "all")
    inputs = {"data": TensorSpec((3, 6, 8)), "label": TensorSpec((), "int32")}
    return open_datasets({"it": request}, inputs)["it"]


def files_of(dataset: Dataset, root: Path) -> list[str]:
    places = [dataset.lazy["data"].source(index) for index in range(len(dataset))]
    return [str(Path(place.file).relative_to(root)) for place in places if place is not None]


def test_folders_are_read_packed_surveyed_and_inferred_alike(folder, tmp_path):
    dataset = opened("image_folder", folder)
    assert files_of(dataset, folder) == SHOWN
    assert dataset.classes == ("cat", "dog")
    survey = survey_images(str(folder))
    assert sum(part.records for part in (survey.train, survey.evaluation)) == len(SHOWN)
    options = PackOptions(source=str(folder), out=tmp_path / "p.rec")
    assert prepare(options, "rec").total == len(SHOWN)
    assert input_files([str(folder)]) == [str(folder / name) for name in SHOWN]
    # What is named itself is read.
    named = str(folder / "cat/.thumbnails")
    assert input_files([named]) == [f"{named}/0.png"]


def test_lists_leave_them_out_and_say_so(folder, tmp_path):
    rows = [f"photos/{name},{name.split('/')[0]}" for name in (*SHOWN, *HIDDEN[:6])]
    (tmp_path / "list.csv").write_text("\n".join(rows) + "\n")
    dataset = opened("image_list", tmp_path / "list.csv")
    assert files_of(dataset, folder) == SHOWN
    assert dataset.fields["label"].records.tolist() == [0, 0, 1, 1]
    (note,) = dataset.notes
    assert note.startswith(f"{tmp_path}/list.csv: hidden files and folders are left out: ")
    assert str(folder / HIDDEN[0]) in note
    (tmp_path / "hidden.csv").write_text(f"photos/{HIDDEN[4]},dog\n")
    with pytest.raises(UserError, match="all files of the list are hidden"):
        opened("image_list", tmp_path / "hidden.csv")


def test_a_list_may_be_of_a_hidden_folder(folder, tmp_path):
    """Only what is hidden below the folder of all images is left out."""
    (folder / "dog").rename(tmp_path / ".dogs")
    rows = [f".dogs/{name},{label}" for name, label in (("3.png", 0), ("@home/2.png", 1))]
    (tmp_path / "list.csv").write_text("\n".join([*rows, ".dogs/._3.png,1"]) + "\n")
    dataset = opened("image_list", tmp_path / "list.csv")
    assert files_of(dataset, tmp_path) == [".dogs/3.png", ".dogs/@home/2.png"]


@pytest.mark.parametrize("prefix", ["", "./"])
def test_members_of_tar_files(folder, tmp_path, prefix):
    label = tmp_path / "label"
    label.write_text("1")
    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        for name in sorted((*SHOWN, *HIDDEN)):
            tar.add(folder / name, f"{prefix}{name}")
            tar.add(label, f"{prefix}{Path(name).parent / Path(name).stem}.cls")
    dataset = opened("webdataset", tmp_path / "a.tar")
    assert len(dataset) == len(SHOWN)
