"""Times of prepared kernels, each bound to memory of its own, before there is a plan.

A candidate's time is the best of short runs, because other work can only make a run slower, in
rounds in which each candidate has its turn. A time holds once a second run comes near it: on a
machine without other work a few runs are enough, beside other work there are more.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence

from mxrun.backend.team import team
from mxrun.base.dtype import item_size
from mxrun.base.tensor import TensorSpec, align
from mxrun.executor.tape import Tape, TapeEntry
from mxrun.operator.kernel import Buffers, Candidate, Kernel, Kernels
from mxrun.runtime.storage import Arena, memory_limit

# A turn of a candidate, in which it runs at least twice.
_SECONDS = 0.004
_RUNS = 2
# A kernel below this is not worth looking for a faster one.
_SHORT_S = 20e-6
# Rounds: at least, and at most for as long as some time does not hold.
_ROUNDS = range(3, 12)
# A time holds if another run takes at most so many times as long.
_CLOSE_RATIO = 1.03
# What takes so many times what the fastest takes has no further turn, if its time holds; other
# work makes the best of a few runs hardly longer than the second figure says.
_BEHIND, _DISTURBED = 1.1, 2.0


def time_candidates(candidates: Mapping[str, Kernels], threads: int) -> dict[str, Candidate]:
    """What each candidate takes, the first of which is the preferred, on a team of `threads`.

    Of a preferred one that takes a few microseconds that is all. Nothing where other work disturbs
    them so that times do not hold, and where the machine has not the memory for one of them.
    """
    trials: dict[str, _Trial] = {}
    with team(threads):
        for name, kernels in candidates.items():
            trials[name] = _Trial(tuple(kernels()))
            if trials[name].nbytes > memory_limit():
                return {}
            if len(trials) == 1 and trials[name].take_turn(Arena(trials[name].nbytes)) < _SHORT_S:
                return {name: Candidate(trials[name].name, trials[name].best)}
        memory = Arena(max(trial.nbytes for trial in trials.values()))
        for number in range(_ROUNDS.stop):
            running = _running(tuple(trials.values()), number)
            for trial in running:
                trial.take_turn(memory)
    if not all(trial.holds for trial in _contenders(tuple(trials.values()))):
        return {}
    return {name: Candidate(trial.name, trial.best) for name, trial in trials.items()}


def _running(trials: Sequence[_Trial], number: int) -> Sequence[_Trial]:
    """Whose turn it is in a round: the fastest, and whoever may yet turn out to be.

    In the first it is of whoever has not had one.
    """
    if number == 0:
        return [trial for trial in trials if math.isinf(trial.best)]
    left = _contenders(trials)
    settled = number >= _ROUNDS.start and all(trial.holds for trial in left)
    return () if settled or len(left) == 1 else left


def _contenders(trials: Sequence[_Trial]) -> Sequence[_Trial]:
    best = min(trial.best for trial in trials)
    return [
        trial for trial in trials if trial.best <= (_BEHIND if trial.holds else _DISTURBED) * best
    ]


class _Trial:
    """Kernels one after the other, as one candidate comes to them."""

    def __init__(self, kernels: Sequence[Kernel]) -> None:
        self._kernels = kernels
        self.name = kernels[0].implementation
        self.nbytes = sum(_bytes_of(kernel) for kernel in kernels)
        self.best = self._next = math.inf

    @property
    def holds(self) -> bool:
        """Whether the two best runs took the same time."""
        return math.isfinite(self._next) and self._next <= _CLOSE_RATIO * self.best

    def take_turn(self, memory: Arena) -> float:
        """Run for a while; the best time of all turns."""
        tape = self._bound(memory)
        clock = time.perf_counter
        begun, runs = clock(), 0
        while runs < _RUNS or clock() - begun < _SECONDS:
            start = clock()
            tape.run()
            self.best, self._next, _ = sorted((self.best, self._next, clock() - start))
            runs += 1
        return self.best

    def _bound(self, memory: Arena) -> Tape:
        entries, offset = [], 0
        for kernel in self._kernels:
            places = []
            for spec in _specs(kernel):
                places.append(0 if spec is None else memory.address + offset)
                if spec is not None:
                    _fill(memory, offset, spec)
                    offset += align(spec.nbytes)
            first, second = len(kernel.inputs), len(kernel.inputs) + len(kernel.outputs)
            buffers = Buffers(
                *(tuple(places[:first]), tuple(places[first:second]), tuple(places[second:])),
                workspace=memory.address + offset if kernel.workspace_bytes else 0,
            )
            offset += align(kernel.workspace_bytes)
            entries += [TapeEntry(self.name, call) for call in kernel.bind(buffers)]
        return Tape(entries)


def _specs(kernel: Kernel) -> tuple[TensorSpec | None, ...]:
    return (*kernel.inputs, *kernel.outputs, *kernel.extra_outputs)


def _bytes_of(kernel: Kernel) -> int:
    tensors = sum(align(spec.nbytes) for spec in _specs(kernel) if spec is not None)
    return tensors + align(kernel.workspace_bytes)


def _fill(memory: Arena, offset: int, spec: TensorSpec) -> None:
    """Make floating-point numbers ones, which no arithmetic is slow on, and all others zero."""
    count = spec.nbytes // item_size(spec.dtype)
    memory.array(offset, (count,), spec.dtype)[:] = 1 if "float" in spec.dtype else 0
