"""Packs of images: what readers get, the same bytes after stops and kills, failing disks."""

from __future__ import annotations

import io
import json
import os
import resource
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from lazy_columns import record_of
from numpy.typing import NDArray
from PIL import Image

from mxrun.base.errors import Stopped, UserError
from mxrun.base.tensor import TensorSpec
from mxrun.io.dataset.dataset import Dataset
from mxrun.io.dataset.fields import Field
from mxrun.io.dataset.request import open_datasets, request_dataset
from mxrun.io.pack.journal import JOURNAL_FILE
from mxrun.io.pack.options import PackSettings, PackTarget
from mxrun.io.pack.pack import PackRequest, PackResult, pack
from mxrun.io.transforms.base import TRANSFORMS
from mxrun.io.transforms.pipeline import pipeline
from mxrun.io.transforms.program import RowProgram

DATA, CLASS = TensorSpec((3, 6, 7)), TensorSpec((), "int32")
KINDS = ("bird", "cat", "fish")
COUNT = 60


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with 60 images of noise in three classes."""
    root = tmp_path_factory.mktemp("images")
    draws = np.random.default_rng(0)
    for number in range(COUNT):
        path = root / KINDS[number % 3] / f"{number:03}.png"
        path.parent.mkdir(exist_ok=True)
        pixels = draws.integers(0, 256, (6, 7, 3), np.uint8)
        Image.fromarray(pixels).save(path)
    return root


def opened(name: str, path: Path | str, **inputs: TensorSpec) -> Dataset:
    request = request_dataset(name, {"path": str(path)}, "all")
    return open_datasets({"it": request}, {"data": DATA, "label": CLASS, **inputs})["it"]


def request_of(dataset: Dataset, out: Path, root: Path, **settings: Any) -> PackRequest:
    more = {key: settings.pop(key) for key in ("skip_bad", "overwrite") if key in settings}
    workers = settings.pop("workers", 2)
    form = out.suffix.removeprefix(".")
    options = PackSettings(form, settings.pop("encoding", "keep"), **settings)
    return PackRequest(dataset, PackTarget(out, options), root, workers, **more)


def packed(request: PackRequest, stops_after: int | None = None) -> PackResult:
    """Pack; with `stops_after`, stop after so many chunks of records."""
    calls = iter(range(1 << 30))
    stops = lambda: stops_after is not None and next(calls) >= stops_after  # noqa: E731
    return pack(request, stops, lambda records: None)


def content_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir()) if path.is_file()}


def pixels_of(dataset: Dataset) -> NDArray[np.uint8]:
    return np.stack([record_of(dataset, index) for index in range(len(dataset))])


@pytest.mark.parametrize("suffix", ["rec", "tar"])
def test_every_kind_of_image_that_is_read_is_kept(tmp_path: Path, suffix: str) -> None:
    head, grey = b"8 2\n255\n", b" ".join([b"0 99 255 7"] * 4)
    files = {
        "a.pgm": b"P2\n" + head + grey,
        "b.ppm": b"P3 " + head + b" ".join([grey] * 3),
        "c.pgm": b"P5\n" + head + bytes(range(16)),
        "d.pbm": b"P1\n8 2\n" + b"0110" * 4,
        "e.pbm": b"P4 8 2 \x5a\xff",
    }
    for name, content in files.items():
        (tmp_path / "d/x").mkdir(parents=True, exist_ok=True)
        (tmp_path / "d/x" / name).write_bytes(content)
    kinds = {"f.webp": "WEBP", "g.bmp": "BMP", "h.jpg": "JPEG", "i.png": "PNG", "j.gif": "GIF"}
    for name, kind in {**kinds, "k.tif": "TIFF", "l.jfif": "JPEG", "m.jpe": "JPEG"}.items():
        Image.new("RGB", (8, 2), (200, 90, 10)).save(tmp_path / "d/x" / name, kind)
    source = opened("image_folder", tmp_path / "d", data=TensorSpec((3, 2, 8)))
    assert len(source) == 13
    out = tmp_path / f"p.{suffix}"
    packed(request_of(source, out, tmp_path))
    reader = "recordio" if suffix == "rec" else "webdataset"
    found = opened(reader, out, data=TensorSpec((3, 2, 8)))
    assert np.array_equal(pixels_of(found), pixels_of(source))
    with Image.open(tmp_path / "d/x/a.pgm") as image:
        expected = np.asarray(image.convert("RGB")).transpose(2, 0, 1)
    assert np.array_equal(record_of(found, 0), expected)


@pytest.mark.parametrize("encoding", ["keep", "png", "raw"])
@pytest.mark.parametrize("suffix", ["rec", "tar"])
def test_D4_a_pack_has_the_images_and_classes_of_its_source(
    folder: Path, tmp_path: Path, encoding: str, suffix: str
) -> None:
    source = opened("image_folder", folder)
    out = tmp_path / f"train.{suffix}"
    result = packed(request_of(source, out, folder, encoding=encoding))
    assert result.records == COUNT
    assert not result.skipped
    found = opened({"rec": "recordio", "tar": "webdataset"}[suffix], out)
    assert found.classes == source.classes == KINDS
    assert np.array_equal(found.fields["label"].records, source.fields["label"].records)
    assert np.array_equal(pixels_of(found), pixels_of(source))
    names = {"rec": ["classes", "idx", "lst", "rec"], "tar": ["tar"]}[suffix]
    assert sorted(os.listdir(tmp_path)) == [f"train.{name}" for name in names]


def test_files_that_are_kept_have_their_bytes(folder: Path, tmp_path: Path) -> None:
    source = opened("image_folder", folder)
    packed(request_of(source, tmp_path / "train.rec", folder))
    found = opened("recordio", tmp_path / "train.rec")
    lines = (tmp_path / "train.lst").read_text().splitlines()
    for index, line in enumerate(lines):
        number, label, name = line.split("\t")
        assert (int(number), float(label)) == (index, source.fields["label"].records[index])
        image: Any = found.lazy["data"].record(index)
        assert bytes(image.content) == (folder / name).read_bytes()


def test_images_are_resized_as_by_the_transform(folder: Path, tmp_path: Path) -> None:
    source = opened("image_folder", folder)
    packed(request_of(source, tmp_path / "small.rec", folder, encoding="png", resize=4))
    found = opened("recordio", tmp_path / "small.rec", data=TensorSpec((3, 4, 4)))
    resize = pipeline([(TRANSFORMS.get("resize").model_validate({"size": (4, 4)}), None)])
    expected = np.empty((len(source), 3, 4, 4), np.float32)
    program = RowProgram(resize, "data", source.lazy["data"], TensorSpec((3, 4, 4)), 0)
    numbers = np.arange(len(source))
    assert program.write(program.read(numbers), numbers, numbers, expected) == []
    # The transform does not round to bytes, Pillow does so after rows and after columns.
    assert np.abs(pixels_of(found) - expected * 255).max() <= 1.01
    packed(request_of(source, tmp_path / "jpeg.rec", folder, encoding="jpeg", resize=12))
    jpeg = opened("recordio", tmp_path / "jpeg.rec", data=TensorSpec((3, 12, 14)))
    image: Any = jpeg.lazy["data"].record(0)
    assert Image.open(io.BytesIO(image.content)).format == "JPEG"
    assert pixels_of(jpeg).shape[2:] == (12, 14)


@pytest.mark.skipif("MXRUN_MXNET_PYTHON" not in os.environ, reason="MXRUN_MXNET_PYTHON is not set")
def test_MXNet_reads_a_pack(folder: Path, tmp_path: Path) -> None:
    source = opened("image_folder", folder)
    packed(request_of(source, tmp_path / "train.rec", folder, shuffle=True, seed=4))
    script = """
