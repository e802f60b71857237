"""`memory.budget` in a config, and `--batch max`."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands import MXRUN, digests, mxrun, refused, result, succeeded
from layer_configs import config_file
from memory_reports import memory_of
from refusals import only_problem

from mxrun.base.errors import UserError
from mxrun.config import parse
from mxrun.graph.phases import TRAIN
from mxrun.preparation import max_batch_size as largest

NET = """\
name: net
blocks:
  unit:
    layers:
      - Convolution: {name: conv, num_filter: 8, kernel: [3, 3], pad: [1, 1]}
      - BatchNorm: {name: bn, fix_gamma: false}
      - Activation: {name: relu, act_type: relu}
      - Dropout: {name: drop, p: 0.2}
network:
  inputs: {data: [1, 8, 8], label: []}
  layers:
    - repeat: {count: 6, layers: [{unit: {name: "unit${i}"}}]}
    - FullyConnected: {name: fc, num_hidden: 10}
    - SoftmaxOutput: {name: softmax, label: label}
data:
  batch_size: 32
  train: {dataset: digits, split: {of: train, range: [0, 128]}, shuffle: true}
  eval: {dataset: digits, split: {of: test, range: [0, 64]}}
train: {epochs: 2, optimizer: {sgd: {lr: 0.05, momentum: 0.9}}}
"""


@pytest.fixture
def net(tmp_path: Path) -> Path:
    return config_file(tmp_path, NET)


def inspected(net: Path, *words: str, **options: Any) -> dict[str, Any]:
    return memory_of(net, words, threads=2, measured=False, **options).to_json()


@pytest.mark.parametrize(
    ("given", "nbytes", "share"),
    [
        ("1048576", 1 << 20, None),
        ("512 MiB", 512 << 20, None),
        ("1.5GiB", 3 << 29, None),
        ("50%", None, 0.5),
        ("12.5 %", None, 0.125),
        ("100%", None, 1.0),
    ],
)
def test_F2_budgets_are_sizes_or_shares(
    net: Path, given: str, nbytes: int | None, share: float | None
) -> None:
    config = parse(net, [f"memory.budget={given}"]).config
    assert config is not None
    budget = config.memory.budget
    assert budget is not None
    assert (budget.nbytes, budget.share) == (nbytes, share)
    plain = parse(net).config
    assert plain is not None
    assert plain.sha256() == config.sha256()


@pytest.mark.parametrize("given", ["0", "0%", "101%", "-5", "5 MB", "much", "1e6", "true", "[1]"])
def test_other_budgets_are_refused_with_their_place(net: Path, given: str) -> None:
    (problem,) = parse(net, [f"memory.budget={given}"]).diagnostics
    assert "memory.budget cannot be" in problem.problem
    assert "percentage" in problem.expected
    net.write_text(NET + f"memory:\n  budget: {given}\n")
    (problem,) = parse(net).diagnostics
    assert problem.place is not None
    assert problem.place.line == NET.count("\n") + 2


def test_F2_inspect_memory_tells_what_a_budget_costs(net: Path) -> None:
    plain, half = inspected(net), inspected(net, "memory.budget=60%")
    assert plain["budget_bytes"] is None
    assert plain["recompute"] == {}
    assert half["planned_bytes"] <= half["budget_bytes"] < plain["planned_bytes"]
    made = half["recompute"][TRAIN]
    assert made["plain_bytes"] == plain["planned_bytes"]
    assert made["steps"]
    assert made["extra"] > 0
    assert made["extra_ms"] > 0
    done = succeeded(mxrun("inspect-memory", "net.yaml", "memory.budget=60%", cwd=net.parent))
    assert "recomputed in train" in done.stdout


def test_F2_a_run_in_a_budget_gives_the_same_bits(net: Path) -> None:
    budget = inspected(net, "memory.budget=60%")["budget_bytes"]
    plain = result("train", "net.yaml", "name=plain", "threads=2", cwd=net.parent)
    words = ("name=small", "threads=2", f"memory.budget={budget}")
    done = succeeded(mxrun("train", "net.yaml", *words, "--json", cwd=net.parent))
    small = json.loads(done.stdout)
    notes = [line for line in done.stderr.splitlines() if "memory.budget" in line]
    assert [line.split(":")[0] for line in notes] == ["mxrun"] * 3
    assert "which will probably take" in notes[0]
    assert "5 more steps measure" in notes[1]
    assert f"recomputing {small['recompute']['steps']} steps took" in notes[2]
    assert small["eval"] == plain["eval"]
    assert small["memory"]["touched_bytes"] <= budget < plain["memory"]["planned_bytes"]
    assert plain["recompute"] is None
    assert small["recompute"]["steps"] > 0
    assert small["recompute"]["measured_extra"] > 0
    of = {name: digests(net.parent / "runs" / name) for name in ("plain", "small")}
    weights = [name for name in of["plain"] if name.endswith(".safetensors")]
    assert weights
    assert all(of["plain"][name] == of["small"][name] for name in weights)


@pytest.mark.parametrize("more", [0, 64, 1 << 30])
def test_F2_the_plain_plan_is_a_candidate_so_a_budget_never_costs_more(
    net: Path, more: int
) -> None:
    """With the bytes of the plain plan or more, or all of its share: every block is unchanged."""
    plain = inspected(net)
    budgets = [f"memory.budget={plain['planned_bytes'] + more}"]
    budgets += ["memory.budget=100%"] if not more else []
    for budget in budgets:
        enough = inspected(net, budget)
        assert enough["recompute"] == {}
        for figure in ("blocks", "pinned", "planned_bytes", "timeline"):
            assert enough[figure] == plain[figure]
        if more:
            assert enough["budget_bytes"] == plain["planned_bytes"] + more


def test_F2_a_run_goes_on_in_another_budget(net: Path) -> None:
    words = ("train", "net.yaml", "threads=2")
    whole = result(*words, "name=whole", cwd=net.parent)
    result(*words, "train.epochs=1", cwd=net.parent)
    more = ("memory.budget=70%", "--resume", "--allow-changes")
    resumed = result(*words, *more, cwd=net.parent)
    assert resumed["resumed_from"] == 4
    assert resumed["eval"] == whole["eval"]


SUMS = """\
name: net
network:
  outputs: [sma, smb]
  inputs: {data: [1, 8, 8], label: []}
  layers:
    - Convolution: {name: c1, num_filter: 8, kernel: [3, 3], pad: [1, 1]}
    - Convolution: {name: c2, num_filter: 8, kernel: [3, 3], pad: [1, 1], no_bias: true}
    - Activation: {name: r2, act_type: relu}
    - Convolution: {name: c3, num_filter: 8, kernel: [3, 3], pad: [1, 1], no_bias: true,
                     weight: c2_weight}
    - BatchNorm: {name: bn3, fix_gamma: false}
    - Activation: {name: r3, act_type: relu}
    - Convolution: {name: c4, num_filter: 8, kernel: [3, 3], pad: [1, 1], no_bias: true,
                     weight: c2_weight}
    - BatchNorm: {name: bn4, fix_gamma: false}
    - Concat: {name: cat, inputs: [c1, r2, r3, bn4]}
    - Dropout: {name: dr, p: 0.4}
    - Convolution: {name: c5, num_filter: 16, kernel: [3, 3], pad: [1, 1]}
    - Activation: {name: t5, act_type: tanh}
    - Concat: {name: cat2, inputs: [t5, cat, c1, r3]}
    - Pooling: {name: gp, pool_type: avg, kernel: [2, 2], stride: [2, 2]}
    - FullyConnected: {name: fca, data: gp, num_hidden: 10}
    - SoftmaxOutput: {name: sma, data: fca, label: label}
    - FullyConnected: {name: fcb, data: cat, num_hidden: 10}
    - SoftmaxOutput: {name: smb, data: fcb, label: label}
