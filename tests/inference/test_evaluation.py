"""Evaluations against formulas in NumPy, for every kind of loss, and the records that they read."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from layer_configs import config_text, listed
from PIL import Image
from refusals import only_problem
from training import run_training

from mxrun.base.errors import Diagnostic, UserError
from mxrun.base.tensor import TensorSpec
from mxrun.commands.evaluate import Evaluation, evaluate, prepare_evaluation
from mxrun.commands.infer import infer
from mxrun.inference.data_part import DataPart
from mxrun.inference.head_statistics import HeadEvaluation
from mxrun.io.dataset.request import open_datasets, request_dataset
from mxrun.options.evaluate import EvaluateOptions
from mxrun.options.infer import InferOptions
from mxrun.run.trained_model import TrainedModel

Array = npt.NDArray[Any]

RECORDS, CLASSES = 70, 4
HEADS = config_text(
    listed(
        "FullyConnected: {name: classes, num_hidden: 4}",
        "SoftmaxOutput: {name: softmax, data: classes, label: kind_label, ignore_label: 3, "
        "use_ignore: true}",
        "FullyConnected: {name: one, data: data, num_hidden: 1}",
        "LogisticRegressionOutput: {name: binary, data: one, label: one_label}",
        "FullyConnected: {name: several, data: data, num_hidden: 3}",
        "LogisticRegressionOutput: {name: tags, data: several, label: tags_label}",
        "FullyConnected: {name: numbers, data: data, num_hidden: 2}",
        "LinearRegressionOutput: {name: linear, data: numbers, label: numbers_label}",
    ),
    name="heads",
    settings="threads: 1\n",
    inputs="{data: [5], kind_label: [], one_label: [1], tags_label: [3], numbers_label: [2]}",
    other_keys="  outputs: [softmax, binary, tags, linear]\n",
    data="data:\n  batch_size: 16\n  train: {dataset: npz, path: heads.npz}\n"
    "  eval: {dataset: npz}\n",
    train="train: {epochs: 3, optimizer: {sgd: {lr: 0.05}}}\n",
)
IMAGES = config_text(
    listed("FullyConnected: {name: fc, num_hidden: 3}", "SoftmaxOutput: {label: label}"),
    name="images",
    settings="threads: 1\n",
    inputs="{data: [1, 4, 4], label: []}",
    data="""\
data:
  batch_size: 4
  train: {dataset: image_folder, path: images, split: train, shuffle: true,
          transforms: [{normalize: {mean: 0.5, std: 0.25}}]}
  eval: {dataset: image_folder, split: test}
