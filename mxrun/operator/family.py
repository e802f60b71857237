"""Families of operators: what an operator is for, as drawings show it."""

from __future__ import annotations

from enum import Enum


class OperatorFamily(Enum):
    """Family of an operator; the value is its name in drawings.

    DENSE: products with a matrix, and rows selected from one. ELEMENTWISE: functions of each
    element, of one tensor or several, that are no activations. RANDOM: outputs that differ from
    step to step. OTHER: updates, and operators of plugins that name no family.
    """

    CONVOLUTION = "convolution"
    DENSE = "dense"
    NORMALISATION = "normalisation"
    ACTIVATION = "activation"
    POOLING = "pooling"
    ELEMENTWISE = "elementwise"
    SHAPE = "shape"
    LOSS = "loss"
    RANDOM = "random"
    REDUCTION = "reduction"
    OTHER = "other"
