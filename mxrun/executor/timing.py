"""Autotuning times of prepared kernels, bound to memory of their own before a plan exists.

A candidate's time is the best of several short runs, because other work can only make a run slower.
Every round runs each remaining candidate. A time is stable once a second run comes close to it: on
an idle machine a few runs suffice, on a busy one there are more.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from functools import partial

from mxrun.base.dtype import item_size
from mxrun.base.tensor import TensorSpec, align
from mxrun.device.interface import Device, Program, ProgramStep
from mxrun.operator.kernel import Candidate, Handles, Kernel, Kernels
from mxrun.operator.launch import Handle, Memory
from mxrun.runtime.memory_limits import memory_limit

# Minimum duration of a candidate's share of a round, in which it runs at least twice.
_SECONDS = 0.004
_RUNS = 2
# A kernel faster than this is not worth tuning.
_SHORT_S = 20e-6
# Minimum number of rounds, and the maximum while some time is not stable.
_ROUNDS = range(3, 12)
# A time is stable if another run takes at most so many times as long.
_CLOSE_RATIO = 1.03
# A stable candidate slower than `_BEHIND` times the fastest is dropped, an unstable one at
# `_DISTURBED` times: other work hardly slows the best of a few runs by more than that.
_BEHIND, _DISTURBED = 1.1, 2.0


def time_candidates(candidates: Mapping[str, Kernels], device: Device) -> dict[str, Candidate]:
    """Measure each candidate on a device; the first candidate is the preferred one.

    If the preferred candidate takes less than 20 us, only its time is returned. The result is empty
    if other work keeps the times from becoming stable, or if the machine lacks the memory for a
    candidate.
    """
    trials: dict[str, _TimedCandidate] = {}
    for name, kernels in candidates.items():
        trials[name] = _TimedCandidate(tuple(kernels()), device)
        if trials[name].nbytes > memory_limit():
            return {}
        if (
            len(trials) == 1
            and trials[name].run_round(device.allocate(trials[name].nbytes)) < _SHORT_S
        ):
            return {name: Candidate(trials[name].name, trials[name].best)}
    memory = device.allocate(max(trial.nbytes for trial in trials.values()))
    for number in range(_ROUNDS.stop):
        running = _running(tuple(trials.values()), number)
        for trial in running:
            trial.run_round(memory)
    if not all(trial.is_stable for trial in _contenders(tuple(trials.values()))):
        return {}
    return {name: Candidate(trial.name, trial.best) for name, trial in trials.items()}


def _running(trials: Sequence[_TimedCandidate], number: int) -> Sequence[_TimedCandidate]:
    """Return the candidates to run in a round: those that may still be the fastest.

    Round 0 runs the candidates that have no time yet. The result is empty once all times are
    stable.
    """
    if number == 0:
        return [trial for trial in trials if math.isinf(trial.best)]
    contenders = _contenders(trials)
    settled = number >= _ROUNDS.start and all(trial.is_stable for trial in contenders)
    return () if settled or len(contenders) == 1 else contenders


def _contenders(trials: Sequence[_TimedCandidate]) -> Sequence[_TimedCandidate]:
    best = min(trial.best for trial in trials)
    return [
        trial
        for trial in trials
        if trial.best <= (_BEHIND if trial.is_stable else _DISTURBED) * best
    ]


class _TimedCandidate:
    """Kernels of one candidate, run one after the other."""

    def __init__(self, kernels: Sequence[Kernel], device: Device) -> None:
        self._kernels, self._device = kernels, device
        self.name = kernels[0].implementation
        self._align = partial(align, alignment=device.description.alignment)
        self.nbytes = sum(map(self._bytes_of, kernels))
        self.best = self._next = math.inf

    @property
    def is_stable(self) -> bool:
        """Return whether the time is stable: the two best runs took about the same time."""
        return math.isfinite(self._next) and self._next <= _CLOSE_RATIO * self.best

    def run_round(self, memory: Memory) -> float:
        """Run for one round; return the best time of all rounds, in seconds."""
        program = self._bound(memory)
        clock = time.perf_counter
        begun, runs = clock(), 0
        while runs < _RUNS or clock() - begun < _SECONDS:
            start = clock()
            program.run()
            self._device.synchronise()
            self.best, self._next, _ = sorted((self.best, self._next, clock() - start))
            runs += 1
        return self.best

    def _bound(self, memory: Memory) -> Program:
        steps, offset = [], 0
        for kernel in self._kernels:
            places: list[Handle | None] = []
            for spec in _specs(kernel):
                places.append(None if spec is None else Handle(memory, offset))
                if spec is not None:
                    self._fill(Handle(memory, offset), spec)
                    offset += self._align(spec.nbytes)
            first, second = len(kernel.inputs), len(kernel.inputs) + len(kernel.outputs)
            handles = Handles(
                *(tuple(places[:first]), tuple(places[first:second]), tuple(places[second:])),
                workspace=Handle(memory, offset) if kernel.workspace_bytes else None,
            )
            offset += self._align(kernel.workspace_bytes)
            steps.append(ProgramStep(self.name, kernel.bind(handles)))
        return self._device.bind(steps)

    def _fill(self, handle: Handle, spec: TensorSpec) -> None:
        """Fill a tensor: floating-point elements with 1, which is never slow (no denormals), others
        with 0.
        """
        flat = TensorSpec((spec.nbytes // item_size(spec.dtype),), spec.dtype)
        self._device.tensor(handle, flat).write(1 if "float" in spec.dtype else 0)

    def _bytes_of(self, kernel: Kernel) -> int:
        tensors = sum(self._align(spec.nbytes) for spec in _specs(kernel) if spec is not None)
        return tensors + self._align(kernel.workspace_bytes)


def _specs(kernel: Kernel) -> tuple[TensorSpec | None, ...]:
    return (*kernel.inputs, *kernel.outputs, *kernel.extra_outputs)
