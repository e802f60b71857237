"""Language models from training to evaluation: tokens, streams, kills, and metrics of the loss."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands import mxrun, refused, result
from interrupted_runs import go_on, left
from killed_runs import Moment, chain
from layer_configs import config_file
from refusals import only_problem
from training import metrics, run_training, run_with_notes

from mxrun.base.errors import UserError
from mxrun.commands.evaluate import Evaluation, evaluate
from mxrun.commands.infer import infer, result_arrays
from mxrun.io.vocabulary.saved import VOCABULARY_FILE
from mxrun.options.evaluate import EvaluateOptions
from mxrun.options.infer import InferOptions
from mxrun.preparation.planning import load
from mxrun.run.trained_model import TrainedModel

LENGTH = 16
CONFIG = f"""\
name: killed
threads: 1
network:
  inputs: {{data: [{LENGTH}], label: [{LENGTH}]}}
  layers:
    - Embedding: {{name: embed, input_dim: 62, output_dim: 24}}
    - FullyConnected: {{name: fc, num_hidden: 62, flatten: false}}
    - SoftmaxOutput: {{name: softmax, label: label, preserve_shape: true}}
data:
  batch_size: 100
  train: {{dataset: shakespeare, order: stream}}
  eval: {{dataset: shakespeare}}
train:
  epochs: 1
  optimizer: {{adam: {{lr: 0.02}}}}
  metrics: [perplexity, bits_per_character, accuracy]
  checkpoint: {{every: 7 steps, keep: 2, best: bits_per_character}}
