"""Tables of results, rendered into a file of fixed width."""

from __future__ import annotations

import pytest
from consoles import printed

from mxrun.report.budget import budget_tables
from mxrun.report.figures import bytes_text, count_text, duration_text
from mxrun.report.memory import memory_tables
from mxrun.report.tables import contention_lines, layer_table, train_table


def test_layers_have_shapes_parameters_and_flops() -> None:
    text = printed(
        layer_table(
            {
                "name": "lenet",
                "batch_size": 64,
                "parameters": 36_938,
                "flops": 12_345_678,
                "rows": [
                    {
                        "name": "[conv1]",
                        "operator": "Convolution",
                        "output_shapes": ((64, 16, 8, 8),),
                        "parameters": 160,
                        "flops": 1_179_648,
                    },
                    {
                        "name": "split",
                        "operator": "SliceChannel",
                        "output_shapes": ((64, 2), (64, 3)),
                        "parameters": 0,
                        "flops": 0,
                    },
                ],
            }
        )
    )
    lines = text.splitlines()
    assert lines[0].strip() == "lenet, batch 64"
    (convolution,) = [line.split() for line in lines if "Convolution" in line]
    assert convolution == ["[conv1]", "Convolution", "64x16x8x8", "160", "1.18", "M"]
    (split,) = [line.split() for line in lines if "SliceChannel" in line]
    assert split == ["split", "SliceChannel", "64x2", "64x3", "0", "0"]
    (total,) = [line.split() for line in lines if "total" in line]
    assert total == ["total", "36,938", "12.3", "M"]


MEMORY = {
    "contexts": 1,
    "arena_bytes": 2_097_152,
    "planned_bytes": 2_097_152,
    "lower_bound_bytes": 1_048_576,
    "order": {"train": "list"},
    "any_order_bytes": 1_048_576,
    "in_place_only_bytes": 3_145_728,
    "naive_bytes": 4_194_304,
    "free_list_bytes": 2_621_440,
    "gap_bytes": 1_048_576,
    "fragmentation": 1.0,
    "proved_bytes": 1_572_864,
    "proved_optimal": False,
    "budget_bytes": None,
    "checkpoints": None,
    "batch_size": 64,
    "micro_batches": 1,
    "recompute": {},
    "planning_ms": 12.34,
    "classes": {"activation_gradients": {"total_bytes": 1024, "peak_bytes": 512}},
    "hints": [],
    "peak": {
        "phase": "train",
        "step": 1,
        "operator": "fc1:backward",
        "title": "backward of FullyConnected 'fc1'",
        "op": "FullyConnected",
        "bytes": 1_048_576,
        "live": [
            {
                "tensor": f"[tensor{number}]",
                "root": "[root]" if number == 2 else f"[tensor{number}]",
                "bytes": 1024 * (40 - number),
                "offset": 64 * number,
                "first": 0,
                "last": 2 if number == 1 else 1,
                "reason": "parameter" if number == 1 else "backward of fc1 reads it (data)",
            }
            for number in range(40)
        ],
    },
    "pinned": [{"tensor": "[tensor1]", "offset": 64, "bytes": 1024 * 39}],
    "what_if": None,
    "step": None,
    "timeline": {
        "train": {
            "operators": ["fc1", "fc1:backward", "fc1_weight:update"],
            "bytes": [1024, 1_048_576, 1024],
        }
    },
    "outside": {},
}
OUTSIDE = {
    "device": None,
    "libraries": {f"lib{number}.so": 1024 * (9 - number) for number in range(6)},
    "libraries_bytes": 39 * 1024,
    "compiled_bytes": 2048,
    "heap_bytes": 4096,
    "stack_bytes": 1024,
    "threads_bytes": 512,
    "total_bytes": 47_616,
    "compiler_ran": False,
    "temporary_bytes": None,
}


