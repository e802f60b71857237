"""Plans, parameters after some steps, and outputs of networks."""

from __future__ import annotations

import hashlib
import json
import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from proof.installation import Facts, Installation
from proof.part import Part

_STEPS = 20
_CLASSES = 10
_OF_A_BLOCK = ("tensor", "class", "offset", "bytes", "first", "last")
PHASES = ("train", "infer")


@dataclass(frozen=True)
class Case:
    """Network and what is asked of it.

    name: that of the run. config: a bundled config, or the text of one. plan: settings on which the
    plan depends. data: further settings of training. phases: those that are inspected; with text
    that continues a prompt also `generate`. prompt: continued after training, instead of inference
    on the evaluation data.
    """

    name: str
    config: str
    plan: tuple[str, ...] = ()
    data: tuple[str, ...] = ()
    phases: tuple[str, ...] = PHASES
    prompt: str = ""


def synthetic(name: str, batch: int, label: str = "", *plan: str) -> Case:
    """Return a bundled config for 20 steps on synthetic records; `label` tells it from others."""
    made = f"dataset: synthetic, classes: {_CLASSES}"
    data = (
        f"data.train={{{made}, split: train, shuffle: true, records: {_STEPS * batch}}}",
        f"data.eval={{{made}, split: test, records: {2 * batch}}}",
        "train.epochs=1",
    )
    return Case(name + label, name, (f"data.batch_size={batch}", *plan), data)


_DIGITS = (f"train.max_steps={_STEPS}",)
_TEXT = (f"train.max_steps={_STEPS}", "data.eval.split={of: test, range: [0, 64]}")

# Only the fused operator carries states from batch to batch.
_UNFUSED = (
    "network.layers[1].RNN={name: lstm, mode: lstm, state_size: 128, num_layers: 1, layout: NTC, "
    "initial_state: zeros, fused: false}"
)


def language(name: str, label: str = "", *plan: str) -> Case:
    """Return a bundled model of characters for some steps, whose prompt is continued."""
    return Case(name + label, name, plan, _TEXT, (*PHASES, "generate"), "What light")


RECURRENT = """\
network:
  inputs: {data: [1, 8, 8], label: []}
  layers:
    - Reshape: {name: rows, shape: [0, 8, 8]}
    - recurrent:
        name: rnn
        bidirectional: true
        sequences: {x: rows}
        memories: {h: {layer: next, shape: [32]}, g: {layer: next, shape: [32], offset: 2}}
        layers:
          - Concat: {name: both, inputs: [x, h, g]}
          - FullyConnected: {name: fc, num_hidden: 32}
          - Activation: {name: next, act_type: tanh}
          - Dropout: {name: dropped, p: 0.2}
        outputs: [dropped]
        final: [h]
    - FullyConnected: {name: out, data: "rnn[h]", num_hidden: 10}
    - SoftmaxOutput: {name: softmax, label: label}
data:
  batch_size: 32
  train: {dataset: digits, split: train, shuffle: true}
  eval: {dataset: digits, split: test}
train:
  epochs: 1
  optimizer: {adam: {lr: 0.01, wd: 0.01, clip_global_norm: 1.0}}
  average: 0.9
  metrics: [accuracy, cross_entropy]
"""
BUCKETS = """\
network:
  inputs: {data: [24], mask: [24], lengths: [], label: []}
  layers:
    - Embedding: {name: embed, data: data, input_dim: 40, output_dim: 8}
    - RNN: {name: rnn, mode: gru, state_size: 8, num_layers: 1, layout: NTC,
            initial_state: zeros}
    - sum: {name: total, axis: 1}
    - FullyConnected: {name: fc, num_hidden: 2}
    - SoftmaxOutput: {name: softmax, label: label}
data:
  batch_size: 8
  train: {dataset: text_lines, path: texts.txt, shuffle: true, buckets: [4, 12]}
  eval: {dataset: text_lines, path: texts.txt}
train:
  epochs: 2
  optimizer: {rmsprop: {lr: 0.01}}
  metrics: [accuracy, confusion_matrix]
"""
TIMED = (
    *(
        synthetic(name, 64)
        for name in (
            "digits_lenet",
            "digits_regularized",
            "autoencoder_digits",
            "mlp_regression",
            "mlp_mnist",
            "lenet_mnist",
        )
    ),
    synthetic("resnet20_cifar10", 32),
    synthetic("mobilenetv2_imagenet", 4),
    synthetic("resnet50_imagenet", 4),
    synthetic("inceptionv3_imagenet", 2),
    language("lstm_tiny"),
    language("gpt_tiny"),
)
CASES = (
    *TIMED,
    language("lstm_tiny", " not fused", _UNFUSED),
    language("gpt_tiny", " in bfloat16", "precision=bfloat16"),
    Case("recurrent", RECURRENT, data=_DIGITS),
    Case("recurrent in a budget", RECURRENT, ("memory.budget=75%",), _DIGITS),
    Case("buckets", BUCKETS),
    synthetic("resnet20_cifar10", 32, " in a budget", "memory.budget=60%"),
    synthetic("digits_lenet", 64, " in parts", "memory.budget=60%", "memory.micro_batches=true"),
    synthetic("digits_lenet", 64, " in a sum", "train.accumulate=4"),
    synthetic("digits_regularized", 64, " on two contexts", "context=[cpu:0, cpu:1]"),
    synthetic("digits_regularized", 64, " on reference", "context=reference"),
    synthetic("digits_lenet", 60, " traversed", "backward=reverse"),
    synthetic("digits_lenet", 64, " by the threaded engine", "engine=threaded"),
)


