"""`init` on texts: what is recognised, and that the config trains as written."""

from __future__ import annotations

import json
import random
from importlib.resources import files
from pathlib import Path

import pytest
from training import run_training

from mxrun.base.errors import UserError
from mxrun.commands.datasets import count_records, open_sections
from mxrun.commands.init import init
from mxrun.options.init import InitOptions
from mxrun.survey.texts import text_dataset_of

WORDS = [
    "the",
    "sea",
    "was",
    "calm",
    "and",
    "no",
    "wind",
    "moved",
    "over",
    "its",
    "wide",
    "and",
    "silent",
    "water",
]


@pytest.fixture
def folder(empty_folder: Path) -> Path:
    return empty_folder


def prose(lines: int = 300, end: str = "") -> str:
    draws = random.Random(0)
    found = [" ".join(draws.choices(WORDS, k=draws.randint(3, 12))) for _ in range(lines)]
    return "\n".join(found) + end + "\n"


def messages(separator: str = "\t") -> list[str]:
    draws = random.Random(1)
    words = {
        "ham": ["see", "you", "at", "home", "later", "friend"],
        "spam": ["win", "cash", "now", "click"],
    }
    rows = []
    for number in range(120):
        label = ("ham", "spam")[number % 2]
        text = " ".join(draws.choices(words[label], k=draws.randint(3, 9)))
        rows.append(f"{label}{separator}{text}")
    return rows


@pytest.mark.parametrize(
    ("name", "content", "found"),
    [
        ("a.txt", prose(), "text"),
        ("a.txt", prose(1), ""),
        ("a.md", "# A short page\n", "text"),
        ("a.txt", " ".join(WORDS * 3), "text"),
        ("a.txt", "\n".join(messages()), "text_lines"),
        ("a.txt", "1\t2\t3\n4\t5\t6\n", ""),
        ("a.txt", "5.1 3.5 setosa\n4.9 3.0 setosa\n", ""),
        ("a.txt", "red fish\nblue bird\ngreen frog\n", ""),
        ("a.txt", "", ""),
        ("a.csv", "label,text\nx,one two three four\n", "text_lines"),
        ("a.csv", "text,kind\none two three,x\n", ""),
        ("a.csv", "label,text\nx,7\n", ""),
        ("a.tsv", "review\tsentiment\nit was a good film\t1\n", "text_lines"),
        ("a.jsonl", '{"text": "a", "label": 1}\n', "text_lines"),
        ("a.npz", "", ""),
    ],
)
def test_files_of_texts_are_recognised(folder, name, content, found):
    (folder / name).write_text(content)
    assert text_dataset_of(folder / name) == found


def test_a_text_trains_as_written(folder: Path) -> None:
    (folder / "sea.txt").write_text(prose(1200, " ¡fin!"))
    result = init(InitOptions(source="sea.txt"))
    report = result.to_json()
    assert report["dataset"] == "text"
    assert "unknown" in result.file.read_text()
    assert report["next"][-1] == "mxrun infer runs/sea --prompt 'The ' --length 50"
    run_training("train.epochs=1", "train.max_steps=30", config=result.file)
    lines = Path("runs/sea/metrics.jsonl").read_text().splitlines()
    assert json.loads(lines[-1])["eval"]["loss"] < 3
    again = init(InitOptions(source="sea.txt", to=Path("again.yaml"), name="sea"))
    assert again.choices == result.choices
    with pytest.raises(UserError, match="--label is for tables"):
        init(InitOptions(source="sea.txt", to=Path("b.yaml"), label="x"))


def test_a_config_in_another_folder_finds_the_text(folder: Path) -> None:
    for name in ("configs", "data"):
        (folder / name).mkdir()
    (folder / "data/sea.txt").write_text(prose(300))
    (folder / "link").symlink_to("configs")
    for target in ("configs/a.yaml", "data/b.yaml", "c.yaml", "link/d.yaml"):
        file = init(InitOptions(source="data/sea.txt", to=Path(target), name="sea")).file
        assert count_records(open_sections(file))
    absolute = folder / "data/sea.txt"
    assert f"path: {absolute}" in init(InitOptions(source=str(absolute))).file.read_text()


def test_a_short_text_is_warned_of_or_refused(folder: Path) -> None:
    (folder / "a.md").write_text(prose(40))
    assert "a short text" in init(InitOptions(source="a.md")).survey.warnings[0]
    (folder / "b.md").write_text("few words\n")
    with pytest.raises(UserError, match="too short for one window"):
        init(InitOptions(source="b.md"))