"""


@pytest.fixture
def here(empty_folder: Path) -> Path:
    (empty_folder / "net.yaml").write_text(CONFIG)
    return empty_folder


def evaluated(*records: str, **options: Any) -> Evaluation:
    chosen = EvaluateOptions(run=Path("runs/killed"), records=records, **options)
    return evaluate(chosen).run()


def test_a_bigram_model_learns_and_has_the_vocabulary_of_its_run(here: Path) -> None:
    run_training()
    found = metrics("killed")[-1]["eval"]
    # Of the characters alone it would be 3.3.
    assert found["loss"] < 2.7
    assert found["perplexity"] == pytest.approx(math.exp(found["loss"]), rel=1e-5)
    assert found["bits_per_character"] == pytest.approx(found["loss"] / math.log(2), rel=1e-5)
    own = evaluated()
    assert own.loss == pytest.approx(found["loss"], rel=1e-5)
    (head,) = own.heads
    assert head.classes[:3] == (repr("\n"), repr(" "), repr("!"))
    # Another text, in other words: its characters have the ids of training.
    Path("other.txt").write_text("zeal, yet zest\n" * 20)
    other = evaluated("other.txt")
    assert (other.records, other.source) == ((300 - 1) // LENGTH, "text other.txt, all")
    trained = TrainedModel.open(Path("runs/killed"))
    assert trained.vocabulary is not None
    assert trained.vocabulary.decode(trained.vocabulary.encode("zeal")) == "zeal"
    Path("other.txt").write_text("10 %\n" * 20)
    with pytest.raises(UserError, match="the vocabulary does not have these characters: '1', '0'"):
        evaluated("other.txt")


def test_a_changed_vocabulary_is_refused(here: Path) -> None:
    run_training("train.max_steps=3")
    saved = here / "runs/killed" / VOCABULARY_FILE
    saved.write_text(saved.read_text().replace('"a"', '"á"'))
    assert "is not the vocabulary of the checkpoint" in refused("evaluate", "killed", cwd=here)
    saved.unlink()
    assert "no such file" in refused("evaluate", "killed", cwd=here)
    run_training("train.max_steps=5", resume=True)
    assert evaluated(split="train").records
    (here / "net.yaml").write_text(CONFIG.replace("order: stream", "order: stream, lower: true"))
    with pytest.raises(UserError, match="vocabulary: the tokens of the text have changed"):
        run_training("train.max_steps=7", resume=True)


def test_tokens_have_no_transforms(here: Path) -> None:
    with pytest.raises(UserError, match="has no transforms: its records are ids of tokens"):
        run_training("data.train.transforms=[flip]")


def test_a_start_from_a_run_with_another_vocabulary_is_told(here: Path) -> None:
    run_training("train.max_steps=2")
    start = ("name=next", "train.max_steps=2", "train.start_from={run: killed, strict: false}")
    _, notes = run_with_notes(*start, "data.train.lower=true")
    assert any("killed/checkpoint-2 has another vocabulary" in note for note in notes)
    _, notes = run_with_notes(*start, overwrite=True)
    assert not any("vocabulary" in note for note in notes)


def test_a_stream_has_one_order(here: Path) -> None:
    with pytest.raises(UserError, match="the records of a stream follow each other"):
        run_training("data.train.shuffle=true")


def test_a_text_with_more_tokens_than_classes_is_refused(here: Path) -> None:
    with pytest.raises(UserError) as raised:
        run_training("data.train.unknown=?!")
    found = {problem.hint for problem in raised.value.diagnostics}
    assert found == {"write num_hidden: 63", "write input_dim: 63"}
    (table,) = (
        problem.problem
        for problem in raised.value.diagnostics
        if problem.hint == "write input_dim: 63"
    )
    assert table.endswith("has 62 rows, but the vocabulary of data set 'shakespeare' has 63 tokens")


def test_a_tokenizers_file_lies_beside_the_config_and_its_folder_does_not_count(
    tmp_path: Path,
) -> None:
    hashes = set()
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        config = config_file(
            tmp_path / name, CONFIG.replace("order: stream", "tokens: tokenizer.json")
        )
        found = load(config).options
        assert f"tokens: {tmp_path / name / 'tokenizer.json'}" in found.resolved()
        hashes.add((found.sha256(), found.inference_sha256()))
    assert len(hashes) == 1
    config.write_text(CONFIG.replace("order: stream", "tokens: other.json"))
    assert load(config).options.sha256() not in {sha256 for sha256, _ in hashes}


def test_killed_runs_on_a_stream_go_on_to_the_same_bytes(tmp_path: Path) -> None:
    for name in ("uninterrupted", "killed"):
        (tmp_path / name).mkdir()
    go_on(tmp_path / "uninterrupted", config=CONFIG)
    chain(
        tmp_path / "killed", [Moment(9), Moment(40, operation=4)], "data.workers=3", config=CONFIG
    )
    assert left(tmp_path / "killed") == left(tmp_path / "uninterrupted")
    assert VOCABULARY_FILE in left(tmp_path / "killed")


def test_metrics_follow_from_a_loss_without_predictions(here: Path) -> None:
    """softmax_cross_entropy gives the sum of the losses alone."""
    config = CONFIG.replace("SoftmaxOutput", "softmax_cross_entropy")
    config = config.replace(f"data: [{LENGTH}], label: [{LENGTH}]", "data: [1], label: []")
    config = config.replace(", preserve_shape: true", "").replace("flatten: false", "flatten: true")
    config = config.replace("dataset: shakespeare", "dataset: npz, path: a.npz")
    config = config.replace(", order: stream", "").replace(", accuracy", ", cross_entropy")
    (here / "net.yaml").write_text(config)
    random = np.random.default_rng(0)
    data = random.integers(0, 62, (430, 1)).astype(np.int32)
    np.savez("a.npz", data=data, label=(data[:, 0] * 7 + 3) % 62)
    run_training()
    (epoch,) = metrics("killed")
    for found in (epoch["eval"], epoch["train"]):
        assert found["perplexity"] == pytest.approx(math.exp(found["loss"]), rel=1e-9)
        assert found["bits_per_character"] == pytest.approx(found["loss"] / math.log(2), rel=1e-9)
        assert found["cross_entropy"] == found["loss"]
    (head,) = evaluated().heads
    assert "accuracy" in head.metrics
    problem = only_problem(run_training, "train.metrics=[accuracy]", overwrite=True)
    assert problem.hint == "metrics that fit: bits_per_character, cross_entropy, perplexity"
    assert "gives its loss alone, and no predictions" in "".join(problem.chain)


def test_texts_of_files_are_classified(empty_folder: Path) -> None:
    config_file(Path(), "extends: text_classifier\ntrain: {epochs: 2}\n")
    run_training()
    texts = ["Romeo, wherefore art thou Romeo?", "My noble lords of Rome!", "Kiss me, Kate"]
    Path("lines.txt").write_text("\n".join(texts) + "\n")
    Path("table.csv").write_text("id,text\n" + "".join(f'7,"{text}"\n' for text in texts))
    lines = result("infer", "net", "lines.txt")["results"]
    table = result("infer", "net", "table.csv", "lines.txt")["results"]
    assert [(row["input"], row["record"]) for row in table] == [
        (name, number) for name in ("table.csv", "lines.txt") for number in range(3)
    ]
    assert [row["top"] for row in table] == [row["top"] for row in lines] * 2
    assert lines[0]["top"][0]["name"] == "Romeo and Juliet"
    # Settings say how the files are read.
    Path("own.csv").write_text("kind/body\n" + "".join(f'7/"{text}"\n' for text in texts))
    own = result("infer", "net", "own.csv", "text=body", "delimiter=/")["results"]
    assert [row["top"] for row in own] == [row["top"] for row in lines]
    assert "tokens= is no setting of files of texts" in refused(
        "infer", "net", "own.csv", "tokens=bytes"
    )
    # Blank lines have no record, and leave the numbers of the others.
    Path("spaced.txt").write_text("\n" + " \r\n\n".join(texts))
    Path("spaced.csv").write_text("\n\n".join(["id,text", *(f'7,"{text}"' for text in texts)]))
    entries = [{"text": text} for text in texts]
    Path("one.json").write_text(json.dumps(entries))
    spaced = result("infer", "net", "spaced.txt", "spaced.csv", "one.json")["results"]
    assert [(row["input"], row["record"]) for row in spaced] == [
        *(("spaced.txt", number) for number in (1, 3, 5)),
        *((name, number) for name in ("spaced.csv", "one.json") for number in range(3)),
    ]
    assert [row["top"] for row in spaced] == [row["top"] for row in lines] * 3
    piped = mxrun("infer", "net", "-", "--json", standard_input="\n".join(texts))
    assert piped.returncode == 0, piped.stderr
    read = json.loads(piped.stdout)["results"]
    assert [(row["input"], row["record"]) for row in read] == [
        ("<standard input>", number) for number in range(3)
    ]
    assert [row["top"] for row in read] == [row["top"] for row in lines]
    # Another file of the same form, labelled.
    labelled = zip(
        ("Romeo and Juliet", "Coriolanus", "The Taming of the Shrew"), texts, strict=True
    )
    Path("more.txt").write_text("".join(f"{label}\t{text}\n" for label, text in labelled))
    found = evaluate(EvaluateOptions(run=Path("runs/net"), records=("more.txt",))).run()
    assert (found.records, found.source) == (3, "text_lines more.txt, all")


def test_classes_that_are_numbers_are_not_named_like_tokens(empty_folder: Path) -> None:
    Path("rows.txt").write_text("0\ta\n1\tb\n2\ta b\n3\tb a\n")
    Path("net.yaml").write_text(
        """\