def write_texts(folder: Path) -> None:
    """Write texts of 1 to 24 words, whose label is that of most of their words."""
    draw = random.Random(3)
    lines = []
    for _ in range(70):
        label, size = draw.randrange(2), draw.choice((1, 2, 3, 4, 7, 11, 20, 24))
        words = [f"w{draw.randrange(12) * 2 + label}" for _ in range(size)]
        lines.append(f"{'ab'[label]}\t{' '.join(words)}\n")
    (folder / "texts.txt").write_text("".join(lines))


def plan_facts(mxrun: Installation, case: Case, config: str, phase: str) -> Facts:
    """Bytes, offsets, lifetimes, schedule and implementations of one phase."""
    shared = (config, *case.plan, "--phase", phase, "--threads", str(mxrun.threads))
    memory = mxrun.report("inspect-memory", *shared)
    facts: Facts = {
        f"{phase}: {key}": memory[key]
        for key in ("planned_bytes", "lower_bound_bytes", "naive_bytes", "order")
    }
    for name, schedule in memory["timeline"].items():
        facts[f"{phase}: schedule of {name}"] = schedule["operators"]
        facts[f"{phase}: live bytes of {name}"] = schedule["bytes"]
    blocks = {**memory["blocks"], "pinned": memory["pinned"]}
    for name, placed in blocks.items():
        facts[f"{phase}: blocks of {name}"] = [
            [block.get(key) for key in _OF_A_BLOCK] for block in placed
        ]
    if phase in PHASES:
        facts[f"{phase}: implementations"] = implementations(mxrun, shared)
    return facts


def implementations(mxrun: Installation, shared: Sequence[str]) -> list[list[str]] | str:
    """Return name, operator and implementation of each step, or why it cannot be timed."""
    command = ("-m", "mxrun", "bench", *shared, "--steps", "1", "--warmup", "0", "--json")
    done = mxrun.call(command)
    if done.returncode:
        return done.stderr
    timed = json.loads(done.stdout)
    if "operators" not in timed:
        # Several contexts have functions of an engine, in the order in which they came to run.
        return sorted([each["name"], str(each["calls"])] for each in timed["functions"])
    return [[step["name"], step["op"], step["implementation"]] for step in timed["operators"]]


def result_facts(mxrun: Installation, case: Case, config: str) -> Facts:
    """SHA-256 of each tensor after some steps, the metrics, and the outputs of inference."""
    name = re.sub(r"\W+", "-", case.name)
    settings = (*case.plan, *case.data, f"threads={mxrun.threads}", f"name={name}")
    mxrun.run("train", config, *settings, "--overwrite", "--json")
    run = mxrun.folder / "runs" / name
    facts: Facts = {"metrics": (run / "metrics.jsonl").read_text()}
    for file in sorted(run.glob("checkpoint-*/*.safetensors")):
        facts.update(tensor_hashes(file))
    if case.prompt:
        asked = ("--prompt", case.prompt, "--length", "12", "--top-k", "20")
        facts["continued text"] = mxrun.run("infer", str(run), *asked)
        return facts
    to = mxrun.folder / "outputs.npy"
    mxrun.run("infer", str(run), "--split", "eval", "--output", "npy", "--to", str(to))
    facts["inference: outputs"] = hashlib.sha256(to.read_bytes()).hexdigest()
    return facts


def tensor_hashes(file: Path) -> Iterator[tuple[str, str]]:
    """Name and SHA-256 of each tensor of a safetensors file."""
    content = file.read_bytes()
    start = 8 + int.from_bytes(content[:8], "little")
    for name, entry in json.loads(content[8:start]).items():
        first, last = entry["data_offsets"]
        data = content[start + first : start + last]
        yield f"{file.parent.name}, {file.stem}: {name}", hashlib.sha256(data).hexdigest()


def facts_of(mxrun: Installation, case: Case) -> Facts:
    """Return all facts that must be the same."""
    config = config_of(mxrun, case)
    facts = result_facts(mxrun, case, config)
    for phase in case.phases:
        facts |= plan_facts(mxrun, case, config, phase)
    return facts


def config_of(mxrun: Installation, case: Case) -> str:
    """Return what names a case's config on the command line; a text is written to a file."""
    if "\n" not in case.config:
        return case.config
    path = mxrun.folder / "net.yaml"
    path.write_text(case.config)
    write_texts(mxrun.folder)
    return path.name


_BY_NAME = {case.name: case for case in CASES}
PART = Part(tuple(_BY_NAME), lambda mxrun, name: facts_of(mxrun, _BY_NAME[name]))