""",
    train="train: {epochs: 12, optimizer: {sgd: {lr: 0.1}}}\n",
)
TABLE = config_text(
    listed("FullyConnected: {name: fc, num_hidden: 3}", "SoftmaxOutput: {label: label}"),
    name="table",
    settings="threads: 1\n",
    inputs="{data: [2], label: []}",
    data="data:\n  batch_size: 8\n  train: {dataset: csv, path: rows.csv, header: true, "
    "label: kind, split: {share: 0.7, stratify: true}}\n  eval: {dataset: csv, split: rest}\n",
    train="train: {epochs: 5, optimizer: {sgd: {lr: 0.1}}}\n",
)


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with three trained runs and their data."""
    folder = tmp_path_factory.mktemp("evaluated")
    random = np.random.default_rng(4)
    data = random.standard_normal((RECORDS, 5)).astype("f4")
    np.savez(
        folder / "heads.npz",
        data=data,
        kind_label=random.integers(0, CLASSES, RECORDS),
        one_label=(data[:, :1] + random.standard_normal((RECORDS, 1)) > 0.3).astype("f4"),
        tags_label=(data[:, :3] + random.standard_normal((RECORDS, 3)) > 0).astype("f4"),
        numbers_label=(data[:, :2] * 2 + random.standard_normal((RECORDS, 2))).astype("f4"),
    )
    for split, count in (("train", 6), ("test", 3)):
        for number, name in enumerate(("ant", "bee", "cat")):
            (folder / "images" / split / name).mkdir(parents=True)
            for index in range(count):
                pixels = random.integers(0, 100, (4, 4))
                pixels[number] += 150
                image = Image.fromarray(pixels.astype(np.uint8))
                image.save(folder / "images" / split / name / f"{index}.png")
    kinds = ["ant", "bee", "cat"]
    rows = [f"{x:.4f},{y:.4f},{kinds[i % 3]}" for i, (x, y) in enumerate(data[:60, :2] + 0.0)]
    (folder / "rows.csv").write_text("x,y,kind\n" + "\n".join(rows) + "\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for name, text in (("heads", HEADS), ("images", IMAGES), ("table", TABLE)):
            Path(f"{name}.yaml").write_text(text)
            run_training(config=Path(f"{name}.yaml"))
    return folder


@pytest.fixture
def here(work: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(work)
    return work


def evaluated(run: str, *records: str, **options: Any) -> Evaluation:
    return evaluate(EvaluateOptions(run=Path("runs", run), records=records, **options)).run()


def problem(run: str, *records: str, **options: Any) -> Diagnostic:
    return only_problem(evaluated, run, *records, **options)


def outputs(run: str, *names: str) -> dict[str, Array]:
    """The outputs of layers for the evaluation data, as `infer` gives them."""
    inference = infer(InferOptions(run=Path("runs", run), split="eval", outputs=names))
    batches = [batch.arrays for batch in inference.batches()]
    return {name: np.concatenate([batch[name] for batch in batches]) for name in names}


def by_class(labels: Array, predicted: Array, number: int) -> dict[str, float]:
    """Precision, recall, F1 and support of one class, counted record by record."""
    pairs = list(zip(labels.tolist(), predicted.tolist(), strict=True))
    hits = sum(label == best == number for label, best in pairs)
    false = sum(label != number == best for label, best in pairs)
    missed = sum(label == number != best for label, best in pairs)
    precision = hits / (hits + false) if hits + false else 0.0
    recall = hits / (hits + missed) if hits + missed else 0.0
    both = precision + recall
    f1 = 2 * precision * recall / both if both else 0.0
    return {"precision": precision, "recall": recall, "f1": f1, "support": hits + missed}


def assert_rows(rows: Any, expected: list[dict[str, float]]) -> None:
    for row, figures in zip(rows, expected, strict=True):
        assert {key: row[key] for key in figures} == pytest.approx(figures)


def test_classes_are_counted_as_by_hand(here: Path) -> None:
    head = evaluated("heads", errors=RECORDS).heads[0]
    probabilities = outputs("heads", "softmax")["softmax"].astype("f8")
    with np.load("heads.npz") as held:
        labels = held["kind_label"]
    predicted = probabilities.argmax(1)
    counted = labels != 3
    rows = [by_class(labels[counted], predicted[counted], number) for number in range(CLASSES)]
    assert (head.name, head.kind, head.classes) == ("softmax", "classes", ("0", "1", "2", "3"))
    assert_rows(head.rows, rows)
    table = [[0] * CLASSES for _ in range(CLASSES)]
    for label, best in zip(labels[counted], predicted[counted], strict=True):
        table[label][best] += 1
    assert head.confusion == tuple(map(tuple, table))
    assert head.mistakes[0][2] == max(
        table[i][j] for i in range(CLASSES) for j in range(CLASSES) if i != j
    )
    assert head.averages is not None
    occurring = [row for row in rows if row["support"]] + [
        row for number, row in enumerate(rows) if not row["support"] and number in predicted
    ]
    total = sum(row["support"] for row in rows)
    for figure in ("precision", "recall", "f1"):
        macro = np.mean([row[figure] for row in occurring])
        weighted = sum(row[figure] * row["support"] for row in rows) / total
        assert head.averages["macro"][figure] == pytest.approx(macro)
        assert head.averages["weighted"][figure] == pytest.approx(weighted)
    assert head.metrics["accuracy"] == pytest.approx(np.mean((predicted == labels)[counted]))
    assert head.metrics["balanced_accuracy"] == pytest.approx(
        np.mean([row["recall"] for row in rows if row["support"]])
    )
    losses = -np.log(probabilities[np.arange(RECORDS), labels])
    worst = [number for number in np.argsort(-losses) if counted[number]]
    assert [error["record"] for error in head.errors] == worst
    assert [error["loss"] for error in head.errors] == pytest.approx(losses[worst], abs=1e-5)
    assert [error["prediction"] for error in head.errors] == predicted[worst].tolist()
    assert head.metrics["cross_entropy"] == pytest.approx(losses[counted].mean(), abs=1e-5)


def test_single_probabilities_are_two_classes(here: Path) -> None:
    head = evaluated("heads", errors=5).heads[1]
    values = outputs("heads", "binary")["binary"].reshape(-1).astype("f8")
    with np.load("heads.npz") as held:
        labels = held["one_label"].reshape(-1).astype(int)
    predicted = (values > 0.5).astype(int)
    assert head.kind == "binary"
    assert_rows(head.rows, [by_class(labels, predicted, number) for number in (0, 1)])
    pairs = [
        (own > other) + (own == other) / 2
        for own in values[labels == 1]
        for other in values[labels == 0]
    ]
    assert head.metrics["auc"] == pytest.approx(np.mean(pairs), rel=1e-12)
    assert head.metrics["f1"] == pytest.approx(head.rows[1]["f1"])
    own = np.where(labels == 1, values, 1 - values)
    worst = np.argsort(own)[:5]
    assert [error["record"] for error in head.errors] == worst.tolist()
    assert [error["label_probability"] for error in head.errors] == pytest.approx(own[worst])


def test_each_of_several_labels_has_its_figures(here: Path) -> None:
    head = evaluated("heads", errors=1).heads[2]
    predicted = (outputs("heads", "tags")["tags"] > 0.5).astype(int)
    with np.load("heads.npz") as held:
        labels = held["tags_label"].astype(int)
    assert (head.kind, head.confusion) == ("multi_label", None)
    assert_rows(head.rows, [by_class(labels[:, tag], predicted[:, tag], 1) for tag in range(3)])
    assert head.metrics["binary_accuracy"] == pytest.approx(np.mean(predicted == labels))
    (worst,) = head.errors
    record = worst["record"]
    assert worst["wrong"] == (predicted[record] != labels[record]).sum()
    assert worst["label"] == np.flatnonzero(labels[record]).tolist()


def test_numbers_have_errors(here: Path) -> None:
    head = evaluated("heads", errors=3).heads[3]
    values = outputs("heads", "linear")["linear"].astype("f8")
    with np.load("heads.npz") as held:
        labels = held["numbers_label"].astype("f8")
    differences = values - labels
    rows = [
        {
            "mae": np.abs(differences[:, output]).mean(),
            "rmse": np.sqrt((differences[:, output] ** 2).mean()),
            "r2": 1 - (differences[:, output] ** 2).sum() / (labels[:, output].var() * RECORDS),
        }
        for output in range(2)
    ]
    assert head.kind == "numbers"
    assert_rows(head.rows, rows)
    assert head.metrics["mae"] == pytest.approx(np.abs(differences).mean())
    assert head.metrics["rmse"] == pytest.approx(np.sqrt((differences**2).mean()))
    spread = (labels.var(axis=0) * RECORDS).sum()
    assert head.metrics["r2"] == pytest.approx(1 - (differences**2).sum() / spread)
    worst = np.argsort(-np.abs(differences).mean(1))[:3]
    assert [error["record"] for error in head.errors] == worst.tolist()
    assert head.errors[0]["label"] == pytest.approx(labels[worst[0]].tolist())


def test_equal_labels_have_no_coefficient_of_determination(empty_folder: Path) -> None:
    random = np.random.default_rng(2)
    # The rounded sums of these labels and of their squares seem to be of labels that vary.
    label = np.stack([np.full(254, 1.7393678), random.standard_normal(254)], axis=1).astype("f4")
    np.savez("rows.npz", data=random.standard_normal((254, 4)).astype("f4"), label=label)
    layers = listed("FullyConnected: {num_hidden: 2}", "LinearRegressionOutput: {label: label}")
    head = head_of(layers, "{data: [4], label: [2]}")
    assert np.isnan(head.rows[0]["r2"])
    assert np.isfinite(head.rows[1]["r2"])


def test_positions_with_a_probability_for_each_class_count_as_the_likeliest(
    empty_folder: Path,
) -> None:
    random = np.random.default_rng(3)
    label = random.dirichlet([1, 1, 1], (21, 4)).astype("f4")
    np.savez("rows.npz", data=random.standard_normal((21, 4, 6)).astype("f4"), label=label)
    layers = listed(
        "FullyConnected: {name: fc, num_hidden: 3, flatten: false}",
        "SoftmaxOutput: {name: softmax, label: label, preserve_shape: true}",
    )
    head = head_of(layers, "{data: [4, 6], label: [4, 3]}")
    inference = infer(InferOptions(run=Path("runs/net"), split="train"))
    outputs = np.concatenate([next(iter(b.arrays.values())) for b in inference.batches()])
    predicted, likeliest = outputs.argmax(-1).reshape(-1), label.argmax(-1).reshape(-1)
    assert head.metrics["accuracy"] == pytest.approx(np.mean(predicted == likeliest))
    assert_rows(head.rows, [by_class(likeliest, predicted, number) for number in range(3)])


def test_metrics_of_several_heads_have_their_names(here: Path) -> None:
    whole = evaluated("heads")
    assert {"softmax.accuracy", "binary.auc", "tags.binary_accuracy", "linear.r2"} <= set(
        whole.metrics
    )
    assert whole.loss == pytest.approx(infer_loss("heads"))
    report = whole.to_json()
    assert [head["name"] for head in report["heads"]] == ["softmax", "binary", "tags", "linear"]
    assert (report["records"], report["source"]) == (RECORDS, "data.eval: npz heads.npz, all")


def infer_loss(run: str) -> float:
    inference = infer(InferOptions(run=Path("runs", run), split="eval"))
    list(inference.batches())
    assert inference.metrics is not None
    return float(inference.metrics["loss"])


def head_of(layers: str, inputs: str) -> HeadEvaluation:
    """Train on rows.npz, and evaluate the records of training."""
    data = "data: {batch_size: 8, train: {dataset: npz, path: rows.npz}}\n"
    Path("net.yaml").write_text(config_text(layers, inputs=inputs, data=data))
    run_training(config=Path("net.yaml"))
    (head,) = evaluated("net", split="train").heads
    return head


def test_a_loss_without_predictions_is_evaluated_by_its_softmax(empty_folder: Path) -> None:
    random = np.random.default_rng(1)
    data, label = random.standard_normal((20, 4)).astype("f4"), random.integers(0, 3, 20)
    np.savez("rows.npz", data=data, label=label)
    layers = listed(
        "FullyConnected: {name: fc, num_hidden: 3}", "softmax_cross_entropy: {label: label}"
    )
    head = head_of(layers, "{data: [4], label: []}")
    logits = TrainedModel.open(Path("runs/net")).arrays
    scores = data @ logits["fc_weight"].T + logits["fc_bias"]
    predicted = scores.argmax(1)
    assert head.metrics["accuracy"] == pytest.approx(np.mean(predicted == label))
    assert_rows(head.rows, [by_class(label, predicted, number) for number in range(3)])


def test_other_images_are_prepared_like_those_of_the_run(here: Path) -> None:
    own = evaluated("images", errors=9)
    assert {error["input"] for error in own.heads[0].errors} == {
        f"images/test/{name}/{number}.png" for name in ("ant", "bee", "cat") for number in range(3)
    }
    shutil.copytree("images/test", "elsewhere", dirs_exist_ok=True)
    other = evaluated("images", "elsewhere")
    assert other.source == "image_folder elsewhere, all"
    assert (other.loss, other.metrics) == (own.loss, own.metrics)
    train = evaluated("images", split="train")
    assert train.records == 18
    assert evaluated("images", "images", "split=train").loss == train.loss


@pytest.mark.parametrize(
    "text",
    [
        "bee/1.png,bee\ncat/0.png,cat\n",
        "name\tlabel\tfile\na\tbee\tbee/1.png\nb\tcat\tcat/0.png\n",
        "0\tbee\tbee/1.png\n1\tcat\tcat/0.png\n",
        '"bee/1; a.png",bee\r\n"cat/0.png",cat\r\n',
        "photo,animal\nbee/1.png,bee\ncat/0.png,cat\n",
    ],
    ids=["rows", "header", "MXNet", "quotes", "unknown header"],
)
def test_a_list_names_images_and_classes(here: Path, text: str) -> None:
    shutil.copy("images/test/bee/1.png", "images/test/bee/1; a.png")
    Path("images/test/list.txt").write_text(text)
    (head,) = evaluated("images", "images/test/list.txt", errors=2).heads
    assert [row["support"] for row in head.rows] == [0, 1, 1]
    found = {(error["input"], error["label_name"]) for error in head.errors}
    bee = "images/test/bee/1; a.png" if ";" in text else "images/test/bee/1.png"
    assert found == {(bee, "bee"), ("images/test/cat/0.png", "cat")}
    Path("images/test/bee/1; a.png").unlink()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("ant/0.png,wasp\n", "training does not know: wasp"),
        ("ant/0.png,ant\nant/9.png,ant\n", "bad.csv:2: "),
        ("ant/0.png,ant\nant/1.png\n", "bad.csv:2: a row needs a file and a label"),
        ("ant/0,ant\nant/1.png,ant\n", "bad.csv:1: "),
        (f"ant/0.png,ant\n{'a' * 5000}.png,ant\n", "bad.csv:2: "),
        (f"ant/0.png,ant\n{'a' * 200_000}.png,ant\n", "bad.csv: not a list of images: field"),
    ],
)
def test_bad_lists_are_refused_with_their_line(here: Path, text: str, words: str) -> None:
    Path("images/test/bad.csv").write_text(text)
    found = problem("images", "images/test/bad.csv")
    assert words in found.problem
    if "wasp" in text:
        assert found.expected == "classes of training: ant, bee, cat"