import json, sys
import mxnet
batches = mxnet.io.ImageRecordIter(
    path_imgrec=sys.argv[1], path_imgidx=sys.argv[2], data_shape=(3, 6, 7), batch_size=60)
(batch,) = batches
print(json.dumps([batch.label[0].asnumpy().tolist(), batch.data[0].asnumpy().tolist()]))
"""
    files = [str(tmp_path / f"train.{suffix}") for suffix in ("rec", "idx")]
    done = subprocess.run(
        [os.environ["MXRUN_MXNET_PYTHON"], "-c", script, *files],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    labels, images = json.loads(done.stdout.splitlines()[-1])
    ours = opened("recordio", tmp_path / "train.rec")
    assert labels == ours.fields["label"].records.tolist()
    assert labels != source.fields["label"].records.tolist()
    assert np.array_equal(np.array(images), pixels_of(ours))


FORMS = [
    ("a.rec", {}),
    ("a.tar", {}),
    ("a.rec", {"shards": 7, "shuffle": True, "seed": 3}),
    ("a.tar", {"shard_bytes": 12_000}),
    ("a.rec", {"shard_bytes": 1000, "encoding": "jpeg", "resize": 5}),
]


@pytest.mark.parametrize(("name", "settings"), FORMS)
def test_the_bytes_do_not_depend_on_threads(
    folder: Path, tmp_path: Path, name: str, settings: dict[str, Any]
) -> None:
    source = opened("image_folder", folder)
    found = []
    for workers in (1, 5):
        out = tmp_path / str(workers) / name
        result = packed(request_of(source, out, folder, workers=workers, **settings))
        found.append((content_of(out.parent), result.digest))
    assert found[0] == found[1]
    numbers = [int(line.split("-")[1].split(".")[0]) for line in found[0][0] if "-" in line]
    assert sorted(set(numbers)) == list(range(max(numbers, default=-1) + 1))


def test_shards_have_the_size_and_number_that_are_asked_for(folder: Path, tmp_path: Path) -> None:
    source = opened("image_folder", folder)
    packed(request_of(source, tmp_path / "n" / "a.rec", folder, shards=7))
    pattern = opened("recordio", tmp_path / "n" / "a-*.rec")
    assert np.array_equal(pixels_of(pattern), pixels_of(source))
    counts = [len(opened("recordio", tmp_path / "n" / f"a-0000{at}.rec")) for at in range(7)]
    assert sum(counts) == COUNT
    assert set(counts) == {8, 9}
    packed(request_of(source, tmp_path / "s" / "a.rec", folder, shard_bytes=2000))
    sizes = [path.stat().st_size for path in sorted((tmp_path / "s").glob("*.rec"))]
    assert max(sizes) <= 2000
    assert min(sizes[:-1]) > 1500


@pytest.mark.parametrize(("name", "settings"), FORMS)
def test_a_stopped_pack_continues_to_the_same_bytes(
    folder: Path, tmp_path: Path, name: str, settings: dict[str, Any]
) -> None:
    source = opened("image_folder", folder)
    whole = request_of(source, tmp_path / "whole" / name, folder, **settings)
    packed(whole)
    request = request_of(source, tmp_path / "parts" / name, folder, **settings)
    positions = []
    for stop in (0, 2, 1):
        with pytest.raises(Stopped, match="the same command continues"):
            packed(request, stop)
        assert content_of(tmp_path / "parts") == {}
        state = json.loads((request.target.work / JOURNAL_FILE).read_text().splitlines()[-1])
        positions.append(state["position"])
        # What was written after the last commit, and a line cut by a kill, do not count.
        for written in (*state["sizes"], "checksums", JOURNAL_FILE):
            with (request.target.work / written).open("ab") as file:
                file.write(b'{"position": 59')
        (request.target.work / "a-00099.rec").write_bytes(b"begun")
    assert positions == [8, 32, 48]
    result = packed(request)
    assert result.resumed == 48
    assert content_of(tmp_path / "parts") == content_of(tmp_path / "whole")
    assert os.listdir(tmp_path / "parts") == os.listdir(tmp_path / "whole")


def test_a_pack_that_was_killed_while_files_got_their_names_is_completed(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = opened("image_folder", folder)
    request = request_of(source, tmp_path / "parts" / "a.rec", folder, shards=2)
    packed(replace(request, target=replace(request.target, out=tmp_path / "whole" / "a.rec")))
    moves = iter(range(3))
    rename = Path.replace

    def fails(path: Path, target: Path) -> Path:
        if path.parent == request.target.work and not path.name.endswith(".partial"):
            next(moves)
        return rename(path, target)

    monkeypatch.setattr(Path, "replace", fails)
    with pytest.raises(StopIteration):
        packed(request)
    monkeypatch.undo()
    assert 0 < len(content_of(tmp_path / "parts")) < len(content_of(tmp_path / "whole"))
    packed(request)
    assert content_of(tmp_path / "parts") == content_of(tmp_path / "whole")
    assert not request.target.work.exists()


def test_a_full_disk_keeps_what_is_packed(folder: Path, tmp_path: Path) -> None:
    source = opened("image_folder", folder)
    request = request_of(source, tmp_path / "parts" / "a.rec", folder)
    packed(replace(request, target=replace(request.target, out=tmp_path / "whole" / "a.rec")))
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (3001, before[1]))
    try:
        with pytest.raises(UserError, match=r"cannot write .*a.rec: file too large"):
            packed(request)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    packed(request)
    assert content_of(tmp_path / "parts") == content_of(tmp_path / "whole")


def test_existing_files_are_replaced_only_if_asked(folder: Path, tmp_path: Path) -> None:
    source = opened("image_folder", folder)
    out = tmp_path / "a.rec"
    packed(request_of(source, out, folder, shards=4))
    (tmp_path / "a-other.rec").write_bytes(b"not a shard")
    with pytest.raises(UserError, match=r"a-00000.rec exists already\n.*--overwrite"):
        packed(request_of(source, out, folder, shards=2))
    packed(request_of(source, out, folder, shards=2, overwrite=True))
    # Shards of the earlier pack would be read with the new ones.
    assert sorted(path.name for path in tmp_path.glob("*.rec")) == [
        "a-00000.rec",
        "a-00001.rec",
        "a-other.rec",
    ]
    assert len(opened("recordio", tmp_path / "a-0*.rec")) == COUNT


def test_an_unfinished_pack_of_other_settings_is_not_continued(
    folder: Path, tmp_path: Path
) -> None:
    source = opened("image_folder", folder)
    out = tmp_path / "a.rec"
    with pytest.raises(Stopped):
        packed(request_of(source, out, folder, encoding="png"), 1)
    with pytest.raises(UserError, match="unfinished pack that differs in: options"):
        packed(request_of(source, out, folder, encoding="raw"))
    packed(request_of(source, out, folder, encoding="raw", overwrite=True))
    assert np.array_equal(pixels_of(opened("recordio", out)), pixels_of(source))


def copy_of(folder: Path, to: Path) -> Path:
    for path in sorted(folder.rglob("*.png")):
        target = to / path.relative_to(folder)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(path.read_bytes())
    return to


def test_images_that_were_packed_must_not_change(folder: Path, tmp_path: Path) -> None:
    images = copy_of(folder, tmp_path / "images")
    out = tmp_path / "a.rec"
    with pytest.raises(Stopped):
        packed(request_of(opened("image_folder", images), out, images), 1)
    first = sorted(images.rglob("*.png"))[0]
    first.write_bytes(first.read_bytes() + b"more")
    with pytest.raises(UserError, match="have changed since then"):
        packed(request_of(opened("image_folder", images), out, images))
    request = request_of(opened("image_folder", images), out, images, overwrite=True)
    assert packed(request).resumed == 0


@pytest.mark.parametrize("encoding", ["keep", "raw"])
def test_damaged_images_end_a_pack_or_are_left_out(
    folder: Path, tmp_path: Path, encoding: str
) -> None:
    images = copy_of(folder, tmp_path / "images")
    files = sorted(images.rglob("*.png"))
    whole = files[31].read_bytes()
    files[31].write_bytes(whole[:50])
    source = opened("image_folder", images)
    request = request_of(source, tmp_path / "e" / "a.rec", images, encoding=encoding)
    with pytest.raises(UserError, match=f"{files[31]}.*\n.*--on-bad-record skip"):
        packed(request)
    skips = request_of(
        source, tmp_path / "s" / "a.rec", images, encoding=encoding, skip_bad=True, shards=3
    )
    result = packed(skips)
    (left_out,) = result.skipped
    assert (left_out.record, left_out.source) == (31, str(files[31].relative_to(images)))
    assert result.records == COUNT - 1
    found = opened("recordio", tmp_path / "s" / "a-*.rec")
    kept = np.delete(source.fields["label"].records, 31)
    assert np.array_equal(found.fields["label"].records, kept)
    # Repaired, the pack that it ended goes on from there.
    files[31].write_bytes(whole)
    result = packed(request)
    assert result.resumed == 31
    source = opened("image_folder", folder)
    packed(request_of(source, tmp_path / "w" / "a.rec", folder, encoding=encoding))
    assert content_of(tmp_path / "e") == content_of(tmp_path / "w")


@pytest.mark.parametrize("length", [2_000, 1_000_000])
def test_strips_that_become_too_large_are_left_out(tmp_path: Path, length: int) -> None:
    (tmp_path / "a").mkdir()
    Image.new("RGB", (length, 1)).save(tmp_path / "a" / "strip.png")
    Image.new("RGB", (70, 90)).save(tmp_path / "a" / "whole.png")
    dataset = opened("image_folder", tmp_path)
    out = tmp_path / "strips.rec"
    with pytest.raises(UserError, match=r"strip\.png: the resized image is too large"):
        packed(request_of(dataset, out, tmp_path, encoding="jpeg", resize=64))
    found = packed(request_of(dataset, out, tmp_path, encoding="jpeg", resize=64, skip_bad=True))
    assert found.records == 1


def test_nothing_is_packed_of_images_that_are_all_damaged(tmp_path: Path) -> None:
    for kind in KINDS:
        (tmp_path / "images" / kind).mkdir(parents=True)
        (tmp_path / "images" / kind / "0.png").write_bytes(b"\x89PNG damaged")
    source = opened("image_folder", tmp_path / "images")
    with pytest.raises(UserError, match="nothing to pack"):
        packed(request_of(source, tmp_path / "a.rec", tmp_path, skip_bad=True))
    assert not (tmp_path / "a.rec").exists()


def test_files_that_are_not_as_written_are_noticed(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that changes a byte after it was written."""
    source = opened("image_folder", folder)
    for suffix in ("rec", "tar"):
        request = request_of(source, tmp_path / f"a.{suffix}", folder)
        with pytest.raises(Stopped):
            packed(request, 3)
        shard = request.target.work / f"a.{suffix}"
        content = bytearray(shard.read_bytes())
        at = content.index(b"IDAT") + 9
        content[at] ^= 1
        shard.write_bytes(content)
        with pytest.raises(UserError, match="record 0 is not what was written"):
            packed(request)
        assert not (tmp_path / f"a.{suffix}").exists()
        packed(request)