"""


def test_F2_sums_of_their_own_are_no_other_plan(net: Path) -> None:
    """Another budget adds other gradients in place, but selects the same kernels."""
    net.write_text(SUMS + NET[NET.index("data:\n  batch") :])
    words = ("train", "net.yaml", "threads=2")
    whole = result(*words, cwd=net.parent)
    last = net.parent / whole["run_dir"] / "checkpoint-8"
    weights = (last / "parameters.safetensors").read_bytes()
    # The state of a run that was killed before the end of the second epoch.
    shutil.rmtree(last)
    resumed = result(*words, "memory.budget=97%", "--resume", cwd=net.parent)
    assert resumed["resumed_from"] == 4
    assert resumed["memory"]["planned_bytes"] < whole["memory"]["planned_bytes"]
    assert (last / "parameters.safetensors").read_bytes() == weights


def test_S3_too_small_a_budget_is_refused_before_the_first_step(net: Path) -> None:
    said = refused("train", "net.yaml", "memory.budget=64 KiB", cwd=net.parent)
    assert "does not fit into memory.budget" in said
    assert "at least" in said
    assert "65,536 bytes" in said
    assert not (net.parent / "runs").exists()
    net.write_text(NET + "memory: {budget: 64 KiB}\n")
    said = refused("inspect-memory", "net.yaml", cwd=net.parent)
    assert f"net.yaml:{NET.count(chr(10)) + 1}:" in said
    said = refused("inspect-memory", "net.yaml", "--phase", "infer", cwd=net.parent)
    assert "at least" in said


@pytest.mark.parametrize("asked", ["1%", "64 KiB"])
def test_S3_the_least_that_is_said_is_enough_and_nothing_less_is(net: Path, asked: str) -> None:
    """In bytes, and for a budget given as a share also as a share with two decimals."""
    problem = only_problem(inspected, net, f"memory.budget={asked}")
    found = re.fullmatch(
        r"at least ([\d,]+) bytes, of all plans that are tried: in phase 'train' (.*) "
        r"needs ([\d,]+) beside the ([\d,]+) of parameters, states and inputs",
        problem.expected,
    )
    assert found is not None
    least, asks, base = (int(found[index].replace(",", "")) for index in (1, 3, 4))
    assert asks + base == least
    assert re.fullmatch(r"((repeated|backward of) )?\w+ '(unit\d/)?\w+'", found[2])
    free = int(problem.got.split("leave ")[1].split()[0].replace(",", ""))
    assert free < asks
    assert inspected(net, f"memory.budget={least}")["planned_bytes"] == least
    with pytest.raises(UserError):
        inspected(net, f"memory.budget={least - 64}")
    share = re.match(r"memory\.budget=([\d.]+)% would do", problem.hint)
    assert (share is not None) == asked.endswith("%")
    if share is not None:
        assert inspected(net, f"memory.budget={share[1]}%")["planned_bytes"] == least
        with pytest.raises(UserError):
            inspected(net, f"memory.budget={float(share[1]) - 0.01:.2f}%")


def test_S3_of_evaluation_nothing_can_be_computed_again(net: Path) -> None:
    problem = only_problem(inspected, net, "memory.budget=64 KiB", phase="infer")
    assert "in phase 'evaluate'" in problem.expected
    assert "evaluation saves nothing" in problem.hint


@pytest.mark.parametrize("phase", ["train", "infer"])
def test_F3_the_largest_batch_fits_and_one_more_is_refused(net: Path, phase: str) -> None:
    budget = f"memory.budget={inspected(net)['planned_bytes']}"
    found = inspected(net, budget, phase=phase, batch="max")
    size = found["batch_size"]
    assert size > 32
    assert found["planned_bytes"] <= found["budget_bytes"]
    with pytest.raises(UserError, match="does not fit"):
        inspected(net, budget, phase=phase, batch=size + 1)


def test_S3_a_share_of_what_cannot_be_less_is_left_out(tmp_path: Path) -> None:
    said = refused("inspect-memory", "digits_lenet", "memory.budget=10%", cwd=tmp_path)
    assert "needs less than without a budget: a smaller data.batch_size needs less" in said
    assert "unless layers mix its samples or carry their states" in said


@pytest.mark.full
def test_F3_train_and_infer_take_the_largest_batch(net: Path) -> None:
    budget = f"memory.budget={inspected(net)['planned_bytes'] // 2}"
    size = inspected(net, budget, batch="max")["batch_size"]
    words = ("train", "net.yaml", budget, "threads=2", "--batch", "max")
    done = succeeded(mxrun(*words, "--json", cwd=net.parent))
    assert f"{size} samples" in done.stderr
    resolved = (net.parent / "runs" / "net" / "config.yaml").read_text()
    assert f"batch_size: {size}" in resolved
    assert json.loads(done.stdout)["memory"]["touched_bytes"] <= int(budget.split("=")[1])
    more = ("train", "net.yaml", budget, "threads=2", "name=more", "--batch", str(size + 1))
    assert "does not fit into memory.budget" in refused(*more, cwd=net.parent)
    assert "does not fit" in refused(
        "inspect-memory", *more[1:3], "--threads", "2", "--batch", str(size + 1), cwd=net.parent
    )


def test_F3_infer_takes_the_largest_batch_and_refuses_one_more(net: Path) -> None:
    """The run's budget is for small batches; inference fits larger ones into it."""
    words = ("train", "net.yaml", "data.batch_size=4", "train.epochs=1", "threads=2")
    plain = inspected(net, "data.batch_size=4")["planned_bytes"]
    result(*words, f"memory.budget={plain}", cwd=net.parent)
    asked = ("infer", "runs/net", "--split", "eval", "--batch")
    answer = result(*asked, "max", cwd=net.parent)
    assert answer["records"] == 64
    assert 4 < answer["batch_size"] < 64
    assert result(*asked, str(answer["batch_size"]), cwd=net.parent)["records"] == 64
    said = refused(*asked, str(answer["batch_size"] + 1), cwd=net.parent)
    assert "does not fit into memory.budget" in said


