"""Runs of a small network with all features of a run, and ways to interrupt them."""

from __future__ import annotations

import json
import os
import re
import struct
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import command_servers
from command_client import Running
from commands import HANG_S, digests

DOOMED = Path(__file__).parent / "doomed_run.py"
# Steps between two checkpoints, of an epoch, and of the run.
INTERVAL, EPOCH, STEPS = 7, 22, 66
# Steps after which something is saved: those of the policy, and evaluations that were the best.
SAVES = [*range(INTERVAL, STEPS, INTERVAL), EPOCH, 2 * EPOCH, STEPS]
NEVER = "0:0"
# Convolution, batch normalisation, dropout, adam, a schedule, averages, and augmented records.
CONFIG = f"""\
name: killed
threads: 1
network:
  inputs: {{data: [1, 8, 8], label: []}}
  layers:
    - Convolution: {{name: conv1, num_filter: 8, kernel: [3, 3], pad: [1, 1], no_bias: true}}
    - BatchNorm: {{name: bn1, fix_gamma: false}}
    - Activation: {{act_type: relu}}
    - Pooling: {{pool_type: max, kernel: [2, 2], stride: [2, 2]}}
    - FullyConnected: {{name: fc1, num_hidden: 32}}
    - Activation: {{act_type: relu}}
    - Dropout: {{p: 0.3}}
    - FullyConnected: {{name: fc2, num_hidden: 10}}
    - SoftmaxOutput: {{name: softmax, label: label}}
data:
  batch_size: 64
  train: {{dataset: digits, split: train, shuffle: true, transforms: [{{pad_crop: {{pad: 1}}}}]}}
  eval: {{dataset: digits, split: test}}
train:
  epochs: 3
  optimizer: {{adam: {{lr: 0.003, wd: 1e-4}}}}
  schedule: {{cosine: {{warmup_steps: 10}}}}
  average: 0.9
  log_every: 5
  checkpoint: {{every: {INTERVAL} steps, keep: 2, best: accuracy}}
"""


class Started:
    """Process that trains, and the number of its last finished step."""

    def __init__(
        self, folder: Path, *arguments: str, moment: str = NEVER, config: str = CONFIG
    ) -> None:
        folder.mkdir(exist_ok=True)
        (folder / "net.yaml").write_text(config)
        self._published = folder / "published"
        # Not pipes, which the lines of a long run would fill, as they are read only at its end.
        self._output, self._errors = folder / "output", folder / "errors"
        self._published.write_bytes(struct.pack("q", -1))
        words = (str(self._published), moment, "train", "net.yaml", "--json", *arguments)
        environment = {**os.environ, "MXRUN_DEBUG": "0"}
        self.process: Running | subprocess.Popen[bytes]
        with self._output.open("w") as output, self._errors.open("w") as errors:
            if command_servers.can_run(environment):
                streams = (0, output.fileno(), errors.fileno())
                where, script = str(Path.cwd() / folder), str(DOOMED)
                self.process = command_servers.start(words, where, environment, streams, script)
            else:
                self.process = subprocess.Popen(
                    [sys.executable, DOOMED, *words],
                    cwd=folder,
                    env=environment,
                    stdout=output,
                    stderr=errors,
                )

    @property
    def step(self) -> int:
        """The last step taken; -1 before the command has begun."""
        return int(struct.unpack("q", self._published.read_bytes())[0])

    def wait_for(self, step: int, seconds: float) -> None:
        """Wait until `steps` steps are finished (0: the command has begun), then for a delay."""
        while self.step < step and self.process.poll() is None:
            time.sleep(0.0002)
        time.sleep(seconds)

    def end(self) -> tuple[int, str, str]:
        """Exit code, standard output and error."""
        code = self.process.wait(timeout=HANG_S)
        return code, self._output.read_text(), self._errors.read_text()


@dataclass(frozen=True)
class Gone:
    """Summary and standard error of a run that reached its end."""

    summary: dict[str, Any]
    errors: str


def go_on(folder: Path, *arguments: str, config: str = CONFIG) -> Gone:
    """Resume to the end."""
    code, output, errors = Started(folder, *arguments, "--resume", config=config).end()
    assert code == 0, errors
    assert "Traceback" not in errors
    return Gone(json.loads(output), errors)


def resumed_from(errors: str) -> int | None:
    """Return the step that a process resumed after, 0 for a new start, None if not printed."""
    match = re.search(r"^resuming after step ([0-9]+)$", errors, re.MULTILINE)
    if match:
        return int(match[1])
    return 0 if "starting afresh" in errors else None


def left(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of all files of a run, without times and the config's loader threads."""
    found = digests(folder / "runs/killed")
    assert not [name for name in found if name.startswith(".")]
    found.pop("config.yaml")
    return found
