"""Weights of other frameworks for a network: found by name, and brought into its form.

The tensors of a layer are turned as their kind there demands: kernels of Keras from height, width,
input, output to output, input, height, width; its dense kernels transposed. What a network lacks
is folded where that is exact: the bias of a convolution before batch normalisation into the moving
mean, another epsilon into the moving variance.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any

import numpy as np

from mxrun.base.array_file import Array
from mxrun.base.dataclass import dataclass
from mxrun.base.errors import Diagnostic, SourceLocation, UserError
from mxrun.base.merged_names import merged_names
from mxrun.base.near_names import listed
from mxrun.base.once import cached_property
from mxrun.config.arithmetic import ExpressionError
from mxrun.frontend import ModelDefinition
from mxrun.graph.node import Node
from mxrun.io.formats.weight_files import read_weights
from mxrun.io.transforms.color import Normalize
from mxrun.preparation.weight_names import NamePattern, TranslatedName, candidates
from mxrun.preparation.weight_tables import FRAMEWORKS, WeightTable, tables

Names = str | Mapping[str, str] | None
_MAX_NAMES = 6
_KERNELS = ("kernel", "depthwise_kernel")


@dataclass(frozen=True, eq=False)
class ForeignWeights:
    """Arrays of a file by the names of this network, and those that have no place in it.

    there: the names there by the names here. notes: for the user, on what the table says.
    """

    arrays: Mapping[str, Array]
    unexpected: tuple[str, ...]
    there: Mapping[str, str]
    notes: tuple[str, ...] = ()


def translated_weights(built: ModelDefinition, path: Path, names: Names) -> ForeignWeights:
    """Read the weights in a file for a network.

    names: a framework with bundled tables, patterns there by the names here, or None for names of
    this network. Raises UserError for a file that cannot be read, and for names that do not fit.
    """
    return _Translation(built, path, read_weights(path), names).result()


def best_table(built: ModelDefinition, path: Path) -> WeightTable:
    """Return the bundled table that fits a file of weights and a network best.

    Raises UserError for a file that cannot be read, and if none fits.
    """
    translation = _Translation(built, path, read_weights(path), None)
    return translation.best([table for each in FRAMEWORKS for table in tables(each)])


@dataclass(eq=False)
class _Translation:
    built: ModelDefinition
    path: Path
    there: Mapping[str, Array]
    names: Names
    # By the name here, what was found.
    found: dict[str, Array] = field(default_factory=dict)
    origins: dict[str, str] = field(default_factory=dict)
    # By convolution without a bias here, the bias there.
    _biases: dict[str, Array] = field(default_factory=dict)

    def result(self) -> ForeignWeights:
        """Return the weights here."""
        try:
            table, patterns = self._table()
            placed = dict(self._placed(patterns))
        except ExpressionError as error:
            problem = f"names: {error}"
            raise UserError(Diagnostic(problem, self._place, hint=error.hint)) from error
        unexpected = [name for name in self.there if name not in placed]
        self._collect(placed)
        notes = [] if table is None else [*self._apply(table)]
        self._complete_norms()
        notes += self._fixed_gammas()
        unexpected += [self.origins[name] for name in self.origins if name not in self.found]
        return ForeignWeights(self.found, tuple(unexpected), self.origins, tuple(notes))

    @property
    def _place(self) -> SourceLocation | None:
        return self.built.options.key_place("train", "start_from", "names")

    @cached_property
    def _nodes(self) -> dict[str, Node]:
        return {node.name: node for node in self.built.model.symbol.nodes if not node.is_variable}

    def _table(self) -> tuple[WeightTable | None, tuple[NamePattern, ...]]:
        """Return the table of the names, if they are a framework's, and the patterns."""
        if self.names is None:
            return None, (NamePattern("*", "*"),)
        if not isinstance(self.names, str):
            return None, tuple(NamePattern(*pair) for pair in self.names.items())
        table = self.best(tables(self.names))
        return table, table.patterns

    def best(self, choices: Sequence[WeightTable]) -> WeightTable:
        """Return the table that gives most tensors a place of their size; the first of several."""
        scores = [self._fitting(table.patterns) for table in choices]
        if not max(scores):
            raise UserError(self._no_table(choices))
        return choices[scores.index(max(scores))]

    def _fitting(self, patterns: tuple[NamePattern, ...]) -> int:
        learned = self.built.model.learned
        return sum(
            self.there[name].size == learned[translated.name].elements
            for name, translated in self._placed(patterns)
            if translated.name in learned
        )

    def _no_table(self, choices: Sequence[WeightTable]) -> Diagnostic:
        frameworks = dict.fromkeys(table.framework for table in choices)
        networks = dict.fromkeys(table.networks for table in choices)
        return Diagnostic(
            f"{self.path}: no table of {listed([*frameworks])}'s names fits both this file and "
            "this network",
            self._place,
            f"weights and network of {', '.join(networks)}",
            listed(merged_names(self.there), _MAX_NAMES),
            hint="give the names yourself: names: {'encoder.{i}.conv': 'unit{i + 1}/conv'}",
        )

    def _placed(self, patterns: tuple[NamePattern, ...]) -> Iterator[tuple[str, TranslatedName]]:
        """Yield each name there with what it is here, if it is something."""
        learned = self.built.model.learned
        for name in self.there:
            possible = [*candidates(patterns, name)]
            known = next((each for each in possible if each.name in learned), None)
            if known is None:
                known = next((each for each in possible if self._has_no_bias(each)), None)
            if known is not None:
                yield name, known

    def _has_no_bias(self, translated: TranslatedName) -> bool:
        """Return whether this is the bias of a convolution that has none here, before a norm."""
        return translated.kind == "bias" and translated.layer in self._norm_after

    @cached_property
    def _norm_after(self) -> dict[str, str]:
        """Batch normalisation by the convolution or dense layer that alone it reads."""
        readers: dict[str, list[Node]] = {}
        for node in self._nodes.values():
            for entry in node.inputs:
                readers.setdefault(entry.node.name, []).append(node)
        return {
            name: readers[name][0].name
            for name, node in self._nodes.items()
            if node.operator in ("Convolution", "FullyConnected")
            and [each.operator for each in readers.get(name, ())] == ["BatchNorm"]
        }

    def _collect(self, placed: Mapping[str, TranslatedName]) -> None:
        """Fill `found` with the arrays in the form that they have here."""
        learned = self.built.model.learned
        problems = []
        for name, translated in placed.items():
            before = self.origins.setdefault(translated.name, name)
            if before != name:
                problem = f"names: {before} and {name} are both {translated.name}"
                problems.append(Diagnostic(problem, self._place, hint="narrow the patterns"))
            elif translated.name in learned:
                spec = learned[translated.name]
                self.found[translated.name] = self._turned(translated, self.there[name], spec)
            else:
                self._biases[translated.layer] = self.there[name]
        if problems:
            raise UserError(problems)

    def _turned(self, translated: TranslatedName, array: Array, spec: Any) -> Array:
        """Return an array in the form of this network; of another shape if it does not fit."""
        node = self._nodes.get(translated.layer)
        if translated.kind in _KERNELS and array.ndim == 2:
            array = array.T
        elif translated.kind in _KERNELS and array.ndim == 4:
            prop = None if node is None else node.prop
            grouped = prop is not None and getattr(prop.parameters, "num_group", 1) > 1
            if grouped:
                height, width, *outputs = array.shape
                array = array.transpose(2, 3, 0, 1).reshape(
                    outputs[0] * outputs[1], 1, height, width
                )
            else:
                array = array.transpose(3, 2, 0, 1)
        if array.ndim == 4 and len(spec.shape) == 2 and array.size == spec.elements:
            array = array.reshape(len(array), -1)
        with np.errstate(over="ignore", invalid="ignore"):
            # What the dtype cannot hold becomes infinite, and is refused if it is loaded.
            return np.ascontiguousarray(array, spec.dtype)

    def _apply(self, table: WeightTable) -> Iterator[str]:
        """Bring the arrays into this network's form by what the table says; yield notes."""
        yield f"{self.path} has the names of {table.framework} for {table.networks}"
        name = f"{table.blue_first}_weight"
        if name in self.found:
            self.found[name] = np.ascontiguousarray(self.found[name][:, ::-1])
        for layer, channels in table.channels_last.items():
            weight = self.found.get(f"{layer}_weight")
            if weight is not None and weight.shape[1] % channels == 0:
                pixels = weight.reshape(len(weight), -1, channels).swapaxes(1, 2)
                self.found[f"{layer}_weight"] = np.ascontiguousarray(pixels).reshape(weight.shape)
        if table.epsilon is not None:
            yield from self._fold_epsilon(table.epsilon)
        for form in table.forms:
            if not self._has(form.layer, form.parameter, form.value):
                yield f"{form.problem}: outputs are the same with `{form.edits}` in the config"
        if table.caveat:
            yield table.caveat
        yield from self._normalisation(table)

    def _fold_epsilon(self, epsilon: float) -> Iterator[str]:
        """Change moving variances so that variance plus epsilon is the same as there."""
        different = []
        for node in self._norms():
            name, change = f"{node.name}_moving_var", epsilon - float(node.prop.parameters.eps)
            if name not in self.found or not change:
                continue
            variances = self.found[name].astype(np.float64) + change
            if variances.min() < 0:
                different.append(node.name)
            else:
                self.found[name] = variances.astype(self.found[name].dtype)
        if different:
            names = listed(merged_names(different), _MAX_NAMES)
            yield f"the epsilon of batch normalisation is {epsilon:g} there: {names} differ"

    def _norms(self) -> Iterator[Any]:
        return (node for node in self._nodes.values() if node.operator == "BatchNorm")

    def _has(self, layer: str, parameter: str, value: object) -> bool:
        node = self._nodes.get(layer)
        if node is None or node.prop is None:
            return False
        return (getattr(node.prop.parameters, parameter) if parameter else node.operator) == value

    def _normalisation(self, table: WeightTable) -> Iterator[str]:
        """Yield a note if the training images are not normalised as the weights need it."""
        request = self.built.data.get("train")
        if request is None:
            return
        wanted = table.normalisation
        given = [
            (step.transform.mean, step.transform.std)
            for step in request.pipeline.steps
            if isinstance(step.transform, Normalize)
        ]
        if not any(
            np.allclose(mean, wanted.mean, atol=2e-3) and np.allclose(std, wanted.std, rtol=1e-2)
            for mean, std in given
        ):
            values = [[round(value, 4) for value in each] for each in (wanted.mean, wanted.std)]
            yield (
                f"these weights expect images with "
                f"`normalize: {{mean: {values[0]}, std: {values[1]}}}`"
            )

    def _complete_norms(self) -> None:
        """Add scales of 1 and shifts of 0 that a normalisation there does not have, and biases."""
        for node in self._norms():
            mean = f"{node.name}_moving_mean"
            if mean not in self.found:
                continue
            for end, value in (("gamma", 1), ("beta", 0)):
                shape = self.found[mean].shape
                self.found.setdefault(f"{node.name}_{end}", np.full(shape, value, np.float32))
        for layer, bias in self._biases.items():
            mean = f"{self._norm_after[layer]}_moving_mean"
            if mean in self.found and self.found[mean].shape == bias.shape:
                self.found[mean] = self.found[mean] - bias.astype(np.float32)
                self.origins.pop(f"{layer}_bias")

    def _fixed_gammas(self) -> Iterator[str]:
        """Yield a note on scales other than 1 where this network holds them at 1."""
        names = [
            node.name
            for node in self._norms()
            if node.prop.parameters.fix_gamma
            and not np.all(self.found.get(f"{node.name}_gamma", 1) == 1)
        ]
        if names:
            yield (
                f"gammas other than 1 have no effect, as fix_gamma holds them at 1: "
                f"{listed(merged_names(names), _MAX_NAMES)}; write fix_gamma: false"
            )
