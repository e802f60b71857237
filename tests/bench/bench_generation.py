"""Text generation at batch 1: mxrun and PyTorch eager with a cache.

    MXRUN_TORCH_PYTHON=... python tests/bench/bench_generation.py --rounds 20

Both generate the same number of tokens with the same weights in turn, drawing and decoding
included, after their greedy logits have been compared: tokens per second. Then both read the same
prompt in turn: tokens of the prompt per second until the first new token is drawn. Prints the
medians and their ratio. Not a test.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

# The peer's threads must not keep the cores while they wait.
os.environ.setdefault("GOMP_SPINCOUNT", "10000")

import numpy as np

from mxrun.commands.generate import Generation, prepare_generation
from mxrun.config.bundled import find_config
from mxrun.frontend import build
from mxrun.generation.network import language_model
from mxrun.generation.prompts import Prompt
from mxrun.graph.phases import GENERATE
from mxrun.options.infer import InferOptions
from mxrun.passes.incremental import PRESENT
from mxrun.preparation.planning import parse_config
from mxrun.run.unsaved_model import start_values, unsaved_model

# Layers, heads and context of each config.
_SIZES = {"gpt_shakespeare": (4, 4, 64), "gpt_shakespeare_medium": (6, 6, 256)}


def prepared(name: str, prompt: int, length: int, threads: int) -> Generation:
    """Return a generation of `length` tokens with the initial weights of a config.

    prompt: number of its tokens: 0, 1, 2, ...
    """
    parsed = parse_config(find_config(name))
    built = build(parsed, 1)
    arrays = start_values(built, Path("runs"))
    model = unsaved_model(parsed, built, arrays, Path("runs"))
    options = InferOptions(run=model.checkpoint.folder, length=length, threads=threads)
    text = " ".join(str(each % language_model(built).tokens) for each in range(prompt))
    return prepare_generation(model, [Prompt(text)], options)


def again(generation: Generation) -> Generation:
    """Return the same generation from its beginning."""
    prompts = [Prompt(text.prompt) for text in generation.texts]
    known = (generation.trained, prompts, generation.sampling, generation.tokens)
    plan = (generation.planned, generation.length, generation.seed)
    return Generation(*known, *plan, generation._executor)


def greedy_logits(generation: Generation, count: int) -> np.ndarray:
    """Return the logits of each position of the greedy text after token 0."""
    executor, planned = generation._executor, generation.planned
    token, found = 0, []
    for present in range(count):
        executor.tensor(planned.model.data).write(token)
        executor.tensor(PRESENT).write(present)
        executor.run(GENERATE)
        logits = executor.result(GENERATE, planned.network.symbol.heads[0].name).read()
        found.append(logits.reshape(-1))
        token = int(found[-1].argmax())
    return np.stack(found)


class Peer:
    """PyTorch in a process of its own."""

    def __init__(self, generation: Generation, sizes: tuple[int, ...], threads: int) -> None:
        with tempfile.TemporaryDirectory() as folder:
            weights = Path(folder) / "weights.npz"
            np.savez(weights, **generation.trained.arrays)
            script = Path(__file__).with_name("gpt_torch.py")
            python = os.environ.get("MXRUN_TORCH_PYTHON", sys.executable)
            self._process = subprocess.Popen(
                [python, script, weights, *map(str, (*sizes, threads))],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            self.logits = np.array(self.ask("logits"))

    def ask(self, line: str) -> object:
        """Return the answer to a line."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            raise SystemExit("PyTorch's process has ended: MXRUN_TORCH_PYTHON names one with torch")
        return json.loads(answer)


def main() -> None:
    """Compare, then generate in turn, and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--only", default="", help="configs whose name contains this")
    options = parser.parse_args()
    print(f"{'':32}{'mxrun tok/s':>12}{'PyTorch':>10}{'ratio':>8}{'best':>8}{'error':>10}")
    for name, (layers, heads, context) in _SIZES.items():
        if options.only not in name:
            continue
        length = context - 1
        generation = prepared(name, 1, length, options.threads)
        peer = Peer(generation, (layers, heads, context), options.threads)
        error = abs(greedy_logits(generation, length) - peer.logits).max()
        compare(name, length, options.rounds, generation, peer, f"{length}", error)
        prompt = context - context // 4
        reading = prepared(name, prompt, 1, options.threads)
        title = f"{name}, prompt"
        compare(title, prompt, options.rounds, reading, peer, f"prompt {prompt}")


def timed(generation: Generation) -> float:
    """Return the seconds of a generation from its beginning."""
    fresh = again(generation)
    started = time.perf_counter()
    for _ in fresh.run():
        pass
    return time.perf_counter() - started


def compare(
    title: str,
    tokens: int,
    rounds: int,
    generation: Generation,
    peer: Peer,
    line: str,
    error: float | None = None,
) -> None:
    """Measure in turn and print. line: what the peer is asked."""
    pairs = [(timed(generation), float(peer.ask(line))) for _ in range(rounds + 1)][1:]
    ours, theirs = zip(*pairs, strict=True)
    ratio = statistics.median(other / each for each, other in pairs)
    rates = [tokens / statistics.median(each) for each in (ours, theirs)]
    print(
        f"{title:32}{rates[0]:12,.0f}{rates[1]:10,.0f}{ratio:8.2f}{min(theirs) / min(ours):8.2f}"
        f"{'' if error is None else f'{error:.1e}':>10}",
        flush=True,
    )


if __name__ == "__main__":
    main()