def test_F3_the_largest_batch_is_one_that_the_records_fill(net: Path) -> None:
    words = ("train", "net.yaml", "train.epochs=1", "memory.budget=1 GiB", "--batch", "max")
    done = succeeded(mxrun(*words, "--json", cwd=net.parent))
    assert "there are no more records" in done.stderr
    assert json.loads(done.stdout)["steps"] == 1
    assert "batch_size: 128" in (net.parent / "runs" / "net" / "config.yaml").read_text()


OPENED = """\
import sys

from mxrun.base.params import Parameters
from mxrun.io.dataset.registry import DATASETS, register


@register("noted_digits", Parameters, ("train", "test"))
def noted_digits(options, split, inputs):
    \"\"\"Digits, and a line whenever they are opened.\"\"\"
    print("opened", split, file=sys.stderr)
    known = DATASETS.get("digits")
    return known.open(known.options(), split, inputs, None)
"""


def test_F3_the_largest_batch_opens_the_data_once(net: Path) -> None:
    (net.parent / "noted.py").write_text(OPENED)
    net.write_text(
        NET.replace("dataset: digits", "dataset: noted_digits") + "plugins: [noted.py]\n"
    )
    words = ("train", "net.yaml", "train.epochs=1", "memory.budget=1 GiB", "--batch", "max")
    done = succeeded(mxrun(*words, cwd=net.parent))
    assert "there are no more records" in done.stderr
    opened = [line for line in done.stderr.splitlines() if line.startswith("opened")]
    assert opened == ["opened train", "opened test"]


