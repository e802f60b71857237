"""Metadata of an ONNX file, as a runtime returns it."""

from __future__ import annotations

import json
import random
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from doc_pages import blocks_of
from layer_configs import classifier, config_text
from onnx_environment import onnx_python
from PIL import Image
from training import run_training

from mxrun import __version__
from mxrun.commands.convert import convert
from mxrun.commands.docs import page
from mxrun.commands.infer import infer
from mxrun.commands.init import init
from mxrun.options.convert import ConvertOptions
from mxrun.options.infer import InferOptions
from mxrun.options.init import InitOptions

pytestmark = pytest.mark.usefixtures("empty_folder")

NET = config_text(
    classifier(2),
    name="shapes",
    inputs="{data: [3, 6, 6], label: []}",
    data="""\
data:
  batch_size: 4
  train:
    dataset: image_folder
    path: images
    split: train
    transforms:
      - random_resized_crop: {size: 6}
      - flip: {}
      - normalize: {mean: [0.5, 0.4, 0.3], std: 0.25}
  eval:
    dataset: image_folder
    path: images
    split: train
    transforms:
      - resize: {size: 8}
      - center_crop: {size: [6, 6]}
      - normalize: {mean: [0.5, 0.4, 0.3], std: 0.25}
""",
)
CLASSES = ["a \u00e9clair", "round"]
_READ = """
import json, onnx, onnxruntime, sys
meta = onnxruntime.InferenceSession(sys.argv[1]).get_modelmeta()
onnx.checker.check_model(onnx.load(sys.argv[1]), full_check=True)
version = onnx.load(sys.argv[1]).producer_version
print(json.dumps([meta.producer_name, version, meta.graph_name, meta.custom_metadata_map]))
"""


def metadata(source: str, *overrides: str) -> dict[str, Any]:
    """The metadata of a converted config or run, JSON texts read; the run's name stays a text."""
    options = ConvertOptions(source=source, output=Path("net.onnx"), overrides=overrides)
    found = convert(options).to_json()["metadata"]
    name = found.pop("mxrun.run")
    return {"mxrun.run": name} | {key: json.loads(text) for key, text in found.items()}


def test_a_runtime_hands_out_classes_and_preprocessing() -> None:
    random = np.random.default_rng(1)
    for name in CLASSES:
        folder = Path("images/train") / name
        folder.mkdir(parents=True)
        for number in range(2):
            pixels = random.integers(0, 256, (9, 10, 3), np.uint8)
            Image.fromarray(pixels).save(folder / f"{number}.png")
    Path("net.yaml").write_text(NET)
    run_training()
    expected = metadata("runs/shapes")
    done = subprocess.run(
        [onnx_python(), "-c", _READ, "net.onnx"], capture_output=True, text=True, check=True
    )
    producer, version, graph, found = json.loads(done.stdout)
    assert (producer, version, graph) == ("mxrun", __version__, "shapes")
    assert found.keys() == {"mxrun.run", "mxrun.classes", "mxrun.preprocessing"}
    assert found["mxrun.run"] == "shapes"
    assert json.loads(found["mxrun.classes"]) == CLASSES
    preprocessing = json.loads(found["mxrun.preprocessing"])
    assert preprocessing == expected["mxrun.preprocessing"]
    assert preprocessing == {
        "data": {
            "shape": [3, 6, 6],
            "layout": "CHW",
            "color": "RGB",
            "scale": {"images": 1 / 255, "arrays": 1 / 255},
            "transforms": [
                {"resize": {"size": 8}},
                {"center_crop": {"size": [6, 6]}},
                {"normalize": {"mean": [0.5, 0.4, 0.3], "std": 0.25}},
            ],
        }
    }


def test_the_preprocessing_is_what_inference_does() -> None:
    """The scale applied to bytes by hand gives the outputs of `infer`."""
    Path("net.yaml").write_text(
        NET.replace("[3, 6, 6]", "[1, 8, 8]")
        .replace("dataset: image_folder\n    path: images", "dataset: digits")
        .replace("random_resized_crop: {size: 6}", "random_crop: {size: 8}")
        .replace("resize: {size: 8}", "resize: {size: 10}")
        .replace("size: [6, 6]", "size: 8")
        .replace("[0.5, 0.4, 0.3]", "0.5")
        .replace("num_hidden: 2", "num_hidden: 10")
    )
    run_training()
    found = metadata("runs/shapes")
    assert found["mxrun.classes"] == [str(digit) for digit in range(10)]
    assert found["mxrun.preprocessing"]["data"] == {
        "shape": [1, 8, 8],
        "layout": "CHW",
        "color": "gray",
        "scale": {"images": 1 / 255, "arrays": 1 / 16},
        "transforms": [
            {"resize": {"size": 10}},
            {"center_crop": {"size": 8}},
            {"normalize": {"mean": 0.5, "std": 0.25}},
        ],
    }
    image = np.random.default_rng(2).integers(0, 256, (10, 12), np.uint8)
    Image.fromarray(image).save("image.png")
    options = InferOptions(run=Path("runs/shapes"), inputs=("image.png",))
    (batch,) = infer(options).batches()
    values = (image[None, None, 1:9, 2:10] * np.float32(1 / 255) - 0.5) / 0.25
    np.save("values.npy", values.astype(np.float32))
    script = (
        "import numpy, onnxruntime\n"
        "model = onnxruntime.InferenceSession('net.onnx')\n"
        "(output,) = model.run(None, {'data': numpy.load('values.npy')})\n"
        "numpy.save('output.npy', output)\n"
    )
    subprocess.run([onnx_python(), "-c", script], check=True)
    np.testing.assert_allclose(np.load("output.npy"), batch.arrays["softmax_output"], rtol=1e-4)


