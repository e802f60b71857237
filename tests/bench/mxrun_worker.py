"""mxrun's side of the step benchmark: answers messages in a process of its own, as the peers do."""

from __future__ import annotations

import sys
from collections.abc import Callable

from mxrun import session
from mxrun.base.errors import UserError
from mxrun.graph.compile import TRAIN
from mxrun.peers.timing import busy_thread, milliseconds_per_step
from mxrun.peers.wire import Message, claim_standard_output, serve
from mxrun.train.loop import slots
from mxrun.train.measure import Measure


def prepare(config: str, overrides: list[str]) -> Callable[[], None]:
    """The config's run, initialised; each call is one step of its training loop.

    A batch from the iterator into the plan's slots, the tape, the loss and the metrics.
    """
    built = session.load(config, overrides)
    run = session.prepare(built)
    phase = run.phase(TRAIN, "train")
    places = slots(run.executor, phase.iterator)
    measure = Measure(run.executor, phase, built.model.losses)
    epoch = 1
    phase.iterator.reset(epoch)

    def step() -> None:
        nonlocal epoch
        batch = phase.iterator.next_into(places)
        if batch is None:
            epoch += 1
            phase.iterator.reset(epoch)
            batch = phase.iterator.next_into(places)
        assert batch is not None
        run.executor.run(TRAIN)
        measure.update(batch.valid)

    return step


_steps: dict[str, Callable[[], None]] = {}


def time_step(message: Message) -> Message:
    """Milliseconds per step; the first request for a config builds and warms it up."""
    fields = message.fields
    config = fields["config"]
    if config not in _steps:
        _steps[config] = prepare(config, fields["overrides"])
        milliseconds_per_step(_steps[config], fields["warm_up"])
    with busy_thread(fields["busy_thread"]):
        times = milliseconds_per_step(_steps[config], fields["steps"])
    return Message({"milliseconds": times})


if __name__ == "__main__":
    serve(sys.stdin.buffer, claim_standard_output(), {"time_step": time_step}, (UserError,))