def test_numbers_in_lists_of_mxnet_are_classes_in_their_order(empty_folder: Path) -> None:
    Image.fromarray(np.zeros((4, 4), np.uint8)).save("one.png")
    rows = [f"{number}\t{number}.000000\tone.png\n" for number in range(12)]
    Path("list.lst").write_text("".join(rows))
    request = request_dataset("image_list", {"path": "list.lst"}, "all", {})
    inputs = {"data": TensorSpec((1, 4, 4)), "label": TensorSpec((), "int32")}
    dataset = open_datasets({"train": request}, inputs)["train"]
    assert dataset.classes == ()
    assert dataset.fields["label"].records.tolist() == list(range(12))


def test_a_table_of_another_form_is_read_by_its_names(here: Path) -> None:
    rows = [line.split(",") for line in Path("rows.csv").read_text().splitlines()]
    Path("other.csv").write_text("".join(f"{kind};{y};note;{x}\n" for x, y, kind in rows))
    Path("straight.csv").write_text(Path("rows.csv").read_text())
    straight = evaluated("table", "straight.csv", errors=60)
    other = evaluated("table", "other.csv", errors=60)
    assert (other.records, other.loss) == (60, straight.loss)
    assert [error["record"] for error in other.heads[0].errors] == [
        error["record"] for error in straight.heads[0].errors
    ]
    renamed = Path("other.csv").read_text().replace("kind;", "species;", 1)
    Path("renamed.csv").write_text(renamed)
    again = evaluated("table", "renamed.csv", "label=species")
    assert again.loss == straight.loss


