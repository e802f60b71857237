"""The same images as files and in files of many: the same bits, and configs for them."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from layer_configs import classifier, network_text
from PIL import Image
from training import run_training

from mxrun.commands.evaluate import evaluate
from mxrun.commands.init import init
from mxrun.io.formats.class_names import encode_class_names
from mxrun.io.formats.image_record import pack_image_record
from mxrun.io.formats.recordio import RecordWriter
from mxrun.io.formats.tar_shards import TarWriter
from mxrun.options.evaluate import EvaluateOptions
from mxrun.options.init import InitOptions

NAMES = ("left", "right")


def images() -> list[tuple[int, bytes]]:
    """Twelve images of two classes, in the order in which a folder has them."""
    random = np.random.default_rng(1)
    found = []
    for kind in range(2):
        for _ in range(6):
            pixels = random.integers(0, 90, (8, 8, 3)).astype(np.uint8)
            pixels[:, 4 * kind : 4 * kind + 4] += 120
            stream = io.BytesIO()
            Image.fromarray(pixels).save(stream, "png")
            found.append((kind, stream.getvalue()))
    return found


def write_folder() -> None:
    for number, (kind, content) in enumerate(images()):
        path = Path("photos") / NAMES[kind] / f"{number:03d}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def write_records() -> None:
    for shard, part in enumerate((images()[:5], images()[5:])):
        path = Path(f"photos-{shard}.rec")
        with path.open("wb") as stream, path.with_suffix(".idx").open("wb") as index:
            writer = RecordWriter(stream, index)
            for number, (kind, content) in enumerate(part):
                writer.write(number, pack_image_record(float(kind), number, content))
        path.with_suffix(".classes").write_bytes(encode_class_names(NAMES))


def write_arrays() -> None:
    with Path("arrays.rec").open("wb") as stream:
        writer = RecordWriter(stream)
        for number, (kind, content) in enumerate(images()):
            pixels = np.asarray(Image.open(io.BytesIO(content))).transpose(2, 0, 1)
            array = io.BytesIO()
            np.save(array, np.ascontiguousarray(pixels))
            writer.write(number, pack_image_record(float(kind), number, array.getvalue()))
    Path("arrays.classes").write_bytes(encode_class_names(NAMES))


def write_shards() -> None:
    for shard, part in enumerate((images()[:5], images()[5:])):
        with Path(f"photos-{shard}.tar").open("wb") as stream, TarWriter(stream) as writer:
            for number, (kind, content) in enumerate(part):
                label = NAMES[kind].encode()
                writer.write(f"{shard}{number:05d}", {"png": content, "cls": label})


def write_list() -> None:
    write_folder()
    files = sorted(Path("photos").rglob("*.png"), key=lambda path: path.name)
    Path("photos.csv").write_text("".join(f"{file},{file.parent.name}\n" for file in files))


def config(data: str) -> str:
    network = network_text(classifier(2), inputs="{data: [3, 8, 8], label: []}")
    sections = f"""\
data:
  batch_size: 4
  train: {{{data}, split: {{share: 0.7}}, shuffle: true, transforms: [{{pad_crop: {{pad: 1}}}}]}}
"""
    return network + sections + "train: {epochs: 2, optimizer: {sgd: {lr: 0.1}}}\n"


def metrics_of(data: str) -> bytes:
    Path("net.yaml").write_text(config(data))
    run_training(overwrite=True)
    return Path("runs/net/metrics.jsonl").read_bytes()


def test_the_same_images_give_the_same_bits_in_every_format(empty_folder: Path) -> None:
    for write in (write_folder, write_records, write_arrays, write_shards, write_list):
        write()
    sections = (
        "dataset: image_folder, path: photos",
        'dataset: recordio, path: "photos-*.rec"',
        "dataset: recordio, path: arrays.rec",
        'dataset: webdataset, path: "photos-{0..1}.tar"',
        "dataset: webdataset, path: [photos-0.tar, photos-1.tar]",
        "dataset: image_list, path: photos.csv",
    )
    first, *others = map(metrics_of, sections)
    assert first.count(b"\n") >= 2
    for section, found in zip(sections[1:], others, strict=True):
        assert found == first, section


@pytest.mark.parametrize("file", ["photos-1.rec", "arrays.rec", "photos-1.tar"])
def test_a_config_for_a_file_of_images_trains(empty_folder: Path, file: str) -> None:
    for write in (write_records, write_arrays, write_shards):
        write()
    result = init(InitOptions(source=file))
    assert result.survey.shape == (3, 8, 8)
    assert set(result.survey.train.counts) == set(NAMES)
    summary = run_training("train.epochs=1", config=result.file)
    assert summary["epochs"] == 1


def test_an_evaluation_takes_a_file_of_another_format(empty_folder: Path) -> None:
    """Classes are matched by their names."""
    write_folder()
    write_shards()
    metrics_of("dataset: image_folder, path: photos")
    found = evaluate(EvaluateOptions(run=Path("runs/net"), records=("photos-1.tar",))).run()
    assert found.records == 7
    assert "photos-1.tar" in found.source
