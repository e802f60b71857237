"""Parts of data sets: shares and the rest, splits that are folders, default splits."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from layer_configs import classifier, config_file, network_text
from lazy_columns import record_of
from PIL import Image

from mxrun.base.errors import Diagnostic, UserError
from mxrun.config import parse
from mxrun.frontend import build
from mxrun.io.dataset.dataset import Dataset
from mxrun.io.dataset.fingerprint import fingerprint
from mxrun.io.dataset.request import open_datasets
from mxrun.io.dataset.split import Split

CONFIG = (
    network_text(classifier(3), inputs="{data: [1, 2, 2], label: []}")
    + """\
train: {epochs: 1, optimizer: sgd}
data:
  batch_size: 2
"""
)
STRATIFIED = "{share: 0.8, seed: 3, stratify: true}"


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`flat` contains class folders, `parts` splits of classes; each image has one byte value."""
    folder = tmp_path_factory.mktemp("images")
    counts = {"bus": 10, "car": 7, "train": 1}
    for part in ("flat", "parts/train", "parts/val", "parts/other"):
        for name, count in counts.items():
            below = folder / part / name
            below.mkdir(parents=True)
            for number in range(count if part == "flat" else 1):
                pixels = np.full((2, 2), number, np.uint8)
                Image.fromarray(pixels).save(below / f"{number}.png")
    return folder


def opened(folder: Path, data: str) -> dict[str, Dataset]:
    """Open the data sets of the config; its data section starts in line 10."""
    path = config_file(folder, CONFIG + data)
    built = build(parse(path))
    return open_datasets(built.data, built.model.records)


def problems(folder: Path, data: str) -> list[Diagnostic]:
    with pytest.raises(UserError) as caught:
        opened(folder, data)
    return list(caught.value.diagnostics)


def sections(path: Path, train: str, evaluation: str) -> str:
    parts = {"train": f"dataset: image_folder, path: {path}{train}"}
    parts["eval"] = f"dataset: image_folder{evaluation}"
    return "".join(f"  {role}: {{{text}}}\n" for role, text in parts.items())


def records(dataset: Dataset) -> set[tuple[int, int]]:
    """Every record as its class and the value of its pixels."""
    labels = dataset.fields["label"].records.tolist()
    return {(label, int(record_of(dataset, index)[0, 0, 0])) for index, label in enumerate(labels)}


def test_a_share_and_its_rest_are_all_records_each_once(root: Path, tmp_path: Path) -> None:
    text = sections(root / "flat", f", split: {STRATIFIED}", ", split: rest")
    parts = opened(tmp_path, text)
    train, rest = records(parts["train"]), records(parts["eval"])
    assert (len(parts["train"]), len(parts["eval"])) == (len(train), len(rest))
    assert not train & rest
    assert train | rest == records(opened(tmp_path, sections(root / "flat", "", ""))["train"])
    counts = [np.bincount(part.fields["label"].records).tolist() for part in parts.values()]
    assert counts == [[8, 6, 1], [2, 1]]
    assert [len(part.classes) for part in parts.values()] == [3, 3]
    again, other = opened(tmp_path, text), opened(tmp_path, text.replace("seed: 3", "seed: 4"))
    for role, part in parts.items():
        assert fingerprint(part) == fingerprint(again[role])
        assert records(part) != records(other[role])
    # Without a split of its own, evaluation does not read the training records.
    usual = opened(tmp_path, text.replace(", split: rest", ""))["eval"]
    assert fingerprint(usual) == fingerprint(parts["eval"])


@pytest.mark.parametrize("split", ["{share: 0.75}", "{share: 0.6, seed: 5, stratify: true}"])
def test_shares_are_of_every_data_set(tmp_path: Path, split: str) -> None:
    text = (
        f"  train: {{dataset: digits, split: {split}}}\n  eval: {{dataset: digits, split: rest}}\n"
    )
    head = CONFIG.replace("[1, 2, 2]", "[1, 8, 8]").replace("hidden: 3", "hidden: 10")
    path = config_file(tmp_path, head + text)
    built = build(parse(path))
    train, rest = open_datasets(built.data, built.model.records).values()
    # The split that the section train usually means.
    assert (len(train) + len(rest), train.split[:6]) == (1438, "train[")
    rows = [part.fields["data"].records.reshape(-1, 64) for part in (train, rest)]
    whole = np.unique(np.concatenate(rows), axis=0, return_counts=True)
    assert whole[1].sum() == 1438
    share = built.options.data.train.split.share
    assert abs(len(train) - share * 1438) <= (1 if "stratify" not in split else 10)
    if "stratify" in split:
        counts = [np.bincount(part.fields["label"].records) for part in (train, rest)]
        assert (np.abs(counts[0] - share * sum(counts)) < 1).all()


