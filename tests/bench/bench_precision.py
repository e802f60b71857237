"""Accuracy after training in bfloat16 and in float32: ResNet-20 on handwritten digits.

    python tests/bench/bench_precision.py --epochs 15 --seeds 3

Uses the bundled digits, enlarged to 16 x 16. The seed alone decides the initial weights, the order
and the shifts. Prints both accuracies on the test set for each seed. Not a test.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile

_NETWORK = [
    "name=precision",
    "network.inputs.data=[1, 16, 16]",
    "data.batch_size=64",
    "data.train={dataset: digits, split: train, shuffle: true,"
    " transforms: [{resize: {size: 16}}, {pad_crop: {pad: 2}}]}",
    "data.eval={dataset: digits, split: test, transforms: [{resize: {size: 16}}]}",
    "train.optimizer={sgd: {lr: 0.1, momentum: 0.9, wd: 1e-4}}",
    "train.schedule={cosine: {warmup_steps: 20}}",
    "train.metrics=[accuracy, cross_entropy]",
]


def accuracy(precision: str, seed: int, epochs: int) -> tuple[float, float]:
    """Return the accuracy on the test set after training, and the mean loss there."""
    words = ["train", "resnet20_cifar10", *_NETWORK, f"seed={seed}", f"precision={precision}"]
    words += [f"train.epochs={epochs}", "--json"]
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [sys.executable, "-m", "mxrun", *words],
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
        )
    if done.returncode:
        raise SystemExit(done.stderr)
    found = json.loads(done.stdout)["eval"]
    return found["accuracy"], found["cross_entropy"]


def main() -> None:
    """Train and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=15)
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    for seed in range(options.seeds):
        for precision in ("float32", "bfloat16"):
            right, loss = accuracy(precision, seed, options.epochs)
            print(f"seed {seed}  {precision:8}  accuracy {right:.4f}  loss {loss:.4f}", flush=True)


if __name__ == "__main__":
    main()
