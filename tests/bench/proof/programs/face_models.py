"""Models: fit, evaluate, predict, generate, parameters, save, plans, callbacks and errors.

python face_models.py
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from face_facts import note, note_error, numbers, write

import mxrun

LAYERS: list[dict[str, Any]] = [
    {"FullyConnected": {"name": "fc1", "num_hidden": 16}},
    {"Activation": {"act_type": "relu"}},
    {"Dropout": {"p": 0.2}},
    {"FullyConnected": {"name": "fc2", "num_hidden": 10}},
    {"SoftmaxOutput": {"name": "softmax", "label": "label"}},
]
CONFIG: dict[str, Any] = {
    "name": "mine",
    "network": {"inputs": {"data": [1, 8, 8], "label": []}, "layers": LAYERS},
    "data": {
        "batch_size": 48,
        "train": {"dataset": "digits", "split": "train", "shuffle": True, "transforms": ["flip"]},
        "eval": {"dataset": "digits", "split": "test"},
    },
    "train": {
        "epochs": 2,
        "optimizer": {"adam": {"lr": 0.01, "wd": 0.001}},
        "metrics": ["accuracy", {"f1": {"average": "macro"}}],
        "checkpoint": {"best": "accuracy"},
    },
}
# Trainings by name, with what each changes.
FITS: dict[str, dict[str, Any]] = {
    "plain": {},
    "naive engine": {"engine": "naive"},
    "one thread": {"threads": 1},
    "accumulated": {"train.accumulate": 2},
    "averaged": {"train.average": 0.9},
    "scheduled": {"train.schedule": {"cosine": {"warmup_steps": 5}}},
    "seed": {"seed": 9},
    "two contexts": {"context": ["cpu:0", "cpu:1"], "threads": 1},
    "stores on devices": {"context": ["cpu:0", "cpu:1"], "threads": 1, "kvstore": "device"},
    "micro-batches": {"memory.budget": "66 KiB", "memory.micro_batches": True},
    "bfloat16": {"precision": "bfloat16"},
}


def fits() -> None:
    """Trainings with one change each, and their parameters."""
    for name, changes in FITS.items():
        try:
            model = mxrun.load(CONFIG, {**changes, "name": name.replace(" ", "-")})
            result = model.fit(progress=False)
        except mxrun.UserError as error:
            raise SystemExit(f"fit {name}: {error}") from error
        note(f"fit {name}", [dict(model.parameters), [str(each) for each in result.history]])
        note(f"curve {name}", [result.curve("accuracy"), str(result.best), result.ended])


def uses() -> None:
    """Evaluation and prediction of a trained model, its parameters, its files."""
    model = mxrun.load("plain")
    images = (255 * numbers("images", 7, 8, 8)).astype(np.uint8) % 17
    prediction = model.predict(images)
    note("predict", [prediction.values, prediction.numbers, prediction.names, prediction.top(2)])
    note("predict fractions", model.predict(images / np.float32(16)).values)
    note("predict a layer", np.asarray(model.predict(images, outputs=["fc1"])))
    for part in (None, "train", (images, prediction.numbers)):
        found = model.evaluate() if part is None else model.evaluate(part)
        note(f"evaluate {type(part).__name__}", [found.loss, found.metrics, found.confusion])
    start = mxrun.load(CONFIG)
    note("initial parameters", dict(start.parameters))
    plan = start.plan()
    live = [[each.tensor, each.nbytes, each.offset, each.reason] for each in plan.live_at_peak]
    note("plan", [plan.planned_bytes, str(plan.peak_step), live])
    note("network", [repr(model.network), [repr(layer) for layer in model.network.layers]])
    model.parameters["fc2_bias"] = model.parameters["fc2_bias"] + 0.5
    note("assigned", model.predict(images).values)
    model.save("saved")
    note("saved", [dict(mxrun.load("saved").parameters), mxrun.load("saved").config["name"]])
    model.save("saved.onnx")
    note("saved as ONNX", np.frombuffer(Path("saved.onnx").read_bytes(), np.uint8))
    tuned = mxrun.load("saved", {"name": "tuned", "train.epochs": 1})
    tuned.fit(progress=False)
    note("tuned", dict(tuned.parameters))


def stops() -> None:
    """A callback ends a training, which then goes on."""

    def enough(event: Any) -> None:
        if isinstance(event, mxrun.EpochDone) and event.epoch == 1:
            raise mxrun.StopTraining("one epoch is enough")

    model = mxrun.load(CONFIG, {"name": "stopped"})
    result = model.fit([enough], progress=False)
    note("stopped", [result.ended, str(result.why), dict(model.parameters)])
    result = model.fit(resume=True, progress=False)
    note("resumed", [result.ended, dict(model.parameters)])


def generates() -> None:
    """Texts of a small model."""
    for config in ("gpt_tiny", "lstm_tiny"):
        changes = {"train.max_steps": 3, "data.eval": None, "name": config}
        model = mxrun.load(config, changes)
        model.fit(progress=False)
        text = model.generate("ROMEO:", 24, temperature=0.8, top_k=20, seed=1)
        note(f"{config}: text", [text.prompt, text.text, list(text.tokens), text.ended])
        several = model.generate(["To be", "or not to"], 12, temperature=0)
        note(f"{config}: texts", [each.text for each in several])
        pieces = model.stream("ROMEO:", 10, top_p=0.7, seed=2)
        note(f"{config}: stream", "".join(map(str, pieces)))


def errors() -> None:
    """What bad uses say."""
    model = mxrun.load("plain")
    load = mxrun.load
    note_error("keys", lambda: load(CONFIG, {"train.epohcs": 3, "data.batch_size": 0}))
    note_error("no such config", lambda: load("digits_lenett"))
    note_error("type", lambda: load(3))
    note_error("layer", lambda: load(CONFIG, {"network.layers[0].FullyConnected.num_hiden": 3}))
    note_error("input's shape", lambda: model.predict(np.ones((2, 9, 9), np.uint8)))
    note_error("no layer", lambda: model.predict(np.ones((2, 8, 8), np.uint8), outputs=["fc9"]))
    note_error("parameter", lambda: model.parameters["fc9_bias"])
    note_error("no text", lambda: model.generate("a", 3))
    note_error("run exists", lambda: load(CONFIG, {"name": "plain"}).fit(progress=False))
    note_error("folder exists", lambda: model.save("saved"))
    note_error("metric", lambda: model.evaluate()["precison"])
    note_error("split", lambda: model.evaluate("tset"))

    def assign() -> None:
        model.parameters["fc2_bias"] = np.zeros(3)

    note_error("assigned shape", assign)


if __name__ == "__main__":
    for part in (fits, uses, stops, generates, errors):
        part()
    write()
