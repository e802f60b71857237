"""Optimizers for programs, with MXNet's parameters and calling convention (`mxrun.optimizer`).

    optimizer = mxrun.optimizer.create("sgd", learning_rate=0.1, momentum=0.9)
    update = mxrun.optimizer.get_updater(optimizer)
    update(index, gradient, weight)

The rules are those of the training command: one update operator changes the weight and the
optimizer's states in place, in a single engine operation.
"""

from mxrun.imperative.optimizer.optimizer import ImperativeOptimizer, create
from mxrun.imperative.optimizer.updater import Updater, get_updater

__all__ = ["ImperativeOptimizer", "Updater", "create", "get_updater"]
