"""Runs on batches of several padded lengths: one plan for each, in one arena."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
from commands import refused, result
from interrupted_runs import go_on, left
from killed_runs import Moment, chain
from memory_reports import memory_of, verified
from training import metrics, run_training

from mxrun.frontend import ModelDefinition
from mxrun.graph.phases import EVALUATE, TRAIN
from mxrun.preparation.planning import load, plan_for
from mxrun.preparation.prepared import Prepared

LENGTH, BUCKETS, BATCH = 24, (4, 12), 8
CONFIG = f"""\
name: killed
threads: 1
network:
  inputs: {{data: [{LENGTH}], mask: [{LENGTH}], lengths: [], label: []}}
  layers:
    - Embedding: {{name: embed, data: data, input_dim: 40, output_dim: 8}}
    - expand_dims: {{name: is_word, data: mask, axis: 2}}
    - broadcast_mul: {{name: words, lhs: embed, rhs: is_word}}
    - sum: {{name: total, axis: 1}}
    - expand_dims: {{name: count, data: lengths, axis: 1}}
    - broadcast_div: {{name: mean, lhs: total, rhs: count}}
    - FullyConnected: {{name: fc, num_hidden: 2}}
    - SoftmaxOutput: {{name: softmax, label: label}}
data:
  batch_size: {BATCH}
  train: {{dataset: text_lines, path: train.txt, shuffle: true, buckets: {list(BUCKETS)}}}
  eval: {{dataset: text_lines, path: test.txt}}
train:
  epochs: 3
  optimizer: {{adam: {{lr: 0.01}}}}
  metrics: [accuracy, cross_entropy, confusion_matrix]
  checkpoint: {{every: 2 steps, keep: 100}}