def test_a_config_has_no_classes_and_a_table_no_colours() -> None:
    found = metadata("mlp_regression", "name=plain")
    assert found == {
        "mxrun.run": "plain",
        "mxrun.preprocessing": {"data": {"shape": [8], "transforms": []}},
    }


def test_columns_of_a_table_are_named_in_their_order() -> None:
    rows = ["a,b,kind,c"] + [f"{i},{-i},{('x', 'y')[i % 2]},1" for i in range(8)]
    Path("rows.csv").write_text("\n".join(rows) + "\n")
    options = "path: rows.csv, header: true, label: kind, data: [c, a]"
    data = f"data: {{batch_size: 4, train: {{dataset: csv, {options}}}}}\n"
    text = config_text(classifier(2), name="table", inputs="{data: [2], label: []}", data=data)
    Path("net.yaml").write_text(text)
    run_training()
    found = metadata("runs/table")
    assert found["mxrun.classes"] == ["x", "y"]
    assert found["mxrun.preprocessing"]["data"] == {
        "shape": [2],
        "columns": ["c", "a"],
        "scale": {},
        "transforms": [],
    }


def test_the_encoding_of_a_table_is_told() -> None:
    rows = ["size,color,kind"] + [f"{i},{('red', 'blue')[i % 2]},{i % 3}" for i in range(9)]
    Path("rows.csv").write_text("\n".join(rows) + "\n")
    data = "data: {batch_size: 3, train: {dataset: csv, path: rows.csv, columns: auto}}\n"
    text = config_text(classifier(3), name="table", inputs="{data: [3], label: []}", data=data)
    Path("net.yaml").write_text(text)
    run_training()
    found = metadata("runs/table")["mxrun.preprocessing"]["data"]
    assert found["columns"] == ["size", "color=blue", "color=red"]
    size, color = found["encoding"]
    assert (size["kind"], size["fill"], size["center"], size["spread"]) == (
        *("number", 4, 4),
        pytest.approx(np.std(range(9))),
    )
    assert (color["kind"], color["categories"]) == ("category", ["blue", "red"])


def test_the_vocabulary_of_texts_is_told() -> None:
    lines = [f"{('ham', 'spam')[row % 2]}\tsee you {('now', 'then')[row % 2]}" for row in range(8)]
    Path("lines.txt").write_text("\n".join(lines) + "\n")
    Path("net.yaml").write_text(
        "name: words\nnetwork:\n  inputs: {data: [4], label: []}\n  layers:\n"
        "    - Embedding: {name: embed, input_dim: 6, output_dim: 3}\n"
        "    - FullyConnected: {name: fc, num_hidden: 2}\n"
        "    - SoftmaxOutput: {name: softmax, label: label}\n"
        "data: {batch_size: 4, train: {dataset: text_lines, path: lines.txt, vocabulary: 6}}\n"
        "train: {epochs: 1, optimizer: {sgd: {lr: 0.1}}}\n"
    )
    run_training()
    found = metadata("runs/words")["mxrun.vocabulary"]
    assert set(found["tokens"]) >= {"see", "you", "now", "then"}
    assert found["kind"] == "words"


def test_the_program_of_the_page_on_texts_classifies_them_by_the_file_alone() -> None:
    words = {
        "weather": ["rain", "sun", "don't", "it's", "20", "°C"],
        "sport": ["goal,", "(match)", "win!"],
    }
    draws = random.Random(0)
    lines = [
        f"{kind}\t{' '.join(draws.choices(words[kind], k=draws.randint(2, 7)))}"
        for kind in [*words] * 60
    ]
    Path("news.txt").write_text("\n".join(lines) + "\n")
    init(InitOptions(source="news.txt"))
    run_training("train.epochs=2", config=Path("news.yaml"))
    convert(ConvertOptions(source="runs/news", output=Path("news.onnx")))
    texts = ["It's 20 °C: rain", "goal, GOAL (match)", "unheard words " * 9, "win!"]
    Path("new.txt").write_text("\n".join(texts) + "\n")
    (program,) = (each.text for each in blocks_of(page("text").text) if "onnxruntime" in each.text)
    Path("classify.py").write_text(program)
    command = [onnx_python(), "classify.py", "news.onnx", "new.txt"]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    shown = [line.split() for line in printed.splitlines()]
    (batch,) = infer(InferOptions(run=Path("runs/news"), inputs=("new.txt",))).batches()
    (chances,) = batch.arrays.values()
    assert [name for name, _ in shown] == [["sport", "weather"][each] for each in chances.argmax(1)]
    np.testing.assert_allclose([float(each) for _, each in shown], chances.max(1), atol=1e-4)
