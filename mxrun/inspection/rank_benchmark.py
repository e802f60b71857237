"""Messages between ranks in measured steps, and what was computed meanwhile."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from mxrun.base.dataclass import dataclass
from mxrun.runtime.engine.interface import Pool
from mxrun.runtime.profiler import Event
from mxrun.runtime.ranks import BETWEEN_RANKS, RankGroup


@dataclass(frozen=True)
class Communication:
    """Messages between ranks: means over steps and ranks.

    ms: in one step, waits for a late rank included. hidden_share: fraction of that during which the
    same rank computes.
    """

    ms: float
    hidden_share: float

    def to_json(self) -> dict[str, Any]:
        """Return the record as plain JSON."""
        return asdict(self)


def gathered(ranks: RankGroup, events: Sequence[Event]) -> list[list[Event]]:
    """Return the events of every rank, on all ranks.

    Their times can be compared on one machine, whose processes share a monotonic clock.
    """
    texts = ranks.gather_texts(json.dumps([asdict(event) for event in events]))
    return [[Event(**values) for values in json.loads(text)] for text in texts]


def on_tracks(by_rank: Sequence[Sequence[Event]]) -> list[Event]:
    """Return the events of all ranks, each of which has tracks of its own."""
    return [
        replace(event, track=f"rank {rank}, {event.track}")
        for rank, events in enumerate(by_rank)
        for event in events
    ]


def communication_of(by_rank: Sequence[Sequence[Event]], steps: int) -> Communication:
    """Return the messages of all ranks in `steps` steps."""
    total = hidden = 0
    for events in by_rank:
        messages = _spans([event for event in events if event.name.endswith(BETWEEN_RANKS)])
        computed = _spans([event for event in events if event.category == Pool.COMPUTE.value])
        total += int((messages[1] - messages[0]).sum())
        # A rank computes one function at a time.
        begin = np.maximum(messages[0][:, np.newaxis], computed[0])
        end = np.minimum(messages[1][:, np.newaxis], computed[1])
        hidden += int(np.maximum(end - begin, 0).sum())
    return Communication(total / 1e6 / (steps * len(by_rank)), hidden / total)


def _spans(events: Sequence[Event]) -> npt.NDArray[np.int64]:
    """Return the starts and ends of events in ns, [2, events]."""
    starts = np.array([event.start_ns for event in events], np.int64)
    return np.stack([starts, starts + [event.duration_ns for event in events]])