"""


def write_texts(folder: Path) -> None:
    """Write texts of 1 to 24 words, whose label is that of most of their words."""
    draw = random.Random(3)
    for name, count in (("train", 70), ("test", 41)):
        lines = []
        for _ in range(count):
            label, size = draw.randrange(2), draw.choice((1, 2, 3, 4, 7, 11, 20, LENGTH))
            words = [f"w{draw.randrange(12) * 2 + label}" for _ in range(size)]
            lines.append(f"{'ab'[label]}\t{' '.join(words)}\n")
        (folder / f"{name}.txt").write_text("".join(lines))


@pytest.fixture
def texts(empty_folder: Path) -> Path:
    """The current folder, with the config and its records."""
    write_texts(empty_folder)
    (empty_folder / "net.yaml").write_text(CONFIG)
    return empty_folder


def built(*overrides: str) -> ModelDefinition:
    return load(Path("net.yaml"), overrides)


def test_every_length_has_a_plan_in_the_arena_of_the_longest(texts: Path) -> None:
    plan, alone = plan_for(built(), training=True), plan_for(built("data.train.buckets=[]"), True)
    names = [f"{phase}:{length}" for length in BUCKETS for phase in (TRAIN, EVALUATE)]
    assert sorted(plan.phases) == sorted([TRAIN, EVALUATE, *names])
    assert plan.pinned == alone.pinned
    assert plan.specs == alone.specs
    assert plan.planned_bytes == alone.planned_bytes
    for name in names:
        phase = plan.phases[name]
        length = int(name.partition(":")[2])
        sources = phase.graph.sources
        assert phase.graph.spec(sources["data"]).shape == (BATCH, length)
        assert phase.graph.spec(sources["label"]).shape == (BATCH,)
        assert {phase.offsets[value]: source for source, value in sources.items()} == {
            plan.offset(source): source for source in sources
        }
        assert phase.reusable_bytes <= plan.reusable_bytes


def test_a_run_plans_what_it_touches_and_padding_changes_no_metric(texts: Path) -> None:
    summary = run_training()
    memory = summary["memory"]
    assert memory["planned_bytes"] == memory["touched_bytes"] == memory["lower_bound_bytes"]
    # Evaluation with a plan for the longest texts alone: the same records, with more padding.
    (last,) = [line for line in metrics("killed") if line.get("epoch") == 3 and "eval" in line]
    evaluated = result("evaluate", "killed", "--checkpoint", "newest", cwd=texts)
    assert evaluated["records"] == 41
    assert last["eval"]["loss"] == pytest.approx(evaluated["loss"], rel=1e-5)
    assert last["eval"]["accuracy"] == evaluated["metrics"]["accuracy"]
    assert last["eval"]["confusion_matrix"] == evaluated["heads"][0]["confusion_matrix"]
    assert np.sum(last["eval"]["confusion_matrix"]) == 41
    assert last["train"]["loss"] < 0.8 * metrics("killed")[0]["train"]["loss"]


def test_a_step_gives_what_it_gives_with_more_padding(texts: Path) -> None:
    """The same batch in the slots of its bucket, and in those of the longest records."""
    definition = built()
    plan = plan_for(definition, training=True)
    draw = np.random.default_rng(0)
    lengths = draw.integers(1, BUCKETS[0] + 1, BATCH)
    mask = (np.arange(LENGTH) < lengths[:, np.newaxis]).astype("f4")
    data = (draw.integers(1, 40, (BATCH, LENGTH)) * mask).astype("i4")
    others = {
        "lengths": lengths.astype("f4"),
        "label": draw.integers(0, 2, BATCH).astype("i4"),
        "sample_weight": np.ones(BATCH, "f4"),
    }
    found = []
    for length, phase in ((LENGTH, TRAIN), (BUCKETS[0], f"{TRAIN}:{BUCKETS[0]}")):
        prepared = Prepared.of(definition, plan)
        prepared.begin()
        executor = prepared.executor
        graph = plan.phases[phase].graph
        batch = {"data": data[:, :length], "mask": mask[:, :length], **others}
        for name, array in batch.items():
            spec = graph.spec(graph.sources[name])
            executor.tensor_at(plan.offset(name), spec).write(array)
        executor.run(phase)
        loss = executor.result(phase, "softmax_loss").read()
        found.append((loss, {n: executor.tensor(n).read() for n in definition.model.parameters}))
    (padded_loss, padded), (loss, shorter) = found
    np.testing.assert_allclose(loss, padded_loss, rtol=1e-6)
    for name, array in padded.items():
        np.testing.assert_allclose(shorter[name], array, rtol=1e-5, atol=1e-7)


def test_F5_a_run_in_buckets_killed_in_the_middle_of_epochs_resumes_to_the_same_bytes(
    tmp_path: Path,
) -> None:
    whole, killed = tmp_path / "whole", tmp_path / "parts"
    for folder in (whole, killed):
        folder.mkdir()
        write_texts(folder)
    chain(killed, (Moment(5), Moment(14, operation=2)), config=CONFIG)
    go_on(whole, config=CONFIG)
    assert left(killed) == left(whole)


def test_gradients_of_several_buckets_are_summed(texts: Path) -> None:
    summary = run_training("train.accumulate=2", "train.epochs=1")
    assert summary["memory"]["planned_bytes"] == summary["memory"]["touched_bytes"]
    assert {"accumulate", "accumulate:4", "accumulate:12"} <= {
        *plan_for(built("train.accumulate=2"), training=True).phases
    }


def test_the_plans_of_all_lengths_are_shown_and_verified(texts: Path) -> None:
    report = memory_of("net.yaml").to_json()
    assert {"train", "train:4", "train:12", "evaluate:4"} <= {*report["order"]}
    assert report["planned_bytes"] == report["lower_bound_bytes"]
    checked = verified("net.yaml", steps=2)
    assert checked["passed"]
    assert "length 4: no memory reuse" in {each["variant"] for each in checked["variants"]}


def test_what_depends_on_one_length_is_refused(texts: Path) -> None:
    text = CONFIG.replace("    - sum: {name: total, axis: 1}\n", "    - Flatten: {name: total}\n")
    text = text.replace(
        "    - broadcast_div: {name: mean, lhs: total, rhs: count}\n",
        "    - elemwise_mul: {name: mean, lhs: total, rhs: total}\n",
    ).replace("    - expand_dims: {name: count, data: lengths, axis: 1}\n", "")
    (texts / "net.yaml").write_text(text.replace("lengths: [], ", ""))
    errors = refused("check", "net.yaml", cwd=texts)
    assert "buckets: a layer requires one length" in errors
    assert "'fc'" in errors
    (texts / "net.yaml").write_text(CONFIG)
    errors = refused("check", "net.yaml", "context=[cpu:0, cpu:1]", cwd=texts)
    assert "data in buckets cannot be used with a list of contexts" in errors
