"""Checks of losses: one hidden scalar output, and no contribution of rows with weight 0."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from mxrun.contract import call
from mxrun.contract.case import SINGLE, CaseRunner
from mxrun.contract.memory import Array
from mxrun.contract.problem import Violation, differing
from mxrun.operator.register import Implementation

WEIGHT = "sample_weight"
_GARBAGE = 3e38
# Tolerance under which +0 and -0 are equal.
_TINY = 1e-44


def losses(runner: CaseRunner) -> Iterator[Violation]:
    """Check that the loss has shape [1], and that rows of weight 0 do not affect it.

    Such rows get a zero gradient.
    """
    prop, case = runner.prop, runner.case
    if prop.loss_output is None:
        return
    shape = case.output_shapes[prop.loss_output]
    if shape != (1,):
        yield Violation(
            "the loss is not one number", "[1]", str(list(shape)), hint="sum over the batch"
        )
        return
    if case.is_train and not case.differentiated:
        yield Violation(
            "the loss has no gradient: no network that ends in it can be trained",
            "a gradient of its data",
            "none",
            hint="implement backward, and return GradientKind.COMPUTES from list_gradients",
        )
        return
    weighted = WEIGHT in case.arguments and case.input_shapes[0]
    for implementation in runner.implementations if weighted else ():
        yield from _silence(runner, implementation, prop.loss_output)


def _silence(runner: CaseRunner, implementation: Implementation, loss: int) -> Iterator[Violation]:
    """Check that the content of a row of weight 0 affects neither loss nor gradients."""
    case = runner.case
    clean = [array.copy() for array in case.inputs[SINGLE]]
    clean[case.arguments.index(WEIGHT)][0] = 0
    dirty = [array.copy() for array in clean]
    for index in {0, *_labels(runner)} - {case.arguments.index(WEIGHT)}:
        row = dirty[index][:1]
        floating = np.issubdtype(row.dtype, np.floating)
        row[...] = _GARBAGE if floating else 1 << 30
    before, after = (_results(runner, implementation, each, loss) for each in (clean, dirty))
    whose = f"{implementation.name}: garbage in a row of {WEIGHT} 0"
    hint = f"multiply each row's part by its {WEIGHT}, and skip the row where that is 0"
    yield from differing(f"{whose} changes the loss", after[0], before[0], hint)
    for gradient, other in zip(after[1:], before[1:], strict=True):
        yield from differing(f"{whose} changes a gradient", gradient, other, hint, 0.0, _TINY)
        silent = np.zeros_like(gradient[:1])
        yield from differing(f"{whose} has a gradient", gradient[:1], silent, hint, 0.0, _TINY)


def _labels(runner: CaseRunner) -> list[int]:
    """Return the label arguments whose rows are rows of the batch.

    Some of MXNet's label forms are read across rows.
    """
    case = runner.case
    data, found = case.input_shapes[0], []
    for index, name in enumerate(case.arguments):
        shape = case.input_shapes[index]
        classes = runner.prop.classification(data, shape)
        if name in runner.prop.label_arguments and (
            classes is None or classes.labelled or shape == data
        ):
            found.append(index)
    return found


def _results(
    runner: CaseRunner, implementation: Implementation, inputs: Sequence[Array], loss: int
) -> list[Array]:
    """Return the loss and the gradients whose first axis is the batch."""
    case = runner.case
    run = runner.run(implementation, inputs=inputs)
    assert run is not None
    results = [run.outputs[loss]]
    if case.differentiated:
        arguments = list(inputs[: len(case.arguments)])
        data = call.BackwardData(runner.out_grad(SINGLE), arguments, run.outputs)
        blank = case.blank_gradients(SINGLE)
        gradients = call.backward(implementation, runner.prop, data, blank, run).gradients
        batch = case.input_shapes[0][0]
        results += [gradients[i] for i in case.differentiated if gradients[i].shape[:1] == (batch,)]
    return results