def test_shares_that_overlap_are_refused(root: Path, tmp_path: Path) -> None:
    train = ", split: {share: 0.8, seed: 1, stratify: true}"
    for seed, words in ((1, "4 of 4 records"), (2, " of 4 records")):
        share = f", split: {{share: 0.15, seed: {seed}, stratify: true}}"
        (found,) = problems(tmp_path, sections(root / "flat", train, share))
        assert "in common with data.train's share all[0.8, seed 1, stratified]" in found.problem
        assert words in found.got
        assert "split: rest" in found.hint
        assert found.place is not None
        assert found.place.line == 11
    # A share of other records, and ranges, are used as given.
    share = train.replace("share", "of: val, share")
    opened(tmp_path, sections(root / "parts", train.replace("share", "of: train, share"), share))
    same = ", split: {range: [0, 18]}"
    opened(tmp_path, sections(root / "flat", same, same))


@pytest.mark.parametrize("range", ["[0, 6]", "[4, 10]"])
def test_a_range_and_its_rest_are_views_of_one_array(tmp_path: Path, range: str) -> None:
    data = np.arange(40, dtype=np.float32).reshape(10, 1, 2, 2)
    np.savez(tmp_path / "ten.npz", data=data, label=np.arange(10, dtype=np.int32) % 3)
    train = f"  train: {{dataset: npz, path: ten.npz, split: {{range: {range}}}}}\n"
    parts = opened(tmp_path, train + "  eval: {dataset: npz, split: rest}\n")
    arrays = [parts[role].fields["data"].records for role in ("train", "eval")]
    assert sorted(np.concatenate(arrays).ravel().tolist()) == data.ravel().tolist()
    assert arrays[0].base is not None
    assert arrays[0].base is arrays[1].base


def test_rest_is_also_what_a_range_leaves() -> None:
    rows = Split("all", 2, 5, rest=True).rows(7, None)
    assert not isinstance(rows, slice)
    assert rows.tolist() == [0, 1, 5, 6]
    assert str(Split("all", 2, 5, rest=True)) == "all[rest of 2:5]"
    assert str(Split("all", share=0.8, stratify=True)) == "all[0.8, seed 0, stratified]"


@pytest.mark.parametrize("share", [0.01, 0.5, 0.99])
def test_a_share_and_its_rest_have_each_class_that_can_be_in_both(share: float) -> None:
    labels = np.repeat(np.arange(5, dtype=np.int32), (1, 2, 3, 10, 40))
    for seed in range(5):
        split = Split("all", share=share, seed=seed, stratify=True)
        rows = split.rows(len(labels), labels)
        counts = np.bincount(labels[rows], minlength=5)
        assert (np.abs(counts - share * np.bincount(labels)) < 1).all()
        assert counts.min() == 1 or counts.min() > 0
        assert (np.bincount(labels) - counts)[1:].min() >= 1


def test_any_folder_is_a_split(root: Path, tmp_path: Path) -> None:
    parts = opened(tmp_path, sections(root / "parts", ", split: other", ", split: val"))
    assert [part.split for part in parts.values()] == ["other", "val"]
    (found,) = problems(tmp_path, sections(root / "parts", ", split: train", ", split: vall"))
    assert "no folder for the split 'vall'" in found.problem
    assert found.expected == "one of all, other, train, val"
    assert "'val'" in found.hint
    assert str(found.place) == f"{tmp_path / 'net.yaml'}:11:40"


def test_a_split_need_not_be_named(root: Path, tmp_path: Path) -> None:
    parts = opened(tmp_path, sections(root / "parts", "", ""))
    assert [part.split for part in parts.values()] == ["train", "val"]
    # A class called train makes no folder of splits.
    flat = opened(tmp_path, sections(root / "flat", "", ""))
    assert [part.split for part in flat.values()] == ["all", "all"]
    made = "dataset: synthetic, records: 4, classes: 3"
    parts = opened(tmp_path, f"  train: {{{made}}}\n  eval: {{{made}}}\n")
    assert [part.split for part in parts.values()] == ["train", "test"]


def test_a_range_of_records_in_the_order_of_their_classes_is_refused(
    root: Path, tmp_path: Path
) -> None:
    ranges = [f", split: {{of: all, range: {each}}}" for each in ("[0, 12]", "[12, 18]")]
    train, evaluation = problems(tmp_path, sections(root / "flat", *ranges))
    assert train.problem.endswith("lacks classes of the complete split: train")
    assert evaluation.problem.endswith("lacks classes of the complete split: bus")
    assert "bus 10, car 7, train 1" in train.expected
    assert (train.got, evaluation.got) == ("bus 10, car 2", "car 5, train 1")
    assert "stratify: true" in train.hint
    assert train.place is not None
    assert train.place.line == 10


