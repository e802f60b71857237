"""`init` on every kind of data: its configs train as written, and unusable data is refused."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import numpy as np
import pytest
from commands import mnist
from lazy_columns import record_of
from PIL import Image, ImageDraw
from training import run_training

from mxrun.base.errors import UserError
from mxrun.commands.init import InitResult, init
from mxrun.datasets.digits import DigitsOptions, read
from mxrun.io.dataset.dataset import Dataset
from mxrun.io.dataset.request import open_datasets
from mxrun.options.init import InitOptions
from mxrun.preparation.planning import load


@pytest.fixture(autouse=True)
def folder(empty_folder: Path) -> Path:
    return empty_folder


def draw_images(
    folder: Path,
    classes: tuple[str, ...] = ("disc", "box"),
    count: int = 10,
    size: tuple[int, int] = (24, 24),
    mode: str = "RGB",
) -> None:
    """Write images [width, height] of discs (the first class) and boxes (the others)."""
    rng = np.random.default_rng(0)
    for name in classes:
        (folder / name).mkdir(parents=True, exist_ok=True)
        for number in range(count):
            image = Image.new(mode, size)
            corner = rng.integers(1, 8, 2)
            box = (*corner.tolist(), *(corner + 12).tolist())
            draw = ImageDraw.Draw(image)
            (draw.ellipse if name == classes[0] else draw.rectangle)(box, fill="white")
            image.save(folder / name / f"{number:03}.png")


def write_table(path: Path, header: str, rows: list[str]) -> None:
    path.write_text("\n".join([*([header] if header else []), *rows]) + "\n")


def flowers(delimiter: str = ",", count: int = 90) -> list[str]:
    """Return rows of three numbers and the name of a class that depends on them."""
    rng = np.random.default_rng(1)
    rows = []
    for number in range(count):
        kind = number % 3
        values = rng.normal((kind * 100, 5, 1000 - kind), (20, 1, 0.1)).round(3).tolist()
        rows.append(delimiter.join([*map(str, values), ("red", "green", "blue")[kind]]))
    return rows


def opened(result: InitResult) -> dict[str, Dataset]:
    """Return the data sets of a written config, which must parse and fit its network."""
    built = load(result.file)
    return open_datasets(built.data, built.model.records)


def trained(result: InitResult, *overrides: str) -> dict[str, float]:
    """Train a written config and return its last evaluation."""
    evaluation = run_training("threads=1", *overrides, config=result.file)["eval"]
    assert isinstance(evaluation, dict)
    return evaluation


def refusal(source: str, **options: object) -> str:
    with pytest.raises(UserError) as caught:
        init(InitOptions(source=source, **options))  # type: ignore[arg-type]
    assert not list(Path().glob("*.yaml"))
    return str(caught.value)


def test_a_folder_of_images_trains_as_written(folder: Path) -> None:
    draw_images(folder / "shapes", count=25)
    result = init(InitOptions(source="shapes/"))
    assert (result.file, result.name) == (Path("shapes.yaml"), "shapes")
    survey = result.survey
    assert (survey.train.records, survey.evaluation.records) == (40, 10)
    assert survey.train.counts == {"box": 20, "disc": 20}
    # White on black: the channels are equal.
    assert survey.shape == (1, 24, 24)
    first = result.file.read_text()
    assert init(InitOptions(source="shapes", overwrite=True)).file.read_text() == first
    parts = opened(result)
    assert {len(part) for part in parts.values()} == {40, 10}
    assert trained(result, "train.epochs=12")["accuracy"] > 0.8


def test_training_sees_the_values_that_were_measured(folder: Path) -> None:
    rng = np.random.default_rng(2)
    for name in ("fog", "hay"):
        (folder / "noise" / name).mkdir(parents=True)
        for number in range(5):
            pixels = rng.integers((0, 60, 0), (256, 120, 20), (9, 9, 3)).astype("uint8")
            Image.fromarray(pixels).save(folder / "noise" / name / f"{number}.png")
    result = init(InitOptions(source="noise"))
    train = opened(result)["train"]
    pixels = np.stack([record_of(train, at) for at in range(len(train))]) / 255
    assert result.survey.mean == pytest.approx(pixels.mean((0, 2, 3)), abs=2e-3)
    assert result.survey.std == pytest.approx(pixels.std((0, 2, 3)), rel=2e-3)
    assert "flip" in result.file.read_text()


@pytest.mark.parametrize("name", ["left", "3", "b", "turn-left", "Right_hand"])
def test_images_that_may_mean_something_else_mirrored_are_not_flipped(
    folder: Path, name: str
) -> None:
    draw_images(folder / "signs", ("straight", name), count=3)
    assert "flip" not in init(InitOptions(source="signs")).file.read_text()


@pytest.mark.parametrize(
    ("size", "expected"), [((200, 150), (64, 64)), ((60, 50), (50, 60)), ((700, 40), (32, 32))]
)
def test_large_images_are_brought_to_a_square(
    folder: Path, size: tuple[int, int], expected: tuple[int, int]
) -> None:
    draw_images(folder / "photos", count=3, size=size)
    result = init(InitOptions(source="photos"))
    parts = opened(result)
    text = result.file.read_text()
    assert f"data: [1, {expected[0]}, {expected[1]}]" in text
    assert ("resize" in text) == (max(size) > 96)
    assert np.isfinite(trained(result, "train.epochs=1")["loss"])
    assert len(parts) == 2


@pytest.mark.parametrize("part", ["val", "test"])
def test_a_folder_with_parts_keeps_them(folder: Path, part: str) -> None:
    draw_images(folder / "parts" / "train", count=40)
    draw_images(folder / "parts" / "train", ("rare",), count=5)
    draw_images(folder / "parts" / part, count=2)
    result = init(InitOptions(source="parts", name="run-1", to=Path("other.yaml")))
    assert {role: len(data) for role, data in opened(result).items()} == {"train": 85, "eval": 4}
    assert result.survey.is_imbalanced
    assert load("other.yaml").options.name == "run-1"
    assert "best: balanced_accuracy" in result.file.read_text()
    assert any("rare 5" in warning for warning in result.survey.warnings)
    draw_images(folder / "parts" / part, ("cloud",), count=2)
    with pytest.raises(UserError, match="classes that training does not know: cloud"):
        init(InitOptions(source="parts", overwrite=True))


def test_damaged_images_are_named(folder: Path) -> None:
    draw_images(folder / "some", count=8)
    (folder / "some/box/003.png").write_bytes(b"")
    (folder / "some/disc/004.png").write_bytes(b"no image")
    (folder / "some/disc/notes.txt").write_text("")
    warnings = init(InitOptions(source="some")).survey.warnings
    (warning,) = [each for each in warnings if "damaged" in each]
    assert warning.startswith("2 images are damaged")
    assert "some/box/003.png, some/disc/004.png" in warning


def test_damaged_images_of_evaluation_are_named(folder: Path) -> None:
    for part in ("train", "val"):
        draw_images(folder / "parts" / part, count=3)
    cut = folder / "parts/val/disc/001.png"
    cut.write_bytes(cut.read_bytes()[:60])
    (folder / "parts/val/box/002.png").write_bytes(b"")
    survey = init(InitOptions(source="parts")).survey
    (warning,) = [each for each in survey.warnings if "damaged" in each]
    assert warning.startswith("2 images are damaged")
    assert "parts/val/box/002.png, parts/val/disc/001.png" in warning
    assert "(10 of them looked at)" in survey.facts[1]


def test_a_table_of_classes_trains_as_written(folder: Path) -> None:
    write_table(folder / "my flowers.csv", "length,width,weight,kind", flowers())
    result = init(InitOptions(source="my flowers.csv"))
    assert result.file == Path("my_flowers.yaml")
    assert result.survey.classes == ("blue", "green", "red")
    parts = opened(result)
    assert parts["train"].columns == ("length", "width", "weight")
    values = parts["train"].fields["data"].records
    # Training brings them to mean 0 and deviation 1.
    assert values.mean(0) == pytest.approx([0, 0, 0], abs=1e-5)
    assert values.std(0) == pytest.approx([1, 1, 1], abs=1e-5)
    assert trained(result)["accuracy"] > 0.9


@pytest.mark.parametrize("delimiter", [";", "\t", "|", " "])
@pytest.mark.parametrize("header", [True, False])
def test_tables_of_every_form_are_read(folder: Path, delimiter: str, header: bool) -> None:
    names = delimiter.join(("length", "width", "weight", "kind")) if header else ""
    write_table(folder / "table.txt", names, flowers(delimiter))
    result = init(InitOptions(source="table.txt"))
    assert result.survey.classes == ("blue", "green", "red")
    assert {role: len(part) for role, part in opened(result).items()} == {"train": 72, "eval": 18}


def test_a_pattern_is_several_files_of_one_table(folder: Path) -> None:
    rows = flowers()
    write_table(folder / "part-0.csv", "length,width,weight,kind", rows[:40])
    write_table(folder / "part-1.csv", "length,width,weight,kind", rows[40:])
    assert "no file matches the pattern other-*.csv" in refusal("other-*.csv")
    for pattern in ("part-*.csv", "part-{0..1}.csv"):
        result = init(InitOptions(source=pattern, to=Path("part.yaml"), overwrite=True))
        parts = opened(result)
        assert {role: len(part) for role, part in parts.items()} == {"train": 72, "eval": 18}
    assert init(InitOptions(source="part-*.csv", overwrite=True)).file == Path("part.yaml")


def test_each_column_gets_its_treatment_with_the_reason(folder: Path) -> None:
    rng = np.random.default_rng(3)
    rows = []
    for number in range(200):
        area, rooms = rng.uniform(40, 200), int(rng.integers(1, 7))
        price = 2500 * area + 10000 * rooms + 50000 * (number % 2)
        town, gap = ("Ulm", "Bonn")[number % 2], "" if number == 7 else f"{number % 3}.5"
        day = f"2024-{1 + number % 12:02}-{1 + number % 28:02}"
        debts = 10 ** rng.uniform(0, 5)
        cells = f"{area:.2f},{town},{rooms},{gap},0,{day},{debts:.0f},street {number}"
        rows.append(f"{number + 1},{cells},{price:.0f}")
    names = "nr,area,town,rooms,garden,zero,sold,debts,street,price"
    write_table(folder / "houses.csv", names, rows)
    result = init(InitOptions(source="houses.csv"))
    text = result.file.read_text()
    for line in (
        "nr: ignore # it only numbers the rows",
        "area: number # 4",
        "town: category # Bonn 100, Ulm 100",
        "garden: number # 1 of 200 missing, 0.5 to 2.5",
        "zero: ignore # always 0",
        "sold: date # such as '2024-01-01'",
        "debts: {number: {scale: log}}",
        "street: ignore # words (200 different, such as 'street 0')",
        "label: price",
        "inputs: {data: [7], label: []}",
    ):
        assert line in " ".join(text.split()), (line, text)
    encoding = opened(result)["train"].encoding
    assert encoding is not None
    assert encoding.inputs == (
        *("area", "town=Bonn", "town=Ulm", "rooms", "garden", "sold", "debts"),
    )
    assert trained(result, "train.epochs=60")["r2"] > 0.9
    other = init(InitOptions(source="houses.csv", label="town", to=Path("town.yaml")))
    assert other.survey.classes == ("Bonn", "Ulm")
    assert other.survey.shape == (6,)


def test_a_table_of_words_alone_may_have_a_header(folder: Path) -> None:
    rows = [f"{'xy'[at % 2]},{'pqr'[at % 3]},{'ab'[at % 2]}" for at in range(60)]
    write_table(folder / "t.csv", "cap,stalk,class", rows)
    result = init(InitOptions(source="t.csv"))
    assert result.survey.classes == ("a", "b")
    assert "cap: category    # x 30, y 30" in result.file.read_text()
    Path("z.csv.gz").write_bytes(gzip.compress((folder / "t.csv").read_bytes()))
    assert init(InitOptions(source="z.csv.gz")).survey.classes == ("a", "b")
    assert trained(result, "train.epochs=5")["accuracy"] == 1


def test_columns_without_a_name_of_their_own_are_read_by_number(folder: Path) -> None:
    rows = [f"{at % 4},{at * 7 % 5}.5,{at * 3 % 11},{at % 3},{at % 5}" for at in range(60)]
    write_table(folder / "t.csv", "class,,b,c,c", rows)
    result = init(InitOptions(source="t.csv"))
    assert result.survey.classes == ("0", "1", "2", "3")
    assert "'c': the header has its name several times" in result.file.read_text()
    assert opened(result)["train"].fields["data"].records.shape == (48, 2)


def test_keys_beside_a_bundled_data_set_are_refused() -> None:
    with pytest.raises(UserError, match="digits: a bundled data set is no table") as caught:
        init(InitOptions(source="digits", settings=("context=gpu:0",)))
    assert "mxrun train CONFIG KEY=VALUE" in str(caught.value)


def test_the_digits_are_there_by_name() -> None:
    result = init(InitOptions(source="digits"))
    assert {role: len(part) for role, part in opened(result).items()} == {
        "train": 1438,
        "eval": 359,
    }
    assert trained(result, "train.epochs=5")["accuracy"] > 0.95


def test_files_of_mnist_need_not_be_complete() -> None:
    result = init(InitOptions(source=str(mnist()), name="mnist"))
    assert {role: len(part) for role, part in opened(result).items()} == {
        "train": 8000,
        "eval": 2000,
    }
    assert trained(result, "train.epochs=1")["accuracy"] > 0.85


def test_archives_are_read_by_the_names_of_their_arrays(folder: Path) -> None:
    digits = read(DigitsOptions(), "all", {}).fields
    images = (digits["data"].records[:, 0] * 15).astype("uint8")
    labels = digits["label"].records
    arrays = {"x_train": images[:900], "y_train": labels[:900]}
    np.savez(folder / "a.npz", **arrays, x_test=images[900:], y_test=labels[900:])
    result = init(InitOptions(source="a.npz"))
    assert not result.survey.left_out
    parts = opened(result)
    assert {role: len(part) for role, part in parts.items()} == {"train": 900, "eval": 897}
    assert trained(result, "train.epochs=5")["accuracy"] > 0.9
    numbers = {"features": images[:, 0] / 7, "further": images[:, 1]}
    np.savez(folder / "b.npz", **numbers, amount=labels * 0.37)
    other = init(InitOptions(source="b.npz", label="amount"))
    (unread,) = other.survey.left_out
    assert unread.startswith("further: the network has one input, which reads features")
    assert (other.survey.shape, other.survey.classes) == ((8,), ())
    assert np.isfinite(trained(other, "train.epochs=1")["rmse"])


def test_channels_at_the_end_are_refused(folder: Path) -> None:
    np.savez(folder / "c.npz", x=np.zeros((4, 8, 8, 3), "uint8"), y=np.arange(4))
    assert "numpy.moveaxis(images, -1, 1)" in refusal("c.npz")


def test_wrong_folders_are_refused(folder: Path) -> None:
    (folder / "empty").mkdir()
    assert "empty: the folder is empty" in refusal("empty")
    draw_images(folder / "one", ("cats",))
    assert "all records have the same class, cats" in refusal("one")
    assert "its images are not in folders of classes" in refusal("one/cats")
    (folder / "one" / "dogs").mkdir()
    assert "classes without records" in refusal("one")
    (folder / "texts" / "a").mkdir(parents=True)
    (folder / "texts" / "a" / "b.md").write_text("")
    assert "holds no images" in refusal("texts")
    assert "files: 1 .md" in refusal("texts")
    assert "--label is for tables" in refusal("one", label="x")
    draw_images(folder / "few", count=1)
    assert "too few records" in refusal("few")
    draw_images(folder / "few")
    for path in (folder / "few").rglob("*.png"):
        path.write_bytes(b"no image")
    assert "few: no image can be read" in refusal("few")


def test_wrong_files_are_refused(folder: Path) -> None:
    assert "there is no such file or folder" in refusal("nowhere")
    assert "`mxrun init digits`" in refusal("digit")
    (folder / "a.pdf").write_text("")
    assert "this kind of file is not known" in refusal("a.pdf")
    (folder / "a.csv").write_text("")
    assert "the file holds no rows" in refusal("a.csv")
    (folder / "a.csv").write_bytes(b"1,2\n\0\0,3\n")
    assert "a.csv:2:1: byte 4: not UTF-8 text" in refusal("a.csv")
    (folder / "a.csv").write_text("1,2\n1,2,3\n")
    assert "a.csv:2:3" in refusal("a.csv")
    write_table(folder / "a.csv", "a,b,kind", ["1,2,x"] * 9)
    assert "only one value, 'x'" in refusal("a.csv", label="-1")
    write_table(folder / "a.csv", "a,b,kind", ["1,2,x", "2,3,y", "4,4,"] * 5)
    assert "is missing in 5 of 15 rows" in refusal("a.csv", label="kind")
    assert "did you mean 'kind'?" in refusal("a.csv", label="knd")
    write_table(folder / "a.csv", "a,kind", [f"x{at},{'pq'[at % 2]}" for at in range(15)])
    assert "a.csv: no column is left for the data" in refusal("a.csv")
    write_table(folder / "a.csv", "a,word", [f"1,x{number}" for number in range(9)])
    assert "no column looks like a label" in refusal("a.csv")


def test_an_existing_config_is_kept(folder: Path) -> None:
    Path("digits.yaml").write_text("mine")
    with pytest.raises(UserError, match="--overwrite"):
        init(InitOptions(source="digits"))
    assert Path("digits.yaml").read_text() == "mine"
    init(InitOptions(source="digits", overwrite=True))
    assert "mine" not in Path("digits.yaml").read_text()
    with pytest.raises(UserError, match="--name is not a name"):
        init(InitOptions(source="digits", name="a/b"))
    with pytest.raises(UserError, match="there is no folder"):
        init(InitOptions(source="digits", to=Path("nowhere/x.yaml")))


@pytest.mark.parametrize("name", ["123", "null", "true", "1e3", "0x1F"])
def test_names_that_yaml_reads_as_other_values_are_quoted(folder: Path, name: str) -> None:
    draw_images(folder / name, count=2)
    made = init(InitOptions(source=name))
    assert made.name == name
    assert load(made.file).options.name == name


@pytest.mark.parametrize("odd", ["a\nb: c", "\x1b[31m", "\u2028x", "con\x85", 'a\'b "c" # d'])
def test_odd_characters_of_names_leave_the_config_readable(folder: Path, odd: str) -> None:
    draw_images(folder / odd, ("disc", f"box{odd}"), count=3)
    made = init(InitOptions(source=odd, to=Path(f"{odd}.yaml"), name="odd"))
    assert "\x1b" not in made.file.read_text()
    built = load(made.file)
    assert built.options.name == "odd"


def test_names_that_a_config_cannot_hold_are_refused(folder: Path) -> None:
    draw_images(folder / "good", count=3)
    undecodable = os.fsdecode(b"bad\xff")
    draw_images(folder / undecodable, count=3)
    for request in (
        InitOptions(source=""),
        InitOptions(source=undecodable),
        InitOptions(source="x" * 5000),
        InitOptions(source="good", name="x" * 101),
        InitOptions(source="good", to=Path("x" * 300)),
        InitOptions(source="good", to=Path("a\0b")),
    ):
        with pytest.raises(UserError):
            init(request)
    draw_images(folder / "classes", ("disc", undecodable), count=3)
    made = init(InitOptions(source="classes"))
    assert "bad\\xff" in made.file.read_text()


def test_pipes_and_dangling_links_are_named_and_not_read(folder: Path) -> None:
    draw_images(folder / "photos", count=4)
    os.mkfifo(folder / "photos" / "box" / "pipe.png")
    (folder / "photos" / "disc" / "link.png").symlink_to("nothing.png")
    warnings = " ".join(init(InitOptions(source="photos")).survey.warnings)
    assert "2 images are damaged" in warnings
    assert "pipe.png" in warnings
    assert "link.png" in warnings


def test_the_number_of_a_label_column_may_have_any_length(folder: Path) -> None:
    write_table(folder / "t.csv", "a,b,c,kind", flowers()[:30])
    with pytest.raises(UserError, match="no column"):
        init(InitOptions(source="t.csv", label="9" * 5000))


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"x": np.ones((0, 3)), "y": np.ones(0, int)}, "x.npy: the array is empty"),
        (
            {
                "x": np.eye(20),
                "y": np.arange(20) % 2,
                "x_test": np.eye(20),
                "y_test": np.arange(20) % 2 - 1,
            },
            "y_test.npy: a class is negative",
        ),
    ],
)
def test_archives_without_usable_labels_are_refused(
    folder: Path, arrays: dict[str, np.ndarray], message: str
) -> None:
    np.savez(folder / "a.npz", **arrays)
    with pytest.raises(UserError, match=message):
        init(InitOptions(source="a.npz"))


def test_only_whole_numbers_number_the_rows(folder: Path) -> None:
    rows = [f"{n},{n + 0.5},{n * 7 % 5},{n % 2}" for n in range(1, 81)]
    write_table(folder / "t.csv", "nr,rising,other,class", rows)
    text = init(InitOptions(source="t.csv")).file.read_text()
    assert "nr: ignore      # it only numbers the rows" in text
    assert "rising: number  # 1.5 to 80.5" in text
