"""Forecasts: the steps after a table, in its units, beside naive ones."""

from __future__ import annotations

import contextlib
import csv
import json
from pathlib import Path

import numpy as np
import pytest
from layer_configs import config_text, listed
from refusals import only_problem
from series_tables import hours, wave, write_table
from training import run_training

import mxrun
from mxrun.base.errors import UserError
from mxrun.commands.evaluate import evaluate
from mxrun.commands.infer import Forecasts, Inference, infer
from mxrun.options.evaluate import EvaluateOptions
from mxrun.options.infer import InferOptions

SERIES = "dataset: series, time: time, target: load, season: 4, window: 8, horizon: 4"
RUN = Path("runs/waves")


def config(options: str = "", future: str = "", width: int = 1) -> str:
    known = f"future: [4, {future}], " if future else ""
    joined = [
        "Flatten: {name: past, data: data}",
        *(["Flatten: {name: ahead, data: future}"] if future else []),
        *(["Concat: {name: all, inputs: [past, ahead]}"] if future else []),
    ]
    return config_text(
        listed(
            *joined,
            "FullyConnected: {name: fc, num_hidden: 4}",
            "elemwise_add: {name: forecast, lhs: fc, rhs: naive}",
            "LinearRegressionOutput: {name: out, label: label}",
        ),
        name="waves",
        settings="threads: 1\n",
        inputs=f"{{data: [8, {width}], {known}naive: [4], label: [4]}}",
        data="data:\n  batch_size: 16\n"
        f"  train: {{{SERIES}, path: load.csv, shuffle: true{options}}}\n"
        "  eval: {dataset: series, split: validation, look_back: true}\n",
        train="train: {epochs: 2, optimizer: {adam: {lr: 0.01}}, metrics: [mae]}\n",
    )


def trained(text: str) -> None:
    Path("net.yaml").write_text(text)
    run_training()