@pytest.mark.parametrize("name", ["mail.txt", "mail.csv", "mail.jsonl"])
def test_labelled_texts_train_as_written(folder: Path, name: str) -> None:
    rows = [row.split("\t") for row in messages()]
    content = {
        "mail.txt": "\n".join(messages()),
        "mail.csv": "class,message\n" + "\n".join(messages(",")),
        "mail.jsonl": "\n".join(json.dumps({"label": y, "text": x}) for y, x in rows),
    }
    (folder / name).write_text(content[name])
    result = init(InitOptions(source=name))
    report = result.to_json()
    assert report["dataset"] == "text_lines"
    assert report["classes"] == {
        "ham": {"train": 48, "eval": 12},
        "spam": {"train": 48, "eval": 12},
    }
    run_training(config=result.file)
    lines = Path("runs/mail/metrics.jsonl").read_text().splitlines()
    assert json.loads(lines[-1])["eval"]["accuracy"] == 1


def test_texts_of_one_class_are_refused(folder: Path) -> None:
    (folder / "a.jsonl").write_text('{"text": "a b", "label": "x"}\n' * 9)
    with pytest.raises(UserError, match="all records have the same class"):
        init(InitOptions(source="a.jsonl"))


def test_the_bundled_plays_are_prose() -> None:
    path = Path(str(files("mxrun.datasets") / "shakespeare.txt"))
    assert text_dataset_of(path) == "text"


@pytest.mark.parametrize("header", ["text,queue", "body,kind", "queue,text", "kind,body", ""])
def test_the_columns_of_texts_follow_from_what_they_hold(folder: Path, header: str) -> None:
    pairs = [row.split("\t") for row in messages()]
    first_is_label = header.startswith(("queue", "kind"))
    rows = [",".join(pair if first_is_label else pair[::-1]) for pair in pairs]
    (folder / "message.csv").write_text("\n".join([header] * bool(header) + rows) + "\n")
    result = init(InitOptions(source="message.csv", overwrite=True))
    survey = result.survey
    assert survey.dataset == "text_lines"
    assert survey.train.counts.keys() == {"ham", "spam"}
    assert survey.train.records + survey.evaluation.records == 120
    (doubt,) = survey.doubts
    assert "`--label COLUMN`" in doubt
    assert "`--as table`" in doubt
    if header:
        label = header.split(",")[not first_is_label]
        assert f"label {label!r}" in doubt
        named = init(InitOptions(source="message.csv", label=label, to=Path("b.yaml"), name="b"))
        assert named.survey == survey
    assert count_records(open_sections(result.file))


def test_a_label_that_is_named_decides_beside_other_columns(folder: Path) -> None:
    pairs = [row.split("\t") for row in messages()]
    ranks = ("low", "high", "mid") * len(pairs)
    rows = [f"{text},{rank},{label}" for rank, (label, text) in zip(ranks, pairs, strict=False)]
    (folder / "a.csv").write_text("\n".join(["words,rank,sort", *rows]) + "\n")
    for label, classes in ((None, {"ham", "spam"}), ("rank", {"low", "high", "mid"})):
        for kind, dataset in ((None, "csv"), ("text", "text_lines")):
            options = InitOptions(source="a.csv", label=label, kind=kind, overwrite=True)
            survey = init(options).survey
            assert survey.dataset == dataset
            assert survey.train.counts.keys() == classes


@pytest.mark.parametrize("name", ["a.txt", "a.csv"])
def test_sentences_of_five_words_are_no_table(folder: Path, name: str) -> None:
    draws = random.Random(2)
    words = [*WORDS, "ship", "bird", "under", "light", "gray", "cloud", "cold"]
    lines = [" ".join(draws.choices(words, k=5)) for _ in range(300)]
    (folder / name).write_text("\n".join(lines) + "\n")
    assert text_dataset_of(Path(name)) == "text"
    as_table = InitOptions(source=name, kind="table", to=Path("b.yaml"), name="b")
    assert init(as_table).survey.dataset == "csv"
    colours = ("red", "blue", "green", "gray", "pink", "gold", "black")
    sizes = ("big", "small", "tall", "wide", "long", "tiny", "huge")
    forms = ("round", "flat", "square", "thin", "bent", "cubic", "oval")
    rows = (" ".join(map(draws.choice, (colours, sizes, forms))) for _ in range(300))
    (folder / name).write_text("\n".join(rows) + "\n")
    assert text_dataset_of(Path(name)) == ""


def test_a_file_of_unknown_kind_is_what_the_option_says(folder: Path) -> None:
    (folder / "book").write_text(prose(300))
    with pytest.raises(UserError, match="--as text"):
        init(InitOptions(source="book"))
    assert init(InitOptions(source="book", kind="text")).survey.dataset == "text"
