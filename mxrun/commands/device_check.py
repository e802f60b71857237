"""Implementation of `info --check`: whether a device computes what the CPU does.

Probes come first, then all operators, then steps of whole networks: a fault shows in the smallest
thing that has it. The report is for people who cannot reach the device.
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from mxrun.base import flags
from mxrun.base.dataclass import dataclass
from mxrun.base.device import CPU
from mxrun.base.dtype import BFLOAT16, FLOAT32
from mxrun.base.errors import Diagnostic, UserError
from mxrun.base.files import atomic_file
from mxrun.base.tensor import TensorSpec
from mxrun.commands.info import info
from mxrun.commands.ops import example
from mxrun.config.bundled import find_config
from mxrun.contract.agreement import compared
from mxrun.contract.call import Conditions
from mxrun.contract.case import CaseRunner, Extent
from mxrun.contract.derive import cases
from mxrun.contract.problem import attempting
from mxrun.contract.trial import opened
from mxrun.device.interface import Device
from mxrun.device.probes import PROBES, Probe, ProbeFailure, replay
from mxrun.device.registry import device_kind
from mxrun.frontend import ModelDefinition
from mxrun.graph.phases import TRAIN
from mxrun.inspection.benchmark_loop import Steps
from mxrun.operator.kernel import ForwardRequest, Handles, Kernel, OpReqType
from mxrun.operator.launch import Handle, Launch, ProviderLaunch
from mxrun.operator.register import Implementation, create, implementations, list_operators
from mxrun.preparation.planning import load, plan_for
from mxrun.train.files import canonical_json

# Receives the number of checks, and that and the name of the one that begins.
Progress = Callable[[int, int, str], None]
Array = npt.NDArray[Any]

# Networks with convolutions, residual blocks and attention, and the batch of each.
NETWORKS = (("digits_lenet", 16), ("resnet20_cifar10", 4), ("gpt_tiny", 2))
# Steps of a network: one by one, captured, replayed.
_STEPS = 3
_EXTENTS = (Extent.ORDINARY, Extent.LARGE)
# Largest relative differences from the CPU: of the first loss, of the weights' change in the first
# step, and of later losses, in which differences of rounding grow.
_TOLERANCES = {FLOAT32: (1e-4, 0.01, 0.02), BFLOAT16: (2e-2, 0.2, 0.1)}
_ENDED = "not run: the device answers no more after a failure"
_NO_KERNEL = "it has no kernel for this device and runs in NumPy on the host"
_VIEW = "it computes nothing: its output is its input"


class DeviceDiffers(Exception):
    """Difference of a device's results from the CPU's."""


@dataclass(frozen=True)
class DeviceCheck:
    """One check: `run` returns figures for the report, or raises.

    part: probes, operators or networks. further: where to look if it fails.
    """

    part: str
    name: str
    promise: str
    further: str
    run: Callable[[], dict[str, Any]]


@dataclass(frozen=True)
class DeviceOutcome:
    """Result of a check: passed, failed, or why it was not run.

    problem: of a failure; trace: its traceback if it was an exception.
    """

    part: str
    name: str
    promise: str
    result: str
    problem: str = ""
    further: str = ""
    trace: str = ""
    seconds: float = 0.0
    figures: dict[str, Any] | None = None

    @classmethod
    def of(cls, check: DeviceCheck, result: str) -> DeviceOutcome:
        """Return a result of a check."""
        return cls(part=check.part, name=check.name, promise=check.promise, result=result)


class NotChecked(Exception):
    """Why a check has nothing to run."""


def write_report(report: Mapping[str, Any], path: Path) -> None:
    """Write a report as JSON. Raises UserError if the file cannot be written."""
    with atomic_file(path) as file:
        file.write(canonical_json(report).encode())


def check_device(context: str, after: str | None, progress: Progress) -> dict[str, Any]:
    """Check a device and return the report.

    after: the name of a check; it and those before it are left out, but for the probes. Raises
    UserError for a device that is not there, as a config that names it, and for another name.
    """
    name, batch = NETWORKS[0]
    options = load(find_config(name), [f"context={context}"], batch).options
    kind, index = options.device
    device = opened(1, kind, index)
    # An error may end the device for this process, and then it says nothing about itself either.
    report = {
        "context": f"{kind}:{index}",
        "model": device_kind(kind).model(index),
        "description": {
            **asdict(device.description),
            "numpy_bodies": device.description.numpy_bodies.value,
        },
        "captures": not flags.debug(),
        "installation": info(),
    }
    checks = [*probe_checks(device), *_rest(context, device, Conditions(1, kind, index), after)]
    outcomes: list[DeviceOutcome] = []
    is_ended = False
    for number, check in enumerate(checks):
        progress(number, len(checks), check.name)
        if is_ended:
            outcomes.append(DeviceOutcome.of(check, _ENDED))
            continue
        outcomes.append(outcome_of(check))
        is_ended = outcomes[-1].result == "failed" and not _answers(device)
    failed = [outcome for outcome in outcomes if outcome.result == "failed"]
    return {
        **report,
        "passed": not failed,
        "failed": [outcome.name for outcome in failed],
        "checks": [asdict(outcome) for outcome in outcomes],
    }


def outcome_of(check: DeviceCheck) -> DeviceOutcome:
    """Run a check."""
    started = time.monotonic()
    outcome = DeviceOutcome.of(check, "passed")
    try:
        outcome = replace(outcome, figures=check.run())
    except NotChecked as reason:
        outcome = replace(outcome, result=f"not run: {reason}")
    except Exception as error:  # noqa: BLE001 - the report has those of drivers and libraries
        trace = "" if isinstance(error, (DeviceDiffers, ProbeFailure)) else traceback.format_exc()
        problem = str(error) or type(error).__name__
        outcome = replace(
            outcome, result="failed", problem=problem, trace=trace, further=check.further
        )
    return replace(outcome, seconds=time.monotonic() - started)


def _answers(device: Device) -> bool:
    return outcome_of(probe_check(device, PROBES[0])).result == "passed"


def _rest(
    context: str, device: Device, conditions: Conditions, after: str | None
) -> list[DeviceCheck]:
    """Return operators and networks, behind the check `after`; UserError if there is none."""
    operators = [operator_check(name, device, conditions) for name in list_operators()]
    checks = [*operators, *network_checks(context)]
    if after is None:
        return checks
    names = [check.name for check in checks]
    if after not in names:
        problem = f"--check-after: there is no check {after!r}"
        raise UserError(Diagnostic(problem, expected="a name of the report"))
    return checks[names.index(after) + 1 :]


# -- probes ------------------------------------------------------------------------------------


def probe_checks(device: Device) -> list[DeviceCheck]:
    """Return the checks of all probes, and of a library's call within a graph."""
    return [
        *(probe_check(device, probe) for probe in PROBES),
        DeviceCheck(
            part="probes",
            name="library call",
            promise="a program with a call of the library is captured and replayed",
            further="what cannot be captured runs launch by launch; `implementation: jit` does "
            "without",
            run=partial(_replay_library, device),
        ),
    ]


