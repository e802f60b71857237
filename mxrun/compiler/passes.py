"""The passes that turn a symbol into the graph of a phase, as an ordered table."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace

from mxrun.base import flags
from mxrun.base.dataclass import dataclass
from mxrun.compiler.request import CompileRequest
from mxrun.compiler.verify import verify_graph
from mxrun.graph.carried import evaluation_state
from mxrun.graph.gradient import gradient
from mxrun.graph.graph import Graph, GraphBuilder, MemoryClass, ValueId
from mxrun.graph.infer import InferredSpecs
from mxrun.graph.lower import lower
from mxrun.graph.phases import ACCUMULATE, EVALUATE, GENERATE, PREFILL, TRAIN, UPDATE
from mxrun.graph.reverse import reverse
from mxrun.graph.symbol import Symbol
from mxrun.graph.update_rule import accumulated, averaged
from mxrun.operator.fusion import FUSIONS
from mxrun.passes.batch_norm_state import batch_norm_state
from mxrun.passes.bias_activation import BIAS_ACTIVATION, bias_activation
from mxrun.passes.carried_states import carried_states
from mxrun.passes.commute_maxpool import COMMUTE_MAXPOOL, commute_maxpool
from mxrun.passes.dead_code import eliminate_dead_code
from mxrun.passes.fold_batch_norm import FOLDING, fold_batch_norm
from mxrun.passes.fuse import fuse
from mxrun.passes.pinned_gradients import in_order_of_backward
from mxrun.passes.precision import precision
from mxrun.passes.split_backward import split_backward
from mxrun.passes.updates import accumulate, hoist_updates, updates

BACKWARDS = {"explicit_graph": gradient, "reverse": reverse}


@dataclass(frozen=True)
class _Compilation:
    """Graph of a phase between two passes.

    gradients: by parameter, once they are there.
    """

    graph: Graph
    request: CompileRequest
    phase: str = ""
    gradients: Mapping[str, ValueId] = field(default_factory=dict)

    @property
    def differentiates(self) -> bool:
        """Whether the phase has gradients."""
        return self.graph.is_train and bool(self.request.rules or self.request.gradients)

    @property
    def updates_apart(self) -> bool:
        """Whether the updates of parameters are a phase of their own."""
        return self.graph.is_train and UPDATE in self.request.phases

    def with_graph(self, graph: Graph) -> _Compilation:
        """Return the compilation with another graph."""
        return replace(self, graph=graph)


@dataclass(frozen=True)
class Pass:
    """Step of a compilation.

    name: in messages; for a fusion, which `CompileRequest.unfused` can leave out, also for users.
    condition: whether the pass is for a graph.
    """

    name: str
    function: Callable[[_Compilation], _Compilation]
    condition: Callable[[_Compilation], bool] = lambda compilation: True
    is_fusion: bool = False

    def run(self, compilation: _Compilation) -> _Compilation:
        """Return the result of the pass, or what is given if the pass is not for it."""
        request = compilation.request
        if self.is_fusion and (not request.fuse or self.name in request.unfused):
            return compilation
        if not self.condition(compilation):
            return compilation
        found = self.function(compilation)
        verified(found.graph, self.name)
        return found


def _on_graph(function: Callable[[Graph], Graph]) -> Callable[[_Compilation], _Compilation]:
    """Return the function of a pass that needs the graph alone."""
    return lambda given: given.with_graph(function(given.graph))


def _differentiate(given: _Compilation) -> _Compilation:
    request = given.request
    names = dict.fromkeys((*request.rules, *request.gradients))
    found = BACKWARDS[request.backward](given.graph, names)
    return replace(given, graph=found.graph, gradients=found.gradients)


def _name_gradients(given: _Compilation) -> _Compilation:
    """Make the requested gradients results, and keep those of the trained parameters."""
    request = given.request
    results = {f"{name}_grad": given.gradients[name] for name in request.gradients}
    gradients = {name: given.gradients[name] for name in request.rules}
    return replace(given, graph=given.graph.with_results(results), gradients=gradients)


def _accumulate(given: _Compilation) -> _Compilation:
    graph, gradients = accumulate(given.graph, given.gradients)
    return replace(given, graph=graph, gradients=gradients)


def _give_gradients(given: _Compilation) -> _Compilation:
    results = {accumulated(name): value for name, value in given.gradients.items()}
    return given.with_graph(given.graph.with_results(results))


def _update(given: _Compilation) -> _Compilation:
    request = given.request
    rules = (request.rules, request.clipping, request.average)
    return given.with_graph(updates(given.graph, given.gradients, *rules))


# Passes on forward graphs, also on those of the bodies of recurrences, in order.
FORWARD_PASSES = (
    Pass(
        "precision",
        lambda given: given.with_graph(precision(given.graph, given.request.precision)),
    ),
    Pass(
        FOLDING,
        _on_graph(fold_batch_norm),
        lambda given: given.request.constant_parameters,
        is_fusion=True,
    ),
    Pass(
        "fuse",
        lambda given: given.with_graph(fuse(given.graph, given.request.unfused)),
        lambda given: given.request.fuse,
    ),
    Pass(
        COMMUTE_MAXPOOL,
        _on_graph(commute_maxpool),
        lambda given: given.graph.is_train,
        is_fusion=True,
    ),
    Pass(
        BIAS_ACTIVATION,
        _on_graph(bias_activation),
        lambda given: given.graph.is_train,
        is_fusion=True,
    ),
)
# Passes on the graph of a phase, in order.
PASSES = (
    *FORWARD_PASSES,
    Pass("gradient", _differentiate, lambda given: given.differentiates),
    Pass("split_backward", _on_graph(split_backward), lambda given: given.differentiates),
    Pass("gradient_results", _name_gradients, lambda given: given.differentiates),
    Pass("batch_norm_state", _on_graph(batch_norm_state), lambda given: given.graph.is_train),
    Pass("carried_states", _on_graph(carried_states)),
    Pass(
        "in_order_of_backward",
        lambda given: replace(given, gradients=in_order_of_backward(given.graph, given.gradients)),
        lambda given: given.updates_apart,
    ),
    Pass(
        "accumulate",
        _accumulate,
        lambda given: given.graph.is_train and ACCUMULATE in given.request.phases,
    ),
    Pass(
        "update_inputs",
        _give_gradients,
        lambda given: given.updates_apart and ACCUMULATE not in given.request.phases,
    ),
    Pass("updates", _update, lambda given: given.phase == TRAIN and not given.updates_apart),
    Pass("hoist_updates", _on_graph(hoist_updates)),
    # It fills the states that GENERATE reads.
    Pass(
        "no_results",
        lambda given: given.with_graph(replace(given.graph, results={})),
        lambda given: given.phase == PREFILL,
    ),
    Pass("dead_code", _on_graph(eliminate_dead_code)),
)


def fusion_names() -> list[str]:
    """Return the names of all fusions, which `CompileRequest.unfused` can leave out."""
    return [*FUSIONS, *(each.name for each in PASSES if each.is_fusion)]


def _passed(passes: Sequence[Pass], compilation: _Compilation) -> Graph:
    """Return the graph after these passes."""
    verified(compilation.graph, "lower")
    for each in passes:
        compilation = each.run(compilation)
    return compilation.graph


def phase_graph(
    symbol: Symbol,
    request: CompileRequest,
    inference: InferredSpecs,
    phase: str,
    owned: Mapping[str, tuple[int, int]] | None = None,
) -> Graph:
    """Return the graph of a phase without kernels; `owned` is for UPDATE, as for `updates`."""
    if phase == UPDATE:
        return _update_graph(request, inference, owned)
    is_train = phase not in (EVALUATE, GENERATE, PREFILL)
    stand_ins = {}
    if not is_train:
        averages = {name: averaged(name) for name in request.rules}
        stand_ins = {} if request.average is None else averages
    if phase == EVALUATE:
        stand_ins |= {name: evaluation_state(name) for name in symbol.list_carried_states()}
    graph = lower(symbol, inference, request.inputs.keys(), is_train, stand_ins)
    return _passed(PASSES, _Compilation(graph, request, phase))


def _update_graph(
    request: CompileRequest,
    inference: InferredSpecs,
    owned: Mapping[str, tuple[int, int]] | None,
) -> Graph:
    """Return the graph of the updates alone, which read the gradients from pinned tensors."""
    builder = GraphBuilder(Graph(is_train=True))
    variables = {entry.node.name: entry for entry in inference.shapes if entry.node.is_variable}
    gradients = {}
    for name in request.rules:
        spec = inference.spec(variables[name])
        builder.source(name, spec, MemoryClass.PARAMETERS)
        gradients[name] = builder.source(accumulated(name), spec, MemoryClass.GRADIENTS)
    graph = updates(
        builder.build(), gradients, request.rules, request.clipping, request.average, owned
    )
    return verified(graph, "updates")


def fused_graph(graph: Graph, request: CompileRequest) -> Graph:
    """Return a forward graph with dtypes and fused operators."""
    return _passed(FORWARD_PASSES, _Compilation(graph, request))


def verified(graph: Graph, after: str) -> Graph:
    """Return the graph, which debug mode checks; after: the pass that made it."""
    return verify_graph(graph, after) if flags.debug() else graph