def test_F3_infer_takes_no_more_than_the_records(net: Path) -> None:
    result("train", "net.yaml", "train.epochs=1", cwd=net.parent)
    done = succeeded(
        mxrun("infer", "runs/net", "--split", "eval", "--batch", "max", "--json", cwd=net.parent)
    )
    assert "there are no more records" in done.stderr
    assert json.loads(done.stdout)["batch_size"] == 64


def test_F3_without_a_budget_free_memory_is_the_limit(net: Path) -> None:
    """The process is limited to 4 GiB; an eighth is reserved for memory outside the plan."""
    words = [*MXRUN, "inspect-memory", "net.yaml", "--batch", "max", "--json"]
    command = f"ulimit -v {4 << 20} && exec {shlex.join(words)}"
    done = subprocess.run(
        ["bash", "-c", command], capture_output=True, text=True, cwd=net.parent, check=False
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["planned_bytes"] <= (4 << 30) * 7 // 8
    assert f"{found['batch_size']} samples fit" in done.stderr
    assert found["batch_size"] > 1000


def test_F3_a_share_or_too_little_gives_no_largest_batch(net: Path) -> None:
    words = ("inspect-memory", "net.yaml", "--batch", "max")
    assert "in bytes" in refused(*words, "memory.budget=50%", cwd=net.parent)
    said = refused(*words, "memory.budget=4 KiB", cwd=net.parent)
    assert "not even a batch of one sample" in said
    assert "--batch" in refused("train", "net.yaml", "--batch", "many", cwd=net.parent)
    assert "--batch" in refused("train", "net.yaml", "--batch", "0", cwd=net.parent)


@pytest.mark.parametrize("seed", range(40))
def test_F3_ten_plans_find_the_largest_batch(seed: int) -> None:
    """Bytes grow almost linearly, with jumps as from kernels' scratch memory."""
    draw = np.random.default_rng(seed)
    pinned, each = int(draw.integers(1, 1 << 28)), int(draw.integers(1 << 8, 1 << 24))
    block, scratch = int(draw.integers(1, 64)), int(draw.integers(0, each))

    def needed(size: int) -> int:
        asked.append(size)
        return pinned + each * size + scratch * (-(-size // block))

    asked: list[int] = []
    limit = pinned + each * int(draw.integers(2, 5000))
    found = largest.search(needed, needed(1), limit)
    assert len(asked) <= 10
    assert needed(found) <= limit < needed(found + 1)