def probe_check(device: Device, probe: Probe) -> DeviceCheck:
    """Return the check of a probe."""

    def run() -> dict[str, Any]:
        probe.ask(device)
        return {}

    return DeviceCheck(
        part="probes", name=probe.name, promise=probe.promise, further=probe.further, run=run
    )


def _replay_library(device: Device) -> dict[str, Any]:
    """Replay a product of the first implementation that calls a library."""
    shapes = (32, 128), (64, 128), (64,), (32, 64)
    *inputs, output = map(TensorSpec, shapes)
    request = ForwardRequest(
        tuple(inputs), (output,), (OpReqType.WRITE,), True, device.description, 0
    )
    prop = create("FullyConnected", {"num_hidden": 64})
    for each in implementations("FullyConnected", device.description).values():
        kernel = each.prepare_forward(prop, request)
        if kernel is not None:
            handles = _allocated(device, kernel)
            launches = kernel.bind(handles)
            if any(isinstance(launch, ProviderLaunch) for launch in launches):
                _replay_product(device, launches, handles, inputs, output)
                return {"implementation": each.name}
    kind = type(device)
    raise NotChecked(kind.missing() or f"no library of {kind.__name__} computes products")


def _allocated(device: Device, kernel: Kernel) -> Handles:
    """Return memory for all tensors of a kernel."""

    def placed(specs: Sequence[TensorSpec | None]) -> tuple[Handle | None, ...]:
        return tuple(
            None if spec is None else Handle(device.allocate(spec.nbytes), 0) for spec in specs
        )

    (workspace,) = placed([TensorSpec((max(kernel.workspace_bytes, 1),), "uint8")])
    return Handles(
        placed(kernel.inputs), placed(kernel.outputs), placed(kernel.extra_outputs), workspace
    )


def _replay_product(
    device: Device,
    launches: Sequence[Launch],
    handles: Handles,
    inputs: Sequence[TensorSpec],
    output: TensorSpec,
) -> None:
    """Replay a product of random numbers; the bits are those of the first run."""
    random = np.random.default_rng(3)
    for handle, spec in zip(handles.inputs, inputs, strict=True):
        if handle is not None:
            device.write(handle, random.standard_normal(spec.shape).astype(spec.dtype))
    (target,) = handles.outputs
    assert target is not None
    place, found = target, set[bytes]()

    def check(run: Callable[[], None], which: str) -> None:
        device.fill(place.memory, 0, output.nbytes, 0xFF)
        run()
        found.add(device.read(place, TensorSpec((output.nbytes,), "uint8")).tobytes())
        if len(found) > 1 or b"\xff" * 4 in max(found):
            raise ProbeFailure(f"{which} gives other bits than run 1, or none")

    replay(device, launches, check)