name: numbers
network:
  inputs: {data: [2], label: []}
  layers:
    - Embedding: {name: embed, input_dim: 4, output_dim: 2}
    - FullyConnected: {name: fc, num_hidden: 4}
    - SoftmaxOutput: {name: softmax, label: label}
data:
  batch_size: 4
  train: {dataset: text_lines, path: rows.txt}
train: {max_steps: 1, optimizer: {sgd: {lr: 0.1}}}
"""
    )
    run_training()
    (head,) = evaluate(EvaluateOptions(run=Path("runs/numbers"), split="train")).run().heads
    assert head.classes == ("0", "1", "2", "3")


def test_a_network_that_continues_texts_has_no_classes(here: Path) -> None:
    run_training("train.max_steps=2")
    Path("lines.txt").write_text("one\n")
    assert "--prompt TEXT continues a text" in refused("infer", "killed", "lines.txt")


def test_arrays_of_results_have_the_order_of_the_records(here: Path) -> None:
    """Batches of a stream, whose rows come one after the other elsewhere, have another one."""
    run_training("train.max_steps=1")
    found = {}
    for order in ("stream", "windows"):
        settings = (f"order={order}",)
        options = InferOptions(
            run=Path("runs/killed"), inputs=settings, split="eval", outputs=("fc",)
        )
        batches = list(infer(options).batches())
        found[order] = result_arrays(batches)["fc"]
        second = batches[0].records.names[1]
    count = len(found["windows"])
    assert count > 2 * 100
    assert second == ("shakespeare test", 1)
    np.testing.assert_array_equal(found["stream"], found["windows"])
