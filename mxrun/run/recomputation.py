"""Time of recomputation (`memory.budget`), measured in a few more steps of a run."""

from __future__ import annotations

from mxrun.executor.executor import Executor
from mxrun.graph.phases import TRAIN
from mxrun.preparation.notes import Notify
from mxrun.run.train_summary import Recomputation

# Enough for a mean, and short compared with a run.
_MEASURED_STEPS = 5


def measured_recompute(executor: Executor, notify: Notify) -> Recomputation | None:
    """Measure the time of recomputation in a few more training steps; None without recomputation.

    The steps change the parameters: call it after a run is over and saved. notify: receives notes.
    The result holds predicted and measured time as fractions of the time of all other steps.
    """
    recomputed = executor.plan.phases[TRAIN].recomputed
    if recomputed is None:
        return None
    notify(
        f"memory.budget: {_MEASURED_STEPS} more steps measure the time of recomputation; "
        "their results are discarded"
    )
    profile = executor.profile(TRAIN)
    for _ in range(_MEASURED_STEPS):
        profile.run()
    repeated = {s.name for s in executor.plan.phases[TRAIN].steps if s.repeats is not None}
    times = {operator.name: operator.ms for operator in profile.operators()}
    recompute_ms = sum(ms for name, ms in times.items() if name in repeated)
    measured = recompute_ms / (sum(times.values()) - recompute_ms)
    notify(
        f"memory.budget: recomputing {len(recomputed.steps)} steps took {measured:.1%} longer, "
        f"{recomputed.extra:.1%} were predicted"
    )
    return Recomputation(
        steps=len(recomputed.steps), predicted_extra=recomputed.extra, measured_extra=measured
    )
