"""Inspection of a model before its first step: the network's layers and the plan of its memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mxrun.api.html import drawing, heading, paragraph, section, table
from mxrun.base.dataclass import dataclass
from mxrun.frontend import ModelDefinition
from mxrun.graph.naming import in_words
from mxrun.inspection.layer_report import LayerRow, check_report
from mxrun.inspection.memory_report import MemoryReport
from mxrun.inspection.network_description import describe_network
from mxrun.report.figures import bytes_text

# Blocks in the table of a notebook; `blocks` has all.
_MAX_BLOCKS = 20


@dataclass(frozen=True)
class MemoryBlock:
    """Block of the arena: `nbytes` at `offset`, live from step `first` to step `last`, inclusive.

    memory_class: such as `parameters` or `activations`. reason: what keeps it live. phase: the one
    whose steps are counted; empty for a block that is live in all.
    """

    tensor: str
    memory_class: str
    nbytes: int
    offset: int
    first: int
    last: int
    reason: str
    phase: str = ""


class MemoryPlan:
    """Memory of a run, to the byte, planned without data: one arena of `planned_bytes`.

    `to_json()` has the figures of `mxrun inspect-memory --json`, without memory outside the arena.
    """

    def __init__(self, report: MemoryReport) -> None:
        self._json = report.to_json()

    @property
    def planned_bytes(self) -> int:
        """Size of the arena, which the run allocates."""
        return int(self._json["planned_bytes"])

    @property
    def peak_bytes(self) -> int:
        """Most bytes that are live at one step; the arena holds them and its gaps."""
        return int(self._json["peak"]["bytes"])

    @property
    def lower_bound_bytes(self) -> int:
        """Lower bound on the arena for this order of steps."""
        return int(self._json["lower_bound_bytes"])

    @property
    def peak_step(self) -> str:
        """Name of the step at which most bytes are live."""
        return in_words(self._json["peak"]["operator"])

    @property
    def blocks(self) -> tuple[MemoryBlock, ...]:
        """All blocks: first those that are live in all phases, then each phase's."""
        phase = self._json["peak"]["phase"]
        last = max(0, len(self._json["timeline"][phase]["operators"]) - 1)
        pinned = (_block({**block, "first": 0, "last": last}) for block in self._json["pinned"])
        reused = (
            _block(block, name) for name, blocks in self._json["blocks"].items() for block in blocks
        )
        return (*pinned, *reused)

    @property
    def live_at_peak(self) -> tuple[MemoryBlock, ...]:
        """Blocks that are live at the peak, the largest first, with the reason for each."""
        phase = self._json["peak"]["phase"]
        return tuple(_block(live, phase) for live in self._json["peak"]["live"])

    @property
    def live_bytes(self) -> Mapping[str, tuple[int, ...]]:
        """Live bytes at each step, by phase."""
        return {name: tuple(each["bytes"]) for name, each in self._json["timeline"].items()}

    def to_json(self) -> dict[str, Any]:
        """Return all figures as JSON."""
        return self._json

    def __repr__(self) -> str:
        name, step = self._json["name"], self.peak_step
        return f"<MemoryPlan of {name}: {self.planned_bytes:,} bytes, peak at {step}>"

    def _repr_html_(self) -> str:
        from mxrun.report.memory_svg import memory_svg

        live = self.live_at_peak
        rows = [
            (in_words(block.tensor), block.nbytes, block.offset, _steps(block), block.reason)
            for block in live[:_MAX_BLOCKS]
        ]
        title = f"{self._json['name']}: {bytes_text(self.planned_bytes)} planned"
        more = f", the largest {_MAX_BLOCKS} of {len(live)}" if len(live) > _MAX_BLOCKS else ""
        return section(
            drawing(memory_svg(self._json), title),
            heading(f"live at the peak, {self.peak_step}{more}"),
            table(("tensor", "bytes", "offset", "steps", "why it is live"), rows),
        )


def _block(block: Mapping[str, Any], phase: str = "") -> MemoryBlock:
    return MemoryBlock(
        tensor=block["tensor"],
        memory_class=block["class"],
        nbytes=block["bytes"],
        offset=block["offset"],
        first=block["first"],
        last=block["last"],
        reason=block["reason"],
        phase=phase,
    )


def _steps(block: MemoryBlock) -> str:
    return f"{block.first} to {block.last}"


class Network:
    """Layers of a network: the table of `mxrun check`, and a drawing in notebooks."""

    def __init__(self, built: ModelDefinition) -> None:
        self._built, self._report = built, check_report(built)

    @property
    def layers(self) -> tuple[LayerRow, ...]:
        """Layers in order, with operator, output shapes, parameters and FLOPs of a batch."""
        return self._report.rows

    @property
    def parameters(self) -> int:
        """Number of parameters."""
        return self._report.parameters

    @property
    def flops(self) -> int:
        """Floating-point operations of a forward pass of one batch."""
        return self._report.flops

    @property
    def inputs(self) -> Mapping[str, tuple[int, ...]]:
        """Shapes of one sample of each input."""
        return {name: tuple(spec.shape) for name, spec in self._built.model.records.items()}

    def to_json(self) -> dict[str, Any]:
        """Return the figures of `mxrun check --json`."""
        return self._report.to_json()

    def svg(self) -> str:
        """Return the drawing as an SVG document, as `mxrun plot` writes it."""
        from mxrun.report.network_svg import network_svg

        return network_svg(describe_network(self._built))

    def __repr__(self) -> str:
        name, layers = self._report.name, len(self.layers)
        return f"<Network {name}: {layers} layers, {self.parameters:,} parameters>"

    def _repr_html_(self) -> str:
        batch = f"batch {self._report.batch_size}, {self.flops:,} FLOPs forward"
        return section(drawing(self.svg(), repr(self)), paragraph(f"{repr(self)[1:-1]}, {batch}"))