def labelled(label: NDArray[Any], count: int = 4) -> Dataset:
    images = np.arange(count * 3 * 2 * 2, dtype=np.uint8).reshape(count, 3, 2, 2)
    return Dataset("arrays", {"data": Field.images(images), "label": Field(label)})


@pytest.mark.parametrize(
    ("label", "spec"),
    [
        (np.array([1, 0, 2, 1], np.int32), CLASS),
        (np.array([0.1, -2, 1e-9, 3e9], np.float32), TensorSpec(())),
        (np.arange(12, dtype=np.float32).reshape(4, 3) / 7, TensorSpec((3,))),
    ],
)
@pytest.mark.parametrize("suffix", ["rec", "tar"])
def test_labels_of_all_kinds_survive(
    tmp_path: Path, label: NDArray[Any], spec: TensorSpec, suffix: str
) -> None:
    source = labelled(label)
    out = tmp_path / f"a.{suffix}"
    packed(request_of(source, out, tmp_path, encoding="png"))
    name = {"rec": "recordio", "tar": "webdataset"}[suffix]
    found = opened(name, out, data=TensorSpec((3, 2, 2)), label=spec)
    assert np.array_equal(found.fields["label"].records, label)
    assert np.array_equal(pixels_of(found), source.fields["data"].records)