def test_a_share_that_leaves_training_without_a_class_is_refused(
    root: Path, tmp_path: Path
) -> None:
    """The seed decides which part has the one record of the third class."""
    text = sections(root / "flat", ", split: {share: 0.5, seed: 7}", "")
    assert len(opened(tmp_path, text)["train"]) == 9
    (found,) = problems(tmp_path, text.replace("seed: 7", "seed: 0"))
    assert found.problem.endswith("lacks classes of the complete split: train")
    assert found.hint == "write stratify: true"


@pytest.mark.parametrize(
    ("train", "evaluation", "words"),
    [
        (", split: rest", "", ("what data.train leaves for data.eval",)),
        ("", ", split: rest", ("data.train leaves no records out", "share: 0.8")),
        (f", split: {STRATIFIED}", ", path: /, split: rest", ("reads other records",)),
        (", split: {share: 1}", "", ("data.train.split.share", "< 1")),
        (", split: {share: 0.5, range: [0, 1]}", "", ("not both",)),
        (", split: {}", "", ("the split is empty",)),
        (", split: {seed: 3}", "", ("seed is valid only with share",)),
        (", split: {of: all, stratify: true}", "", ("stratify is valid only with share",)),
        (", split: {share: 0.5, sede: 1}", "", ("sede", "did you mean 'seed'?")),
    ],
)
def test_a_split_that_cannot_be_has_a_place(
    root: Path, tmp_path: Path, train: str, evaluation: str, words: tuple[str, ...]
) -> None:
    (found,) = problems(tmp_path, sections(root / "flat", train, evaluation))
    assert all(word in str(found) for word in words), found
    assert found.place is not None
    assert found.place.line in (10, 11)


def test_what_has_no_classes_cannot_be_stratified(tmp_path: Path) -> None:
    text = "  train: {dataset: regression, records: 8, split: {share: 0.5, stratify: true}}\n"
    head = CONFIG.replace("SoftmaxOutput: {name: softmax", "LinearRegressionOutput: {name: out")
    path = config_file(
        tmp_path,
        head.replace("num_hidden: 3", "num_hidden: 1").replace("label: []", "label: [1]") + text,
    )
    built = build(parse(path))
    with pytest.raises(UserError, match="these records have no classes"):
        open_datasets(built.data, built.model.records)


@pytest.mark.parametrize("count", [1, 2, 3, 7])
@pytest.mark.parametrize(
    "split",
    [
        Split("all"),
        Split("all", 3, 20),
        Split("all", share=0.6, seed=2),
        Split("all", share=0.6, rest=True),
        Split("all", 5, 9, rest=True),
    ],
)
def test_D4_parts_are_disjoint_and_complete(split: Split, count: int) -> None:
    def rows(part: Split) -> list[int]:
        return np.arange(23)[part.rows(23, None)].tolist()

    parts = [rows(replace(split, part_index=index, num_parts=count)) for index in range(count)]
    # Ranges of the records, as MXNet's.
    assert [row for part in parts for row in part] == rows(split)
    sizes = [len(part) for part in parts]
    assert max(sizes) - min(sizes) <= 1


def test_D4_parts_of_files_are_disjoint_and_complete(root: Path, tmp_path: Path) -> None:
    whole = records(opened(tmp_path, sections(root / "flat", "", ""))["train"])
    found: list[tuple[int, int]] = []
    for index in range(4):
        words = f", part_index: {index}, num_parts: 4, split: all"
        data = opened(tmp_path, sections(root / "flat", words, words))
        assert records(data["train"]) == records(data["eval"])
        assert data["train"].split == f"all[part {index} of 4]"
        found += records(data["train"])
    assert len(found) == len(whole)
    assert set(found) == whole


def test_D4_parts_of_a_share_leave_the_same_rest(root: Path, tmp_path: Path) -> None:
    text = sections(root / "flat", f", split: {STRATIFIED}", ", split: rest")
    rest = records(opened(tmp_path, text)["eval"])
    train: set[tuple[int, int]] = set()
    for index in range(3):
        part = f", part_index: {index}, num_parts: 3"
        text = sections(root / "flat", f", split: {STRATIFIED}{part}", "")
        data = opened(tmp_path, text)
        assert records(data["eval"]) == rest
        train |= records(data["train"])
    text = sections(root / "flat", f", split: {STRATIFIED}", f", split: rest{part}")
    assert records(opened(tmp_path, text)["eval"]) < rest
    assert not train & rest


def test_more_parts_than_records_are_refused(root: Path, tmp_path: Path) -> None:
    (found,) = problems(tmp_path, sections(root / "flat", ", part_index: 0, num_parts: 19", ""))
    assert "part 0 of 19" in found.problem
