"""Speeds on a card beside PyTorch's: the targets are those of an H200, in ratios."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import pytest
from commands import result

# Python of an environment with a PyTorch that finds the card.
TORCH = os.environ.get("MXRUN_TORCH_PYTHON")


@dataclass(frozen=True)
class Target:
    """Network with the least ratios of PyTorch's time to mxrun's, and the most of a step in ms."""

    config: str
    settings: tuple[str, ...]
    eager: float
    compiled: float | None = None
    most_ms: float | None = None


TARGETS = {
    "mlp": Target("mlp_mnist", ("data.batch_size=64",), eager=3.0, most_ms=0.060),
    "lenet": Target("lenet_mnist", ("data.batch_size=64",), eager=3.0, most_ms=0.080),
    "resnet50": Target(
        "resnet50_imagenet", ("data.batch_size=128", "precision=bfloat16"), eager=1.0, compiled=0.9
    ),
    "gpt": Target(
        "gpt_shakespeare_medium",
        ("data.batch_size=64", "precision=bfloat16"),
        eager=1.0,
        compiled=0.9,
    ),
}
NEXT = (
    "next: mxrun bench with the same arguments lists operators far above their floors; then "
    "`inspect-memory --device-properties` for launches and bytes, and --trace for gaps between them"
)


@pytest.mark.parametrize("name", TARGETS)
def test_a_step_is_captured_and_within_ten_times_its_floor(name: str, tmp_path: Path) -> None:
    target = TARGETS[name]
    bench = ("bench", target.config, *target.settings, "context=gpu:0", "--steps", "50")
    found = result(*bench, cwd=tmp_path)
    step_ms = found["mxrun"]["step_ms"]["median"]
    if target.most_ms is not None:
        assert step_ms <= target.most_ms, f"a step takes {step_ms} ms; {NEXT}"
    if found["roofline"] is None:
        pytest.skip("without cuDNN the card's clocks are not known")
    floor_ms = found["roofline"]["step"]["floor_ms"]
    assert step_ms <= 10 * floor_ms, f"a step takes {step_ms} ms, its floor is {floor_ms}; {NEXT}"


@pytest.mark.skipif(TORCH is None, reason="MXRUN_TORCH_PYTHON names no Python with PyTorch")
@pytest.mark.parametrize("name", TARGETS)
def test_a_step_is_as_fast_as_the_target_beside_pytorch(name: str, tmp_path: Path) -> None:
    target, peers = TARGETS[name], {"torch": TARGETS[name].eager}
    if target.compiled is not None:
        peers["torch-compile"] = target.compiled
    bench = ("bench", target.config, *target.settings, "context=gpu:0", "--steps", "50")
    pythons = [word for peer in peers for word in ("--peer-python", f"{peer}={TORCH}")]
    found = result(*bench, "--against", ",".join(peers), *pythons, cwd=tmp_path)["peers"]
    for peer, least in peers.items():
        assert found[peer]["status"] == "measured", f"{peer}: {found[peer].get('reason')}"
        ratio = found[peer]["ratio"]["median"]
        assert ratio >= least, f"{peer}'s time is {ratio:.2f} of mxrun's; {NEXT}"
