"""Configs of every transform, and of the order and choice of records."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from proof.batch_config import FIT, IMAGE, LINES, SMALL, TABLE, TEXT, Config, case

_SQUARE = {"resize": {"size": [20, 20]}}
_CROP = {"center_crop": {"size": 16}}
_CHANGES: dict[str, Sequence[Any]] = {
    "resize shorter side": ({"resize": {"size": 17}}, _CROP),
    "resize to more": ({"resize": {"size": [70, 61]}}, _CROP),
    "center_crop": (_SQUARE, {"center_crop": {"size": [16, 16]}}),
    "random_crop": ({"random_crop": {"size": 16}},),
    "random_crop of sides": ({"random_crop": {"size": [30, 32]}}, *FIT),
    "random_resized_crop": ({"random_resized_crop": {"size": 16}},),
    "random_resized_crop narrow": (
        {"random_resized_crop": {"size": [16, 16], "area": [0.5, 0.6], "ratio": [0.4, 0.5]}},
    ),
    "pad_crop": (*FIT, {"pad_crop": {"pad": 3}}),
    "flip": (*FIT, "flip"),
    "flip often": (*FIT, {"flip": {"probability": 0.9}}),
    "rotation": (*FIT, {"rotation": {"degrees": 15}}),
    "rotation to all sides": (_SQUARE, {"rotation": {"degrees": 180}}, _CROP),
    "affine degrees": (*FIT, {"affine": {"degrees": 30}}),
    "affine translate": (*FIT, {"affine": {"translate": 0.3}}),
    "affine scale": (*FIT, {"affine": {"scale": [0.5, 1.5]}}),
    "affine shear": (*FIT, {"affine": {"shear": 30}}),
    "affine": (
        *FIT,
        {"affine": {"degrees": 10, "translate": 0.1, "scale": [0.9, 1.1], "shear": 10}},
    ),
    "cutout": (*FIT, {"cutout": {"size": 5}}),
    **{
        f"color_jitter {kind}": (*FIT, {"color_jitter": {kind: 0.5}})
        for kind in ("brightness", "contrast", "saturation", "hue")
    },
    "color_jitter": (
        *FIT,
        {"color_jitter": {"brightness": 0.2, "contrast": 0.3, "saturation": 0.4, "hue": 0.1}},
    ),
    "grayscale": (*FIT, {"grayscale": {"probability": 0.5}}),
    "grayscale always": (*FIT, {"grayscale": {"probability": 1}}),
    "lighting": (*FIT, {"lighting": {"std": 0.2}}),
    "normalize": (*FIT, {"normalize": {"mean": 0.4, "std": 0.25}}),
    "normalize channels": (
        *FIT,
        {"normalize": {"mean": [0.4, 0.5, 0.6], "std": [0.1, 0.2, 0.3]}},
    ),
    "as of ImageNet": (
        {"random_resized_crop": {"size": 16}},
        "flip",
        {"color_jitter": {"brightness": 0.4, "contrast": 0.4, "saturation": 0.4}},
        "lighting",
        {"normalize": {"mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225]}},
    ),
    "geometry": (
        {"resize": {"size": 24}},
        {"affine": {"degrees": 20, "shear": 5}},
        {"pad_crop": {"pad": 2}},
        {"random_crop": {"size": 18}},
        "flip",
        {"rotation": {"degrees": 9}},
        _CROP,
    ),
    "values before geometry": (
        {"normalize": {"mean": 0.5, "std": 0.5}},
        {"random_resized_crop": {"size": 16}},
        "flip",
        {"cutout": {"size": 4}},
        {"cutout": {"size": 3}},
    ),
    "of a plugin": (*FIT, "noisy", "flip"),
}
_ON_ARRAYS: dict[str, Sequence[Any]] = {
    "as of CIFAR": (
        {"pad_crop": {"pad": 2}},
        "flip",
        {"cutout": {"size": 4}},
        {"normalize": {"mean": 0.5}},
    ),
    "colours": ("grayscale", {"color_jitter": {"hue": 0.3, "contrast": 0.1}}, "lighting"),
    "turned": ({"rotation": {"degrees": 90}}, {"affine": {"translate": 0.2}}),
    "none": (),
}
_PROBABILITIES = {"data": "float32 3 12 10", "label": "float32 3"}
_ONE_HOT = {"one_hot": {"classes": 3, "label": "label"}}

TRANSFORMS: dict[str, Config] = {
    **{
        name: case(IMAGE, "image_folder", {"split": "rest"}, path="photos", transforms=chain,
                   split={"share": 0.9})
        for name, chain in _CHANGES.items()
    },
    **{
        f"{name}, of arrays": case(SMALL, "npz", {"path": "pixels.npz"}, path="pixels.npz",
                                   images={"data": 255}, transforms=chain)
        for name, chain in _ON_ARRAYS.items()
    },
    "numbers": case(TABLE, "npz", path="numbers.npz", transforms=[
        {"normalize": {"mean": [1, 2, 3, 4, 5, 6], "std": [1, 2, 1, 2, 1, 2]}}]),
    "numbers of a plugin": case(TABLE, "csv", path="numbers.tsv", transforms=["noisy"]),
    "of a plugin, in processes": case(IMAGE, "image_folder", path="photos",
        transforms=[*FIT, "noisy"], section={"worker_kind": "process", "worker_timeout": 500}),
    "of a plugin, in threads": case(IMAGE, "image_folder", path="photos",
        transforms=[*FIT, "noisy"], section={"worker_kind": "thread"}),
    "one_hot": case(_PROBABILITIES, "npz", {}, path="pixels.npz", transforms=[_ONE_HOT]),
    "mixup": case(_PROBABILITIES, "npz", {}, path="pixels.npz", images={"data": 255},
                  transforms=["flip", _ONE_HOT, "mixup"]),
    "mixup of most": case(_PROBABILITIES, "webdataset", path="shard-*.tar",
                          transforms=[{"random_resized_crop": {"size": [12, 10]}}, _ONE_HOT,
                                      {"mixup": {"alpha": 3}}]),
}  # fmt: skip


def _resumed(config: Config, *stops: int) -> Config:
    """Stop at these steps and go on in the same run, to its end."""
    return config | {"stops": [*stops, 20]}


def _numbers(evaluate: Any = None, section: Any = None, **options: Any) -> Config:
    return case(TABLE, "npz", evaluate, section, path="numbers.npz", **options)


def _photos(evaluate: Any = None, section: Any = None, **options: Any) -> Config:
    given = {"path": "photos", "transforms": [*FIT, "flip"], **options}
    return case(IMAGE, "image_folder", evaluate, section, **given)


def _damaged(path: str = "damaged", **section: Any) -> Config:
    return _photos({"path": path}, section, path=path)


ORDER: dict[str, Config] = {
    **{
        f"last_batch {kind}{name}": make({"split": "rest"}, {"last_batch": kind},
                                         split={"share": 0.9})
        for kind in ("pad", "discard", "roll_over")
        for name, make in (("", _numbers), (" of photos", _photos))
    },
    "in order": _numbers(shuffle=False),
    "photos in order": _photos(shuffle=False, section={"prefetch": 5}),
    "window": _numbers(shuffle={"window": 9}),
    "window of photos": _photos(shuffle={"window": 20}, section={"prefetch": 1}),
    "window of records": case(IMAGE, "webdataset", path="shard-*.tar", transforms=FIT,
                              shuffle={"window": 12}),
    "balanced": _numbers(shuffle=False, sampling="balanced"),
    "balanced photos": _photos(shuffle=False, sampling="balanced"),
    "range": _numbers({"split": "rest"}, split={"range": [11, 70]}),
    "share": _photos({"split": "rest"}, split={"share": 0.75, "seed": 2}),
    "share of each class": _photos({"split": "rest"},
                                   split={"share": 0.75, "seed": 2, "stratify": True}),
    "parts": _numbers(num_parts=3, part_index=1),
    "parts of photos": _photos(num_parts=2, part_index=1, split={"share": 0.9}),
    "another seed": _photos() | {"seed": 12},
    "another seed of numbers": _numbers() | {"seed": 12},
    "kept in memory": case(SMALL, "image_folder", path="same", transforms=["flip"]),
    "kept in memory, no transforms": case(SMALL, "image_folder", path="same"),
    "resumed": _resumed(_numbers(), 3, 14),
    "resumed photos": _resumed(_photos(), 7),
    "resumed, kept in memory": _resumed(case(SMALL, "image_folder", path="same",
                                             transforms=["flip"]), 13),
    "resumed window": _resumed(_photos(shuffle={"window": 20}), 13),
    "resumed roll_over": _resumed(_photos(section={"last_batch": "roll_over"}), 9, 12),
    "resumed balanced": _resumed(_photos(shuffle=False, sampling="balanced"), 5),
    "resumed buckets": _resumed(case(LINES, "text_lines", path="lines.txt", buckets=[4, 7]), 8),
    "resumed stream": _resumed(case(TEXT, "text", path="book.txt", order="stream",
                                    shuffle=False), 5),
    "left out": _damaged(on_bad_record="skip", max_bad_records=20),
    "left out of records": case(IMAGE, "webdataset", None, {"on_bad_record": "skip"},
                                path="damaged.tar", transforms=[*FIT, "flip"]),
    "refused: damaged": _damaged(on_bad_record="error"),
    "refused: too many damaged": _damaged(on_bad_record="skip", max_bad_records=2),
    "refused: another path": _damaged(path="nowhere"),
    "weights of classes": _numbers(),
}  # fmt: skip
ORDER["weights of classes"]["train"]["class_weights"] = "balanced"
