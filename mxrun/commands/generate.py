"""Implementation of `infer --prompt`: text that a trained network generates."""

from __future__ import annotations

from pathlib import Path

from mxrun.session.generation.generate import GenerateRequest, Generation, prepare_generation
from mxrun.session.generation.prompts import read_prompts
from mxrun.session.generation.sampling import TokenSampling
from mxrun.session.notes import Notify, ignore_note
from mxrun.session.planning import trust_plugins
from mxrun.session.trained_model import TrainedModel
from mxrun.train.run_directory import find_run

__all__ = ["GenerateRequest", "Generation", "TokenSampling", "generate", "read_prompts"]


def generate(
    run: str | Path,
    request: GenerateRequest,
    runs: Path,
    checkpoint: str | None = None,
    allow_changes: bool = False,
    allow_plugins: bool = False,
    notify: Notify = ignore_note,
) -> Generation:
    """Prepare a run's network to continue prompts.

    run: the path of a run or of a checkpoint, or the name of a run in the folder `runs`.
    checkpoint: `best`, `newest` or a step. allow_changes: also run if config or plugins have
    changed since training. allow_plugins: trust the run's plugins, from now on. notify: receives
    notes about long waits. Raises UserError for errors in the run, the checkpoint or the prompts.
    """
    path = find_run(run, runs)
    if allow_plugins:
        trust_plugins(path)
    trained = TrainedModel.open(path, checkpoint, 1, allow_changes)
    return prepare_generation(trained, request, notify)
