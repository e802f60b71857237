"""Inputs and options of a compilation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from mxrun.base.dataclass import dataclass
from mxrun.base.device import ONE_THREAD, DeviceDescription
from mxrun.base.dtype import FLOAT32
from mxrun.base.keywords import PREFERRED
from mxrun.base.machine import Machine
from mxrun.base.slices import Shard
from mxrun.base.tensor import TensorSpec
from mxrun.graph.phases import EVALUATE, TRAIN
from mxrun.graph.symbol import Symbol
from mxrun.graph.update_rule import Clipping, UpdateRule
from mxrun.passes.autotune_candidates import Chooser
from mxrun.planner.remat.budget import Budget
from mxrun.planner.schedule.schedule import BEST


@dataclass(frozen=True)
class Prefill:
    """Network of the phase PREFILL and its io slots, which hold several positions.

    It has the parameters and the states of the network that computes one position a run.
    """

    symbol: Symbol
    inputs: Mapping[str, TensorSpec]


@dataclass(frozen=True)
class CompileRequest:
    """Inputs and options of a compilation.

    inputs: specs of the io slots, batch axis included.
    buckets: by length, the io slots of batches of shorter sequences; every phase is planned for
        these as well, in the same arena, under the name of `bucket_phase`.
    prefill: what the phase PREFILL runs, beside GENERATE; None for a plan without it.
    shapes: further known shapes by name.
    rules: the update rule of each trained parameter; empty for a plan without training.
    gradients: parameters whose gradients are results although no update reads them.
    clipping: limit on the global norm of all gradients.
    average: momentum of the moving average of every trained parameter; evaluation reads the average
        in place of the parameter.
    staged: io tensors of batches prepared ahead, stored beside the io slots.
    partial_sums: number of further blocks of the size of all gradients, for the sums of some batch
        parts.
    shard: of several ranks, the one whose slices UPDATE updates; None if it updates everything.
    device: what the plan shall run on.
    phases: phases to plan; with ACCUMULATE, TRAIN also adds to the running sums. With UPDATE,
        TRAIN ends with the gradients, in pinned tensors, and UPDATE reads them.
    implementation: kernel selection for nodes that name none: PREFERRED, AUTO, or a name.
    chooser: times the candidates of AUTO; without it, AUTO is PREFERRED.
    autotuned: by phase and step, names of implementations autotuned before, which are used again.
    precision: dtype of the activations that may be bfloat16, where a node names none.
    constant_parameters: if true, no phase (EVALUATE alone, or GENERATE and PREFILL) changes
        parameters, and a phase PREPARE computes the values that depend on them alone.
    fuse: if true, chains of operators are fused and, in a fixed plan, batch normalisations are
        folded into the products before them.
    unfused: names of fusions to leave out, to measure the effect of each.
    in_place, join, add_to, reuse: kinds of memory sharing that can be turned off, to check that
        they change no bit.
    order: name of a schedule to use instead of the best, for the same purpose.
    budget: limit of the arena; forward steps are recomputed if the plain plan exceeds it.
    machine: measured speeds from which times are predicted.
    segment: number of iterations of a recurrence that run again together in backward; all that
        backward reads is kept if it is None.
    drop_cheap: whether backward computes cheap outputs of a recurrence's steps again.
    """

    inputs: Mapping[str, TensorSpec]
    buckets: Mapping[int, Mapping[str, TensorSpec]] = field(default_factory=dict)
    prefill: Prefill | None = None
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    rules: Mapping[str, UpdateRule] = field(default_factory=dict)
    clipping: Clipping | None = None
    average: float | None = None
    gradients: tuple[str, ...] = ()
    staged: Mapping[str, TensorSpec] = field(default_factory=dict)
    phases: tuple[str, ...] = (TRAIN, EVALUATE)
    partial_sums: int = 0
    shard: Shard | None = None
    device: DeviceDescription = ONE_THREAD
    backward: str = "explicit_graph"
    implementation: str = PREFERRED
    chooser: Chooser | None = None
    autotuned: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    precision: str = FLOAT32
    constant_parameters: bool = False
    fuse: bool = True
    unfused: tuple[str, ...] = ()
    in_place: bool = True
    join: bool = True
    add_to: bool = True
    reuse: bool = True
    order: str = BEST
    budget: Budget | None = None
    machine: Machine | None = None
    segment: int | None = None
    drop_cheap: bool = False