# -- operators ---------------------------------------------------------------------------------


def operator_check(name: str, device: Device, conditions: Conditions) -> DeviceCheck:
    """Return the comparison of an operator's implementations with its NumPy body on the CPU."""
    known = implementations(name, device.description).values()
    taken = [each for each in known if not each.is_by_name]
    return DeviceCheck(
        part="operators",
        name=name,
        promise="all implementations agree with the NumPy body on the CPU, twice with the same "
        "bits",
        further=f"`mxrun check-op {name}`, which is on the CPU: if it passes, the device's code, "
        "library or compiler is wrong, or a task reads what another one writes",
        run=partial(_compare_operator, name, taken, conditions),
    )


def _compare_operator(
    name: str, taken: list[Implementation], conditions: Conditions
) -> dict[str, Any]:
    prop = example(name)
    if prop.unchecked:
        raise NotChecked(prop.unchecked)
    if not taken:
        raise NotChecked(_NO_KERNEL if implementations(name) else _VIEW)
    with attempting("generating cases"):
        runners = [CaseRunner(case) for case in cases(prop) if case.extent in _EXTENTS]
    problems = [
        problem.of(runner.case.name)
        for runner in runners
        for implementation in taken
        for problem in compared(
            runner, implementation, conditions, f"on {conditions.kind}", repeated=True
        )
    ]
    if problems:
        more = f"; and {len(problems) - 1} more" if len(problems) > 1 else ""
        raise DeviceDiffers(f"{problems[0]}{more}")
    return {"cases": len(runners), "implementations": [each.name for each in taken]}


# -- networks ----------------------------------------------------------------------------------


def network_checks(context: str) -> Iterator[DeviceCheck]:
    """Yield the comparison of the first steps of each network in each precision."""
    for precision in (FLOAT32, BFLOAT16):
        for name, batch in NETWORKS:
            yield DeviceCheck(
                part="networks",
                name=f"{name} {precision}",
                promise=f"{_STEPS} steps of training agree with the CPU, twice with the same bits",
                further=f"`mxrun verify {name} context={context} precision={precision}`; if every "
                "operator passed, look at layouts, workspaces and captured graphs: MXRUN_DEBUG=1 "
                "runs without graphs",
                run=partial(_compare_network, name, batch, precision, context),
            )


def _compare_network(name: str, batch: int, precision: str, context: str) -> dict[str, Any]:
    here, there = (
        FirstSteps.of(load(find_config(name), [f"context={each}", f"precision={precision}"], batch))
        for each in (CPU, context)
    )
    again = there.repeated()
    if again.losses != there.losses or again.last.tobytes() != there.last.tobytes():
        raise DeviceDiffers(
            f"the same steps give other bits: losses {there.losses}, then {again.losses}"
        )
    losses = np.abs(np.array(there.losses) - here.losses) / np.abs(here.losses)
    change = float(np.linalg.norm(there.first - here.first))
    change /= float(np.linalg.norm(here.first - here.before)) or 1.0
    errors = {
        "first loss": float(losses[0]),
        "change of the weights in the first step": change,
        "later losses": float(losses[1:].max()),
    }
    for (what, error), allowed in zip(errors.items(), _TOLERANCES[precision], strict=True):
        # Written so that a NaN fails the check.
        if not error <= allowed:
            raise DeviceDiffers(
                f"{what}: differs from the CPU's by {error:.2g}, {allowed:g} is allowed; losses "
                f"{there.losses}, on the CPU {here.losses}"
            )
    return {"losses": there.losses, "errors": errors}


@dataclass(frozen=True, eq=False)
class FirstSteps:
    """First steps of a training on synthetic batches.

    before, first, last: all weights, one after the other, after so many steps. losses: of each
    step.
    """

    steps: Steps
    names: tuple[str, ...]
    before: Array
    first: Array
    last: Array
    losses: list[float]

    @classmethod
    def of(cls, built: ModelDefinition) -> FirstSteps:
        """Train a network, on one thread of a CPU."""
        plan = plan_for(built, training=True, threads=1)
        return cls._run(Steps(built, plan, TRAIN), tuple(built.model.learned))

    def repeated(self) -> FirstSteps:
        """Train it once more from the beginning."""
        self.steps.restart()
        return self._run(self.steps, self.names)

    @classmethod
    def _run(cls, steps: Steps, names: tuple[str, ...]) -> FirstSteps:
        def weights() -> Array:
            arrays = (steps.executor.tensor(name).read().ravel() for name in names)
            return np.concatenate([*arrays]).astype(np.float32)

        before = weights()
        losses = steps.losses(1)
        first = weights()
        losses += steps.losses(_STEPS - 1)
        return cls(steps, names, before, first, weights(), losses)
