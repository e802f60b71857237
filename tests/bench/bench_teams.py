"""Default thread team of networks, and training step times for each team.

Measures alone and beside a busy process, alternating.

    python tests/bench/bench_teams.py digits_lenet mlp_mnist resnet50_imagenet:16

A name may include the batch size. Not a test.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Sequence

from bench_busy import TURNS

from mxrun.compiler.team_size import team_sizes
from mxrun.config.bundled import find_config
from mxrun.device.cpu.team import available_cores
from mxrun.graph.phases import TRAIN
from mxrun.inspection.benchmark_loop import Steps
from mxrun.preparation.planning import load, plan_for, team_size

_WARM_UP = 3
# Untimed steps at the start of a run: the first ones run on cold caches.
_LEAD = 1
_PLACES = ("alone", "beside a busy process")
# Approximate duration of a run, of at least two steps.
_TURN_S = 0.25


def measure(name: str, rounds: int) -> None:
    """Print one network's rows."""
    config, _, batch = name.partition(":")
    given = [f"data.batch_size={batch}"] if batch else []
    built = load(find_config(config), given)
    chosen = team_size(built, training=True)
    sizes = team_sizes(available_cores())
    runs = {size: Steps(built, plan_for(built, True, size), TRAIN) for size in sizes}
    times: dict[tuple[int, str], list[float]] = {}
    for steps in runs.values():
        steps.seconds(_WARM_UP)
    count = {
        size: max(2, int(_TURN_S / steps.seconds(2).min())) + _LEAD for size, steps in runs.items()
    }
    for _ in range(rounds):
        for place in _PLACES:
            for size, steps in runs.items():
                with TURNS[place]():
                    turn = steps.seconds(count[size])[_LEAD:] * 1e3
                times.setdefault((size, place), []).extend(turn.tolist())
    print(f"{name}: default team {chosen}; step in ms, median and least")
    for (size, place), found in sorted(times.items()):
        print(
            f"  {size} thread{'s' if size > 1 else ' '} {place:22} "
            f"{statistics.median(found):10.3f} {min(found):10.3f}",
            flush=True,
        )


def main(arguments: Sequence[str] | None = None) -> None:
    """Parse the command line, measure, print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("configs", nargs="+")
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args(arguments)
    for name in options.configs:
        measure(name, options.rounds)


if __name__ == "__main__":
    main()
