"""Plans, parameters after some steps, and outputs of networks."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
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
    """A bundled config and the batch size at which it is compared."""

    config: str
    batch: int

    @property
    def overrides(self) -> tuple[str, ...]:
        """Settings for 20 steps on synthetic records."""
        made = f"dataset: synthetic, classes: {_CLASSES}"
        return (
            f"data.batch_size={self.batch}",
            f"data.train={{{made}, split: train, shuffle: true, records: {_STEPS * self.batch}}}",
            f"data.eval={{{made}, split: test, records: {2 * self.batch}}}",
            "train.epochs=1",
        )


CASES = (
    Case("digits_lenet", 64),
    Case("digits_regularized", 64),
    Case("autoencoder_digits", 64),
    Case("mlp_regression", 64),
    Case("mlp_mnist", 64),
    Case("lenet_mnist", 64),
    Case("resnet20_cifar10", 32),
    Case("mobilenetv2_imagenet", 4),
    Case("resnet50_imagenet", 4),
    Case("inceptionv3_imagenet", 2),
)


def plan_facts(mxrun: Installation, case: Case, phase: str) -> Facts:
    """Bytes, offsets, lifetimes, schedule and implementations of one phase."""
    shared = (case.config, *case.overrides[:1], "--phase", phase, "--threads", str(mxrun.threads))
    memory = mxrun.report("inspect-memory", *shared)
    timed = mxrun.report("bench", *shared, "--steps", "1", "--warmup", "0")
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
    facts[f"{phase}: implementations"] = [
        [step["name"], step["op"], step["implementation"]] for step in timed["operators"]
    ]
    return facts


def result_facts(mxrun: Installation, case: Case) -> Facts:
    """SHA-256 of each tensor after 20 steps, the metrics, and the outputs of inference."""
    team = f"threads={mxrun.threads}"
    mxrun.run("train", case.config, *case.overrides, team, "--overwrite", "--json")
    run = mxrun.folder / "runs" / case.config
    facts: Facts = {"metrics": (run / "metrics.jsonl").read_text()}
    (saved,) = run.glob("checkpoint-*")
    for file in sorted(saved.glob("*.safetensors")):
        facts.update(tensor_hashes(file))
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
        yield f"{file.stem}: {name}", hashlib.sha256(data).hexdigest()


def facts_of(mxrun: Installation, case: Case) -> Facts:
    """Return all facts that must be the same."""
    facts = result_facts(mxrun, case)
    for phase in PHASES:
        facts |= plan_facts(mxrun, case, phase)
    return facts


TIMED = CASES
_BY_NAME = {case.config: case for case in CASES}
PART = Part(tuple(_BY_NAME), lambda mxrun, name: facts_of(mxrun, _BY_NAME[name]))