def forecast(*inputs: str, **options: object) -> Forecasts:
    found = infer(InferOptions(run=RUN, inputs=inputs, **options))  # type: ignore[arg-type]
    assert isinstance(found, Forecasts)
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a run."""
    path = tmp_path_factory.mktemp("waves")
    with contextlib.chdir(path):
        write_table("load.csv", {"time": hours(200), "load": wave(200, 4)})
        trained(config())
    return path


@pytest.fixture
def waves(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)


@pytest.mark.usefixtures("waves")
def test_direct_and_recursive_forecasts() -> None:
    direct = forecast("load.csv")
    assert direct.values.shape == (1, 4, 1)
    assert direct.times(0) == [f"2024-01-09T{hour:02}:00" for hour in range(8, 12)]
    # The formula of the network, with the scaling of the training part.
    model = mxrun.load(RUN)
    weight, bias = (np.asarray(model.parameters[f"fc_{name}"]) for name in ("weight", "bias"))
    load = wave(200, 4)
    mean, std = load[:160].mean(), load[:160].std()
    scaled = (load - mean) / std
    expected = scaled[-4:] + weight @ scaled[-8:] + bias
    assert np.allclose(direct.values[0, :, 0], expected * std + mean, rtol=1e-5)
    # Further steps are those of a table that ends with the predictions.
    further = forecast("load.csv", steps=7)
    assert np.array_equal(further.values[:, :4], direct.values)
    longer = [*load, *direct.values[0, :, 0].tolist()]
    write_table("longer.csv", {"time": hours(204), "load": longer})
    assert np.array_equal(forecast("longer.csv").values[0, :3], further.values[0, 4:])
    assert len(list(forecast("load.csv", steps=2).rows())) == 2


@pytest.mark.usefixtures("waves")
def test_python_predicts_the_same() -> None:
    direct, model = forecast("load.csv", steps=6), mxrun.load(RUN)
    found = model.predict("load.csv", steps=6)
    assert np.array_equal(found.outputs["load"], direct.values[..., 0])
    assert list(found.times[0]) == direct.times(0)
    columns = {"time": np.array(hours(200), "datetime64[m]"), "load": wave(200, 4)}
    assert np.array_equal(model.predict(columns, steps=6).values, found.values)
    assert np.array_equal(model.predictor(1).predict("load.csv", steps=6).values, found.values)
    with pytest.raises(UserError, match=r"there is no column 'load'\n.*\n  hint: did you mean"):
        model.predict({"time": hours(200), "lod": wave(200)})
    with pytest.raises(UserError, match="columns by name: time, load"):
        model.predict(wave(200))
    for steps in (0, 1.5):
        with pytest.raises(UserError, match="steps cannot be"):
            model.predict("load.csv", steps=steps)  # type: ignore[arg-type]


@pytest.mark.usefixtures("waves")
def test_standard_input_holds_a_series(monkeypatch: pytest.MonkeyPatch) -> None:
    with open("load.csv") as file:
        monkeypatch.setattr("sys.stdin", file)
        found = forecast("-")
    assert np.array_equal(found.values, forecast("load.csv").values)


@pytest.mark.usefixtures("waves")
def test_options_that_a_forecast_does_not_read_are_refused() -> None:
    problem = only_problem(forecast, "load.csv", top=2)
    assert problem.problem == "--top cannot be combined with a forecast"
    with pytest.raises(UserError, match="--steps cannot be combined with --prompt"):
        _ = InferOptions(run=RUN, prompt="a", steps=2).generates_text


@pytest.mark.usefixtures("waves")
def test_errors_are_those_of_formulas_in_the_units_of_the_table() -> None:
    model, load = mxrun.load(RUN), wave(200, 4)
    truth = np.stack([load[at : at + 4] for at in range(160, 177)])
    values, last, season = [], [], []
    for at in range(160, 177):
        write_table("cut.csv", {"time": hours(at), "load": load[:at]})
        values.append(model.predict("cut.csv").values[0])
        last.append(np.repeat(load[at - 1], 4))
        season.append(load[at - 4 : at])
    unit = abs(load[4:160] - load[:156]).mean()
    found = evaluate(EvaluateOptions(run=RUN)).run()
    (head,) = found.heads
    assert [row["forecast"] for row in head.forecasts] == ["network", "last value", "season of 4"]
    for row, forecasts in zip(head.forecasts, (values, last, season), strict=True):
        errors = np.array(forecasts) - truth
        assert np.isclose(row["mae"], abs(errors).mean(), rtol=1e-5)
        assert np.isclose(row["rmse"], np.sqrt((errors**2).mean()), rtol=1e-5)
        assert np.isclose(row["mase"], abs(errors).mean() / unit, rtol=1e-5)
    assert np.isclose(found.metrics["mae"], head.forecasts[0]["mae"], rtol=1e-5)
    assert found.metrics["mase"] == head.forecasts[0]["mase"]
    assert [row["output"] for row in head.rows] == ["+1", "+2", "+3", "+4"]
    rows = infer(InferOptions(run=RUN, split="eval"))
    assert isinstance(rows, Inference)
    shown = [*rows.rows()]
    assert np.allclose([row["output"] for row in shown], values, rtol=1e-5)
    assert np.allclose([row["label"] for row in shown], truth)
    assert [*(rows.metrics or {})] == ["loss"]
    (worst,) = evaluate(EvaluateOptions(run=RUN, errors=1)).run().heads[0].errors
    assert worst["input"].startswith("2024-01-0")


def test_known_columns_must_go_on(empty_folder: Path) -> None:
    load = [*wave(200, 4), *[None] * 6]
    columns = {"time": hours(206), "load": load, "open": [at % 3 for at in range(206)]}
    write_table("load.csv", columns)
    trained(config(", known: [open], calendar: [day]", "3", width=4))
    assert forecast("load.csv").values.shape == (1, 4, 1)
    problem = only_problem(forecast, "load.csv", steps=8)
    assert problem.problem == "load.csv:207:1: the future after this row is not known"
    assert problem.expected == "8 rows after the last one with a target that have open"
    assert problem.got == "6 rows"


def test_past_columns_are_not_predicted(empty_folder: Path) -> None:
    write_table("load.csv", {"time": hours(200), "load": wave(200), "warm": wave(200, 24)})
    trained(config(", past: [warm]", width=2))
    assert forecast("load.csv").values.shape == (1, 4, 1)
    problem = only_problem(forecast, "load.csv", steps=5)
    assert problem.problem == "--steps 5: the network reads columns that it does not predict"


def test_series_that_are_too_short_or_new_are_named(empty_folder: Path) -> None:
    names = ["a"] * 100 + ["b"] * 100
    columns = {"time": hours(100) * 2, "place": names, "load": [*wave(100), *(9 * wave(100))]}
    write_table("load.csv", columns)
    trained(config(", series: place"))
    rows = [*range(90, 100), *range(190, 195)]
    later = {name: [values[row] for row in rows] for name, values in columns.items()}
    later["place"] = ["c"] * 10 + ["b"] * 5
    write_table("later.csv", later)
    found = forecast("later.csv")
    assert found.names == ("c",)
    assert "no forecast: series 'b' is too short" in found.notes
    assert "series that training did not have: c" in found.notes
    assert forecast("load.csv").values[1].mean() > 5 * forecast("load.csv").values[0].mean()
    assert [row["series"] for row in forecast("load.csv").rows()] == ["a"] * 4 + ["b"] * 4
    gap = {name: values[:95] + values[96:100] for name, values in columns.items()}
    write_table("gap.csv", gap)
    problem = only_problem(forecast, "gap.csv")
    assert problem.problem == "gap.csv:97:1: series 'a' has a gap within its last 8 steps"
    assert forecast("gap.csv", "gaps=previous").names == ("a",)


def test_several_targets(empty_folder: Path) -> None:
    table = {"time": hours(120), "load": wave(120, 4), "price": 7 * wave(120, 4, 2)}
    write_table("load.csv", table)
    text = config().replace("target: load", "target: [load, price]")
    text = text.replace("naive: [4], label: [4]", "naive: [4, 2], label: [4, 2]")
    text = text.replace("data: [8, 1]", "data: [8, 2]").replace("num_hidden: 4", "num_hidden: 8")
    added = "    - elemwise_add: {name: forecast, lhs: "
    reshaped = f"    - Reshape: {{name: steps, shape: [0, 4, 2]}}\n{added}steps"
    trained(text.replace(f"{added}fc", reshaped))
    found = forecast("load.csv", steps=6)
    assert found.targets == ("load", "price")
    assert 4 < found.values[..., 1].mean() / found.values[..., 0].mean() < 9
    (head,) = evaluate(EvaluateOptions(run=RUN)).run().heads
    assert [row["target"] for row in head.forecasts] == ["load"] * 3 + ["price"] * 3
    assert [row["output"] for row in head.rows][:3] == ["load +1", "price +1", "load +2"]


@pytest.mark.usefixtures("waves")
def test_resumed_training_gives_the_same_bits() -> None:
    steps = run_training("name=whole", "train.epochs=4")["steps"]
    run_training("name=half")
    assert run_training("name=half", "train.epochs=4", resume=True)["steps"] == steps
    files = [
        [path.read_bytes() for path in sorted(Path(f"runs/{name}/checkpoint-{steps}").iterdir())]
        for name in ("half", "whole")
    ]
    assert files[0] == files[1]
    text = Path("load.csv").read_text()
    Path("load.csv").write_text(text.replace(",5", ",6", 1))
    problem = only_problem(run_training, "name=half", "train.epochs=6", resume=True)
    Path("load.csv").write_text(text)
    assert "data.train: its records have changed" in str(problem.got)


@pytest.mark.usefixtures("waves")
@pytest.mark.commands
@pytest.mark.full
def test_the_command_writes_tables_lines_json_and_drawings() -> None:
    from commands import mxrun as command
    from commands import succeeded

    direct = [*forecast("load.csv", steps=5).rows()]
    shown = succeeded(command("infer", str(RUN), "load.csv", "--steps", "5")).stdout
    assert "2024-01-09T08:00" in shown
    found = json.loads(
        succeeded(command("infer", str(RUN), "load.csv", "--steps", "5", "--json")).stdout
    )
    assert found["results"] == direct
    succeeded(command("infer", str(RUN), "load.csv", "--steps", "5", "--to", "f.csv"))
    with Path("f.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [float(row["load"]) for row in rows] == [row["load"] for row in direct]
    assert [row["time"] for row in rows] == [row["time"] for row in direct]
    succeeded(command("infer", str(RUN), "load.csv", "--to", "f.svg"))
    drawing = Path("f.svg").read_text()
    assert drawing.startswith("<svg")
    assert "stroke-dasharray" in drawing
    failed = command("infer", str(RUN), "--split", "eval", "--steps", "5")
    assert failed.returncode == 2
    assert "--steps is for files of a series" in failed.stderr


@pytest.mark.usefixtures("waves")
def test_onnx_files_say_how_forecasts_are_scaled() -> None:
    model = mxrun.load(RUN)
    model.save("f.onnx")
    content = Path("f.onnx").read_bytes()
    start = content.index(b"mxrun.series")
    text = content[content.index(b"{", start) :].decode("latin-1")
    said, _ = json.JSONDecoder().raw_decode(text)
    (target,) = said["targets"]
    load = wave(200, 4)[:160]
    assert np.isclose(target["center"], load.mean())
    assert np.isclose(target["spread"], load.std())
    assert (said["window"], said["horizon"], said["season"]) == (8, 4, 4)
