"""Configs of every data set and file format, with their options."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from proof.batch_config import FIT, GREY, IMAGE, LINES, SMALL, TABLE, TEXT, Config, case


def _columns(**columns: Any) -> Config:
    return {"path": "table.csv", "columns": columns}


TABLES = {
    "csv header, words": case(
        {"data": "float32 7", "label": "int32"},
        "csv",
        {"split": "rest"},
        split={"share": 0.8, "stratify": True, "seed": 3},
        **_columns(size="number", level="number", port="category", name="ignore", day="ignore"),
    ),
    "csv columns with parameters": case(
        {"data": "float32 9", "label": "int32"},
        "csv",
        {"path": "table16.csv"},
        **_columns(
            size={"number": {"missing": "median", "indicator": True, "scale": "minmax"}},
            level={"category": {"encoding": "ordinal", "order": ["4", "3", "2", "1"]}},
            port={"category": {"min_count": 19, "missing": "most_frequent"}},
            day={"date": {"format": "%Y-%m-%d"}},
            fare={"number": {"scale": "log"}},
            name="ignore",
        ),
        label="kind",
        header=True,
    ),
    "csv label of numbers": case(
        {"data": "float32 2", "label": "float32"},
        "csv",
        path="table.csv",
        label="fare",
        data=["level", "level"],
    ),
    "csv encoding": case(
        {"data": "float32 5", "label": "int32"},
        "csv",
        path="table_cp1252.csv",
        encoding="cp1252",
        columns={"port": "category", "*": "ignore", "level": "number"},
    ),
    "csv of numbers, tabs": case(TABLE, "csv", path="numbers.tsv"),
    "csv delimiter": case(TABLE, "csv", path="numbers.txt", delimiter="|", header=False),
    "csv gz, columns by number": case(
        {"data": "float32 2 1", "label": "int32"},
        "csv",
        path="numbers.csv.gz",
        data=[4, 1],
        label=-1,
    ),
    "csv in parts": case(TABLE, "csv", path="part-*.csv"),
    "csv without a label": case({"data": "float32 7"}, "csv", path="part-{0..1}.csv", label=None),
    "libsvm": case(TABLE, "libsvm", path="rows.svm", first_index=1, outputs=4),
    "libsvm several classes": case(
        {"data": "float32 6", "label": "float32 3"},
        "libsvm",
        path=["several.svm"],
        first_index=0,
        separator=",",
        classes=["c", "b", "a"],
    ),
}

ARRAYS = {
    "npz": case(TABLE, "npz", {"split": "rest"}, path="numbers.npz", split={"share": 0.7}),
    "npz words, names": case(
        TABLE, "npz", path="words.npz", arrays={"data": "table", "label": "kind"}
    ),
    "npz images": case(SMALL, "npz", path="pixels.npz", images={"data": 255}),
    "npz pixels as numbers": case(SMALL, "npz", path="pixels.npz"),
    "npz images of two bytes": case(
        {"data": "float32 3 12 10", "label": "float32 2"},
        "npz",
        path="deep.npz",
        images={"data": 65535},
    ),
    "npz in parts, from files": case(
        SMALL, "npz", path="shard-*.npz", in_memory=False, images={"data": 255}
    ),
    "npy": case(TABLE, "npy", path="arrays"),
    "npy from files, three inputs": case(
        {"data": "float32 1 12 10", "mask": "float32 3", "label": "int32"},
        "npy",
        path="arrays",
        arrays={"data": "pixels"},
        images={"data": 255},
        in_memory=False,
    ),
}

IMAGES = {
    "image_folder": case(
        IMAGE,
        "image_folder",
        {"split": "rest"},
        path="photos",
        transforms=FIT,
        split={"share": 0.9},
    ),
    "image_folder grey": case(GREY, "image_folder", path="photos", transforms=FIT),
    "image_folder as stored": case(
        IMAGE, "image_folder", path="photos", transforms=FIT, exif_orientation=False
    ),
    "image_list, several classes": case(
        {"data": "float32 3 16 16", "label": "float32 3"},
        "image_list",
        path="photos.csv",
        root="photos",
        separator="|",
        classes=["kite", "jar", "hat"],
        transforms=FIT,
    ),
    "image_list of MXNet, two numbers": case(
        {"data": "float32 3 16 16", "label": "float32 2"},
        "image_list",
        path="photos.lst",
        root="photos",
        exif_orientation=False,
        transforms=FIT,
    ),
    "image_list boxes": case(
        {"data": "float32 3 16 16", "label": "float32 3 5"},
        "image_list",
        {"path": "boxes.lst", "root": "photos"},
        path="boxes.lst",
        root="photos",
        transforms=[
            {"random_resized_crop": {"size": 18}},
            "flip",
            {"pad_crop": {"pad": 2}},
            {"random_crop": {"size": 16}},
        ],
    ),
    "webdataset": case(IMAGE, "webdataset", path="shard-{0..1}.tar", transforms=FIT),
    "webdataset json": case(
        IMAGE,
        "webdataset",
        path=["shard-1.tar", "shard-0.tar"],
        label="json",
        key="annotation.kind",
        classes=["jar", "kite", "hat"],
        exif_orientation=False,
        transforms=FIT,
    ),
    "webdataset arrays": case(
        {"data": "float32 3 12 10", "label": "float32 2"}, "webdataset", path="raw.tar", image="npy"
    ),
    "webdataset separator": case(
        {"data": "float32 3 16 16", "label": "float32 3"},
        "webdataset",
        path="shard-0.tar",
        separator="|",
        transforms=FIT,
    ),
}

# `mxrun pack` SOURCE OUT and options; the records of each are trained on.
PACKS: Mapping[str, tuple[str, Sequence[str]]] = {
    "keep.rec": ("photos", ()),
    "jpeg.rec": ("photos", ("--encoding", "jpeg", "--quality", "80")),
    "png.rec": ("photos", ("--encoding", "png", "--resize", "20")),
    "grey.rec": ("photos", ("--encoding", "raw", "--shards", "2", "--channels", "1")),
    "mixed.rec": ("whole.lst", ("--shuffle", "--seed", "4", "--workers", "2")),
    "kept.tar": ("photos", ("--shard-size", "32 KiB")),
    "raw.tar": ("photos", ("--encoding", "raw", "--resize", "20")),
    "good.rec": ("damaged", ("--encoding", "png", "--on-bad-record", "skip")),
}


def _packed(pack: str, inputs: Mapping[str, str] = IMAGE, **options: Any) -> Config:
    stem, _, form = pack.rpartition(".")
    dataset = {"rec": "recordio", "tar": "webdataset"}[form]
    return case(inputs, dataset, path=f"packed/{stem}*.{form}", transforms=FIT, **options)


PACKED = {
    **{f"packed {pack}": _packed(pack) for pack in PACKS if pack not in ("mixed.rec", "grey.rec")},
    "packed grey": _packed("grey.rec", GREY),
    "packed two numbers": _packed("mixed.rec", {"data": "float32 3 16 16", "label": "float32 2"}),
    "packed as stored": _packed("keep.rec", exif_orientation=False),
    "packed index": _packed("png.rec", index="png.idx"),
}

PUBLISHED = {
    "mnist": case({"data": "float32 1 28 28", "label": "int32"}, "mnist", {"path": "mnist"},
                  outputs=10, path="mnist"),
    "fashion_mnist": case({"data": "float32 1 28 28", "label": "int32"}, "fashion_mnist",
                          outputs=10, path="mnist", split={"of": "train", "range": [5, 60]}),
    "cifar10": case({"data": "float32 3 32 32", "label": "int32"}, "cifar10", {"path": "cifar10"},
                    outputs=10, path="cifar10"),
    "cifar100 fine": case({"data": "float32 3 32 32", "label": "int32"}, "cifar100",
                          {"labels": "fine"}, outputs=100, path="cifar100", labels="fine"),
    "cifar100 coarse": case({"data": "float32 3 32 32", "label": "int32"}, "cifar100", outputs=20,
                            path="cifar100", labels="coarse"),
    "digits": case({"data": "float32 1 8 8", "label": "int32"}, "digits", {"split": "test"},
                   outputs=10, split={"of": "train", "range": [0, 80]}),
    "synthetic": case({"data": "float32 2 3", "label": "int32"}, "synthetic", {}, outputs=4,
                      records=80, seed=5, classes=4),
    "synthetic probabilities": case({"data": "float32 5", "label": "float32 4"}, "synthetic",
                                    outputs=4, records=80),
    "regression": case({"data": "float32 5", "label": "float32 2"}, "regression", {}, outputs=2,
                       records=80, noise=0.1, seed=2),
}  # fmt: skip

_BOOK: dict[str, Any] = {"path": "book.txt"}
TEXTS = {
    "text characters": case(TEXT, "text", {"split": "test"}, **_BOOK, stride=7, held_out=0.2),
    "text bytes": case(TEXT, "text", path=["book2.txt", "book.txt"], tokens="bytes", split="all"),
    "text words": case(
        TEXT, "text", **_BOOK, tokens="words", lower=True, punctuation=False, min_count=3, length=12
    ),
    "text vocabulary": case(TEXT, "text", **_BOOK, vocabulary=9, unknown="?"),
    "text stream": case(TEXT, "text", {"split": "test"}, **_BOOK, order="stream", shuffle=False),
    "tiny_shakespeare": case(
        TEXT,
        "tiny_shakespeare",
        path="tiny",
        tokens="words",
        lower=True,
        punctuation=False,
        min_count=2,
        vocabulary=9,
        unknown="?",
        length=12,
        stride=5,
        held_out=0.3,
    ),
    "tiny_shakespeare stream": case(
        TEXT, "tiny_shakespeare", path="tiny", order="stream", shuffle=False
    ),
    "shakespeare": case(TEXT, "shakespeare", split={"range": [10, 90]}),
    "shakespeare words": case(
        TEXT,
        "shakespeare",
        tokens="words",
        lower=True,
        punctuation=False,
        min_count=2,
        vocabulary=900,
        unknown="?",
        length=12,
        stride=5,
        held_out=0.99,
    ),
    "shakespeare stream": case(TEXT, "shakespeare", held_out=0.99, order="stream", shuffle=False),
    "text_lines": case(LINES, "text_lines", {"split": "rest"}, path="lines.txt",
                       split={"share": 0.8}),
    "text_lines buckets": case(
        LINES, "text_lines", {"path": "lines.txt"}, path="lines.txt", buckets=[4, 7]
    ),
    "text_lines several classes": case(
        {**LINES, "label": "float32 3"},
        "text_lines",
        path="several.txt",
        form="lines",
        delimiter="~",
        encoding="cp1252",
        separator="|",
        classes=["kite", "hat", "jar"],
    ),
    "text_lines table": case(
        LINES,
        "text_lines",
        path="reviews.csv",
        form="csv",
        delimiter=";",
        text="body",
        label="stars",
        tokens="characters",
        lower=False,
        kept="end",
        padding=0,
        unknown="<u>",
    ),
    "text_lines json": case(
        LINES,
        "text_lines",
        path="reviews.jsonl",
        punctuation=False,
        vocabulary=8,
        min_count=2,
        length=10,
        padding=3,
    ),
    "shakespeare_speeches": case(
        LINES,
        "shakespeare_speeches",
        {"split": "test"},
        split={"share": 0.1, "stratify": True},
        vocabulary=200,
        buckets=[5],
    ),
    "shakespeare_speeches options": case(
        {**LINES, "label": "float32 3"},
        "shakespeare_speeches",
        split={"share": 0.1},
        classes=["The Taming of the Shrew", "Coriolanus", "Romeo and Juliet"],
        tokens="characters",
        lower=False,
        punctuation=False,
        min_count=2,
        unknown="<u>",
        length=10,
        kept="end",
        padding=2,
        separator="|",
    ),
}  # fmt: skip

PARQUET = {
    "parquet images": case(
        IMAGE,
        "parquet",
        {"split": "rest"},
        path="rows.parquet",
        columns={"data": "image", "label": "kind"},
        classes=["kite", "jar", "hat"],
        transforms=FIT,
        split={"share": 0.8},
    ),
    "parquet as stored": case(
        IMAGE,
        "parquet",
        path="rows.parquet",
        columns={"data": "image", "label": "kind"},
        exif_orientation=False,
        transforms=FIT,
    ),
    "parquet lists": case(TABLE, "parquet", path="rows.arrow",
                          columns={"data": "list", "label": "kind"}),
    "parquet numbers": case(
        {"data": "float32 2", "label": "float32"},
        "parquet",
        path="rows.parquet",
        columns={"data": ["second", "first"], "label": "second"},
        images={},
    ),
}  # fmt: skip
