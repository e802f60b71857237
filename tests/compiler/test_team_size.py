"""Size of a network's thread team: a function of its steps, the kind of processor and the cores."""

from __future__ import annotations

import subprocess
import sys

import pytest

from mxrun.compiler.team_size import team_for
from mxrun.config.bundled import find_config
from mxrun.preparation.planning import load

SERVER = "avx512_core_bf16"


def team(config: str, cores: int, *overrides: str, training: bool = True, isa: str = SERVER) -> int:
    built = load(find_config(config), overrides)
    return team_for(
        built.model.symbol,
        built.model.inference,
        trained=frozenset(built.training.rules) if training else frozenset(),
        instruction_set=isa,
        precision=built.options.precision,
        largest=cores,
    )


@pytest.mark.parametrize("config", ["digits_lenet", "digits_regularized", "mlp_regression"])
@pytest.mark.parametrize("cores", [1, 2, 16])
def test_steps_of_a_few_tenths_of_a_millisecond_stay_on_one_thread(config: str, cores: int) -> None:
    assert team(config, cores) == team(config, cores, training=False) == 1


@pytest.mark.parametrize("config", ["lenet_mnist", "resnet20_cifar10", "mobilenetv2_imagenet"])
@pytest.mark.parametrize("cores", [1, 2, 3, 8])
def test_large_steps_take_all_cores(config: str, cores: int) -> None:
    assert team(config, cores) == cores


def test_a_larger_batch_is_worth_a_larger_team() -> None:
    teams = [team("digits_lenet", 16, f"data.batch_size={size}") for size in (8, 64, 512, 4096)]
    assert teams == sorted(teams)
    assert teams[0] == 1
    assert teams[-1] > 4


def test_a_faster_processor_needs_no_larger_team() -> None:
    slow, fast = (team("mlp_mnist", 16, isa=isa) for isa in ("sse41", SERVER))
    assert slow >= fast
    both = ("precision=bfloat16", "data.batch_size=256")
    assert team("mlp_mnist", 16, *both, isa="avx512_core_amx") <= team("mlp_mnist", 16, both[1])


def test_teams_halve_the_cores_or_are_all_of_them() -> None:
    sizes = {team("mlp_mnist", 12, f"data.batch_size={1 << power}") for power in range(1, 13)}
    assert sizes <= {1, 2, 4, 8, 12}
    assert len(sizes) > 2


def test_the_team_is_the_same_beside_other_work() -> None:
    """Nothing is measured, so the load of other processes changes nothing."""
    alone = [team(config, 2) for config in ("mlp_mnist", "digits_lenet", "lenet_mnist")]
    busy = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        beside = [team(config, 2) for config in ("mlp_mnist", "digits_lenet", "lenet_mnist")]
    finally:
        busy.kill()
        busy.wait()
    assert beside == alone
