"""HTML for notebooks: self-contained, escaped, well-formed."""

from __future__ import annotations

import base64
import re
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from PIL import Image

import mxrun


class Checked(HTMLParser):
    """Parser that checks the nesting of tags, and collects text and images."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.texts: list[str] = []
        self.images: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in {"div", "table", "thead", "tbody", "tr", "th", "td", "img"}
        assert {name for name, _ in attrs} <= {"style", "alt", "src"}
        if tag == "img":
            self.images.append(str(dict(attrs)["src"]))
        else:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def checked(shown: object) -> Checked:
    html = shown._repr_html_()  # type: ignore[attr-defined]
    parser = Checked()
    parser.feed(html)
    parser.close()
    assert not parser.open
    for image in parser.images:
        kind, _, data = image.partition("base64,")
        assert kind == "data:image/svg+xml;"
        svg = base64.b64decode(data).decode()
        ElementTree.fromstring(svg)
        assert not re.search(r"(href|src)=\"https?:", svg)
    return parser


@pytest.mark.commands
def test_every_result_has_html(empty_folder: Path) -> None:
    layers = [
        {"FullyConnected": {"name": "dense", "num_hidden": 10}},
        {"SoftmaxOutput": {"name": "softmax", "label": "label"}},
    ]
    config = {
        "name": "small",
        "network": {"inputs": {"data": [1, 8, 8], "label": []}, "layers": layers},
        "data": {
            "batch_size": 64,
            "train": {"dataset": "digits", "split": "train"},
            "eval": {"dataset": "digits", "split": "test"},
        },
        "train": {"epochs": 1, "optimizer": {"sgd": {"lr": 0.1}}, "metrics": ["accuracy"]},
    }
    model = mxrun.load(config)
    result = model.fit(progress=False)
    assert "dense_weight" in checked(model.parameters).texts
    assert "dense_weight" in checked(model.plan()).texts
    assert len(checked(model).images) == len(checked(result).images) == 1
    evaluated = model.evaluate(errors=2)
    assert "confusion matrix: labels in rows, predictions in columns" in checked(evaluated).texts
    assert "record" in checked(model.predict(np.zeros((1, 8, 8)))).texts
    assert repr(model.predict(np.zeros((1, 8, 8)))).startswith("<Prediction of 1 record: ")
    assert len(checked(model.network).images) == 1


def test_names_of_classes_and_files_are_escaped() -> None:
    classes = ("<script>alert(1)</script>", "b")
    shown = mxrun.Prediction({"out": np.array([[0.9, 0.1]])}, [("<i>.png", 0)], classes)
    html = shown._repr_html_()
    assert "<script" not in html
    assert "&lt;i&gt;.png 0" in html


def test_names_of_folders_and_files_become_no_markup(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    classes = ("<img src=x onerror=alert(1)>", "\"'>&<script>alert(2)<", "c-->]]>")
    for name in classes:
        (tmp_path / "data" / name).mkdir(parents=True)
        pixels = draw.integers(0, 256, (8, 8), np.uint8)
        Image.fromarray(pixels).save(tmp_path / "data" / name / "<b onclick=1>\"'&.png")
    images = {"dataset": "image_folder", "path": str(tmp_path / "data")}
    config = {
        "network": {
            "inputs": {"data": [1, 8, 8], "label": []},
            "layers": [
                {"FullyConnected": {"num_hidden": 3}},
                {"SoftmaxOutput": {"name": "softmax", "label": "label"}},
            ],
        },
        "data": {"batch_size": 3, "train": images, "eval": images},
        "train": {"epochs": 1, "optimizer": "sgd"},
    }
    model = mxrun.load(config, runs=tmp_path / "<b onclick=1>\"'&")
    result = model.fit(progress=False)
    evaluated = model.evaluate(errors=3)
    for shown in (model, result, evaluated):
        checked(shown)
    assert all(name in checked(evaluated).texts for name in classes)