@pytest.mark.parametrize("in_memory", [True, False])
def test_images_of_another_white_are_scaled_to_that_of_files(
    tmp_path: Path, in_memory: bool
) -> None:
    images = np.arange(4 * 3 * 2 * 2, dtype=np.uint8).reshape(4, 3, 2, 2) % 17
    np.savez(tmp_path / "a.npz", data=images, label=np.arange(4))
    inputs = {"data": TensorSpec((3, 2, 2)), "label": CLASS}
    options = {"path": str(tmp_path / "a.npz"), "images": {"data": 16}, "in_memory": in_memory}
    request = request_dataset("npz", options, None)
    source = open_datasets({"train": request}, inputs)["train"]
    packed(request_of(source, tmp_path / "a.rec", tmp_path, encoding="raw"))
    found = opened("recordio", tmp_path / "a.rec", **inputs)
    assert np.array_equal(pixels_of(found), np.rint(images * (255 / 16)))


@pytest.mark.parametrize("suffix", ["rec", "tar"])
def test_boxes_survive(tmp_path: Path, suffix: str) -> None:
    boxes = np.full((4, 3, 5), -1, np.float32)
    boxes[0, :2] = [[0, 0.1, 0.1, 0.5, 0.25], [2, 0, 0, 1, 1]]
    boxes[3, 0] = [1, 0.25, 0.5, 0.75, 1]
    source = labelled(boxes)
    out = tmp_path / f"a.{suffix}"
    packed(request_of(source, out, tmp_path, encoding="raw"))
    name = {"rec": "recordio", "tar": "webdataset"}[suffix]
    found = opened(name, out, data=TensorSpec((3, 2, 2)), label=TensorSpec((3, 5)))
    assert np.array_equal(found.fields["label"].records, boxes)


def test_only_images_are_packed(tmp_path: Path) -> None:
    vectors = Dataset("rows", {"data": Field(np.zeros((4, 5), np.float32))})
    with pytest.raises(UserError, match="are not images"):
        packed(request_of(vectors, tmp_path / "a.rec", tmp_path, encoding="png"))
    bytes_alone = Dataset("arrays", {"data": Field(np.zeros((4, 3, 2, 2), np.uint8), 1.0)})
    with pytest.raises(UserError, match=r"are numbers(?s:.*)images: \{data: 255\}"):
        packed(request_of(bytes_alone, tmp_path / "a.rec", tmp_path, encoding="png"))
    with pytest.raises(UserError, match="arrays, not image files to keep"):
        packed(request_of(labelled(np.zeros(4, np.int32)), tmp_path / "a.rec", tmp_path))
    assert os.listdir(tmp_path) == []


def test_two_processes_do_not_pack_into_one_file(folder: Path, tmp_path: Path) -> None:
    from mxrun.io.pack.journal import Journal

    request = request_of(opened("image_folder", folder), tmp_path / "a.rec", folder)
    journal = Journal(request.target.work, {}, False)
    with pytest.raises(UserError, match="another process packs"):
        packed(request)
    journal.close()