def test_memory_shows_bounds_and_classes() -> None:
    text = printed(*memory_tables(MEMORY))
    (planned,) = [line.split() for line in text.splitlines() if line.startswith("  planned")]
    assert planned == ["planned", "2.00", "MiB", "2,097,152"]
    assert "at most 512.00 KiB (33.33%) above the optimum; planned in 12.3 ms" in text
    assert "schedule: list; another may save at most 1.00 MiB" in text
    certain = printed(*memory_tables({**MEMORY, "any_order_bytes": MEMORY["planned_bytes"]}))
    assert "schedule: list; no other needs less memory" in certain
    unknown = printed(*memory_tables({**MEMORY, "any_order_bytes": None}))
    assert "schedule: list\n" in "\n".join(map(str.rstrip, unknown.splitlines()))
    (handed_on,) = [line.split() for line in text.splitlines() if "as in MXNet" in line]
    assert handed_on[-3:] == ["2.50", "MiB", "2,621,440"]
    (gradients,) = [line for line in text.splitlines() if "activation gradients" in line]
    assert gradients.split()[2:] == ["1.00", "KiB", "512", "B"]
    assert "not taken" not in text


def test_memory_shows_refused_hints_with_their_reasons() -> None:
    relu = {"kind": "in place", "step": "relu1", "target": "relu1"}
    hints = [
        {**relu, "source": "conv1", "reason": "", "bytes": 8},
        {**relu, "source": "fc", "reason": "it lies", "bytes": 9999},
        *(
            {
                "kind": "add to",
                "step": f"relu{number}:backward",
                "source": f"conv{number}@onednn:7",
                "target": f"relu{number}",
                "reason": "conv2 is read later",
                "bytes": 1000 * number,
            }
            for number in range(2, 14)
        ),
    ]
    text = printed(*memory_tables({**MEMORY, "proved_optimal": True, "hints": hints}))
    assert "proved optimal for this schedule" in text
    assert "memory that is not shared; 1 outputs use an input's memory" in text
    assert "it lies" not in text
    assert "relu1 " not in text
    reported = [line for line in text.splitlines() if "conv2 is read later" in line]
    assert len(reported) == 10
    assert reported[0].split()[:7] == [
        "add",
        "to",
        "backward",
        "of",
        "relu13",
        "conv13",
        "(packed)",
    ]
    assert "13,000" in reported[0]
    (rest,) = [line.split() for line in text.splitlines() if "others" in line and "5,000" in line]
    assert rest == ["2", "others", "5,000"]


def test_the_peak_shows_the_largest_and_sums_up_the_rest() -> None:
    lines = printed(*memory_tables(MEMORY)).splitlines()
    title = "live at the peak: train, backward of FullyConnected 'fc1' (step 1), 1,048,576 bytes"
    assert any(title in line for line in lines)
    (first,) = [line.split() for line in lines if "[tensor0]" in line]
    assert first[:5] == ["[tensor0]", "40,960", "0", "0-1", "backward"]
    assert any("[tensor2], in the memory of [root]" in line for line in lines)
    (second,) = [line.split() for line in lines if "[tensor1]" in line]
    assert second == ["[tensor1]", "39,936", "64", "always", "parameter"]
    assert not any("[tensor31]" in line for line in lines)
    (rest,) = [line.split() for line in lines if "others" in line]
    assert rest == ["9", "others", f"{1024 * sum(range(1, 10)):,}"]


def test_what_lies_outside_is_named_or_said_to_be_unknown() -> None:
    assert "cannot be measured" in printed(*memory_tables(MEMORY))
    text = printed(*memory_tables({**MEMORY, "outside": OUTSIDE}))
    (largest,) = [line.split() for line in text.splitlines() if "lib0.so" in line]
    assert largest == ["lib0.so", "9.00", "KiB"]
    (others,) = [line.split() for line in text.splitlines() if "other libraries" in line]
    assert others[-2:] == ["9.00", "KiB"]
    assert "lib4.so" not in text
    (total,) = [line.split() for line in text.splitlines() if line.startswith("  all ")]
    assert total == ["all", "46.50", "KiB"]
    assert "The compiler" not in text
    ran = {**MEMORY, "outside": {**OUTSIDE, "compiler_ran": True}}
    assert "The compiler ran just now" in printed(*memory_tables(ran))
    assert "emporaries" not in text
    card = {**OUTSIDE, "device": {"occupied_bytes": 1024, "programs_bytes": 3072}}
    text = printed(*memory_tables({**MEMORY, "outside": card}))
    assert "1.00 KiB" in text
    assert "3.00 KiB" in text
    made = {**MEMORY, "outside": {**OUTSIDE, "temporary_bytes": 2048}}
    assert "Temporaries of the operators take up to 2.00 KiB" in printed(*memory_tables(made))


