"""Launches of execution plans, as parts of kernels."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

from mxrun.base.dataclass import dataclass
from mxrun.device.cuda.cudnn.constants import Attribute, DescriptorKind
from mxrun.device.cuda.cudnn.descriptor import Descriptor, describe
from mxrun.device.cuda.cudnn.graph import Role
from mxrun.device.cuda.cudnn.library import require
from mxrun.device.cuda.cudnn.plan import ExecutionPlan, digest_of
from mxrun.operator.kernel import Handles
from mxrun.operator.launch import Handle, Launch, ProviderLaunch
from mxrun.operator.native_kernel import Scratch, Slot, bound


@dataclass(frozen=True)
class PlanLaunch(ProviderLaunch):
    """Run of an execution plan.

    places: by the role of the graph's tensors. scratch: None if it needs no scratch space.
    """

    plan: ExecutionPlan
    places: Mapping[Role, Handle]
    scratch: Handle | None

    def record(self) -> Mapping[str, str]:
        """Return the plan's text by its key."""
        return {digest_of(self.plan.key): json.dumps(self.plan.record, sort_keys=True)}


@dataclass(frozen=True)
class PlanPart:
    """Execution plan as a part of a kernel, with the place of each tensor.

    workspace_at: offset of the plan's workspace in scratch space, behind tensors that are there.
    """

    plan: ExecutionPlan
    arguments: Mapping[Role, Slot | Scratch]
    workspace_at: int = 0

    @property
    def scratch_bytes(self) -> int:
        """Size of the scratch space up to the workspace's end."""
        return self.workspace_at + self.plan.workspace_bytes

    def slots(self) -> Iterator[Slot]:
        """Yield the slots of the tensors."""
        yield from (each for each in self.arguments.values() if isinstance(each, Slot))

    def launches(self, handles: Handles, scratch: Handle | None) -> tuple[Launch, ...]:
        """Bind the plan."""
        places = {role: bound(place, handles, scratch) for role, place in self.arguments.items()}
        workspace = None
        if scratch is not None and self.plan.workspace_bytes:
            workspace = scratch + self.workspace_at
        return (PlanLaunch(self.plan, places, workspace),)


def execute(plan: Descriptor, pack: Descriptor, handle: int) -> None:
    """Enqueue a plan on the stream of a cuDNN handle. No machine has run this call yet."""
    require().call("cudnnBackendExecute", handle, plan.handle, pack.handle)


def variant_pack(places: Mapping[Role, int], workspace: int) -> Descriptor:
    """Return the descriptor of the addresses of a plan's run.

    places: in the card's memory by role, multiples of the tensors' alignment. workspace: address of
    as many bytes as the plan needs, or 0.
    """
    roles, addresses = zip(*sorted(places.items()), strict=True)
    return describe(
        DescriptorKind.VARIANT_PACK,
        {
            Attribute.VARIANT_PACK_UNIQUE_IDS: roles,
            Attribute.VARIANT_PACK_DATA_POINTERS: addresses,
            Attribute.VARIANT_PACK_WORKSPACE: workspace,
        },
    )