def test_records_of_a_share_have_their_numbers_in_the_file(here: Path) -> None:
    (head,) = evaluated("table", errors=60).heads
    lines = Path("rows.csv").read_text().splitlines()[1:]
    assert 0 < len(head.errors) < 60
    assert max(error["record"] for error in head.errors) >= len(head.errors)
    for error in head.errors:
        assert error["input"] == "rows.csv"
        assert lines[error["record"]].endswith(error["label_name"])


def test_settings_keep_the_part_and_a_path_means_the_whole_file(here: Path) -> None:
    own = evaluated("table", errors=60)
    settings = ("header=true", "data=[x, y]")
    same = evaluated("table", *settings, errors=60)
    assert (same.records, same.heads[0].errors) == (own.records, own.heads[0].errors)
    train = evaluated("table", *settings, split="train")
    assert train.records + own.records == 60
    whole = evaluated("table", "rows.csv")
    assert whole.records == 60
    assert "data.train reads records of the same files" in whole.notes


def test_arrays_are_evaluated_like_files(here: Path) -> None:
    model = TrainedModel.open(Path("runs/images"))
    files = sorted(Path("images/test").rglob("*.png"))
    data = np.stack([np.asarray(Image.open(file)) for file in files])
    names = np.array([file.parent.name for file in files])

    def of(arrays: Mapping[str, Array]) -> Evaluation:
        part, options = DataPart(arrays=arrays), EvaluateOptions(run=Path("runs/images"))
        return prepare_evaluation(model, part, options).run()

    expected = evaluated("images")
    by_name = of({"data": data, "label": names})
    assert (by_name.loss, by_name.records) == (expected.loss, 9)
    by_number = of({"data": data, "label": np.searchsorted(["ant", "bee", "cat"], names)})
    assert by_number.heads[0].confusion == expected.heads[0].confusion
    for arrays, words in (
        ({"data": data}, "no array for the network's input 'label'"),
        ({"data": data, "label": names, "x": names}, "no input 'x'"),
        ({"data": data, "label": names[:2]}, "do not fit together"),
        ({"data": data, "label": np.full(9, "wasp")}, "training does not know: wasp"),
        ({"data": data[:, :2], "label": names}, "does not fit"),
    ):
        with pytest.raises(UserError) as caught:
            of(arrays)
        assert words in caught.value.diagnostics[0].problem