def test_the_summary_shows_what_a_run_came_to() -> None:
    text = printed(
        train_table(
            {
                "steps": 1234,
                "eval": {"loss": 0.125, "cross_entropy": 0.125, "accuracy": 0.9875},
                "step_ms": {"median": 0.5, "p90": 0.6, "p99": 0.75, "min": 0.4},
                "first_step_s": 0.812,
                "memory": {
                    "planned_bytes": 1_048_576,
                    "touched_bytes": 1_048_576,
                    "lower_bound_bytes": 1_048_576,
                    "rss_peak_bytes": 157_286_400,
                },
                "storage": {
                    "cpu:0": {"requests": 0, "requests_from_pool": 0, "peak_bytes": 0},
                    "cpu:1": {"requests": 1500, "requests_from_pool": 1490, "peak_bytes": 2048},
                },
                "recompute": {"steps": 7, "measured_extra": 0.0625, "predicted_extra": 0.05},
                "threads": 3,
                "contexts": 1,
                "bad_records": {"train": 1234, "eval": 0},
                "run_dir": "runs/[lenet]",
                "synthetic_data": True,
                "ended": "early stopping: loss has not improved for 3 evaluations",
                "best": {
                    "metric": "accuracy",
                    "value": 0.9912,
                    "epoch": 17,
                    "step": 391,
                    "checkpoint": "runs/[lenet]/checkpoint-391",
                },
                "same_as_loss": ["cross_entropy"],
            }
        )
    )
    for part in (
        "1,234 steps",
        "0.9875 on synthetic data",
        "early stopping: loss has not improved for 3 evaluations",
        "0.9912 after epoch 17 (checkpoint-391)",
        "1,490 of 1,500 from the pool, peak 2.00 KiB",
        "step, p99",
        "0.500 ms",
        "0.81 s",
        "150.00 MiB",
        "runs/[lenet]",
        "1,234: bad_records.jsonl",
        "6.2%",
    ):
        assert part in text
    assert "cross_entropy" not in text
    assert "eval records left out" not in text


@pytest.mark.parametrize(
    ("share", "p90", "threads", "said"),
    [
        (0.3, 2.0, 4, "try threads=2"),
        (0.3, 2.0, 2, "try threads=1"),
        (0.3, 2.0, 1, "waited for a core 30%"),
        (0.3, 1.2, 2, None),
        (0.01, 2.0, 2, None),
        (None, 2.0, 2, None),
    ],
)
def test_other_work_on_the_cores_is_told_where_steps_vary(
    share: float | None, p90: float, threads: int, said: str | None
) -> None:
    times = {"median": 1.0, "p90": p90, "p99": 9.0, "min": 1.0}
    figures = {"core_wait_share": share, "step_ms": times}
    text = printed(*contention_lines(figures, threads, "threads={}"))
    assert (said or "") in text
    assert (text == "") is (said is None)
    assert ("try threads" in text) is (said is not None and threads > 1)


def test_of_many_recomputed_steps_the_first_are_shown() -> None:
    steps = [f"conv{number:02}" for number in range(24) for _ in range(2)]
    phase = {"extra": 0.05, "extra_ms": 1.0, "plain_bytes": 200, "steps": steps}
    report = {
        "budget_bytes": 150,
        "micro_batches": 1,
        "planned_bytes": 100,
        "recompute": {"train": phase},
    }
    rows = [line.split() for line in printed(*budget_tables(report)).splitlines()]
    assert [row for row in rows if row[-1:] == ["2"]] == [[f"conv{n:02}", "2"] for n in range(10)]
    assert ["14", "others", "28"] in rows


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.00 KiB"),
        (1 << 30, "1.00 GiB"),
        (1 << 50, "1024.00 TiB"),
    ],
)
def test_bytes(count: int, text: str) -> None:
    assert bytes_text(count) == text


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0"),
        (0.819798, "0.82"),
        (819.798, "820"),
        (999, "999"),
        (999.6, "1 k"),
        (1000, "1 k"),
        (12_345_678, "12.3 M"),
        (1e15, "1e+03 T"),
    ],
)
def test_counts(count: float, text: str) -> None:
    assert count_text(count) == text


@pytest.mark.parametrize(("seconds", "text"), [(4.2, "4.2 s"), (185, "3:05"), (3723, "1:02:03")])
def test_durations(seconds: float, text: str) -> None:
    assert duration_text(seconds) == text