@pytest.mark.parametrize(
    ("run", "records", "options", "words"),
    [
        ("images", ("nowhere",), {}, "nowhere: there is no such file or folder"),
        ("images", ("path=nowhere",), {}, "cannot be read"),
        ("images", (), {"split": "val"}, "no folder for the split 'val'"),
        ("table", (), {"split": "evel"}, "the config has no data called 'evel'"),
        ("table", ("labell=kind",), {}, "unknown parameter 'labell'"),
        ("table", ("label=sort",), {}, "no column is named 'sort'"),
        ("table", ("dataset=tabel",), {}, "unknown data set 'tabel'"),
        ("table", ("rows.csv", "path=rows.csv"), {}, "leave one out"),
        ("table", ("split=all",), {"split": "all"}, "leave one out"),
        ("table", ("label[x]=1",), {}, "not an override"),
        ("table", ("rows.csv",), {"split": "train"}, "rows.csv has no parts: --split train"),
        # Paths of which not even the existence can be found out.
        ("images", ("a" * 5000,), {}, "aaa: there is no such file or folder"),
        ("a" * 5000, (), {}, "aaa is not a run"),
    ],
)
def test_wrong_records_are_refused(
    here: Path, run: str, records: tuple[str, ...], options: Any, words: str
) -> None:
    assert words in problem(run, *records, **options).problem


def test_labels_and_images_alone_are_sent_to_the_command_that_takes_them(here: Path) -> None:
    Path("some.csv").write_text("file,label\nimages/test/bee/1.png,bee\n")
    with pytest.raises(UserError, match=r"some\.csv: a list of images") as caught:
        infer(InferOptions(run=Path("runs/images"), inputs=("some.csv",)))
    assert "mxrun evaluate RUN some.csv" in caught.value.diagnostics[0].hint
    assert "no parts: --split eval" in problem("images", "some.csv", split="eval").problem
    Path("some.csv").write_text("images/test/bee/1.png\n")
    assert "mxrun infer RUN" in problem("images", "some.csv").hint
    assert "mxrun infer RUN" in problem("images", "images/test/bee").hint


def test_files_with_names_that_are_too_long_are_refused(here: Path) -> None:
    with pytest.raises(UserError, match="aaa: there is no such file or folder"):
        infer(InferOptions(run=Path("runs/images"), inputs=("a" * 5000,)))
