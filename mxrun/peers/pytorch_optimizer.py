"""Update operators as PyTorch's own fused optimizers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from mxrun.peers.pytorch.parameters import Tensor

Rule = Mapping[str, Any]


def build_optimizer(
    parameters: Mapping[str, Tensor], updates: Mapping[str, Rule], rate: float
) -> Any:
    """Return an optimizer of all parameters; each rule is {operator, parameters, states}.

    Gradients must be rescaled already. PyTorch adds epsilon at another place than MXNet, which is
    negligible while it is small. Raises ValueError for unsupported update operators.
    """
    operators = {rule["operator"] for rule in updates.values()}
    if len(operators) != 1 or not operators <= _KINDS.keys():
        raise ValueError(f"update {', '.join(sorted(operators))} is not supported")
    kind, read = _KINDS[operators.pop()]
    groups = [
        {"params": [parameters[name]], **read(rule["parameters"], rate)}
        for name, rule in updates.items()
    ]
    return kind(_merged(groups), lr=rate, fused=True)


def largest_gradient(updates: Mapping[str, Rule]) -> float | None:
    """Return the bound to which every gradient element is clipped, or None.

    Raises ValueError if the bounds differ between parameters, or if the decay is clipped too.
    """
    bounds = {rule["parameters"]["clip_gradient"] for rule in updates.values()}
    if all(bound < 0 for bound in bounds):
        return None
    decayed = any(
        rule["operator"] == "adam_update" and rule["parameters"]["wd"] for rule in updates.values()
    )
    if len(bounds) > 1 or decayed:
        raise ValueError("clip_gradient together with decay is not supported")
    return float(bounds.pop())


def _merged(groups: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Merge groups with equal settings, because a fused update is one call per group."""
    merged: dict[str, dict[str, Any]] = {}
    for group in groups:
        rest = {key: value for key, value in group.items() if key != "params"}
        merged.setdefault(repr(rest), {"params": [], **rest})["params"] += group["params"]
    return list(merged.values())


def _sgd(rule: Rule, rate: float) -> dict[str, Any]:
    return {
        "lr": rate * rule["lr"],
        "momentum": rule.get("momentum", 0.0),
        "weight_decay": rule["wd"],
    }


def _nag(rule: Rule, rate: float) -> dict[str, Any]:
    return {**_sgd(rule, rate), "nesterov": True}


def _adam(rule: Rule, rate: float) -> dict[str, Any]:
    return {
        "lr": rate * rule.get("eta", rule["lr"]),
        "betas": (rule["beta1"], rule["beta2"]),
        "eps": rule["epsilon"],
        "weight_decay": rule["wd"],
    }


_KINDS: dict[str, tuple[Any, Callable[[Rule, float], dict[str, Any]]]] = {
    "sgd_update": (torch.optim.SGD, _sgd),
    "sgd_mom_update": (torch.optim.SGD, _sgd),
    "nag_mom_update": (torch.optim.SGD, _nag),
    "adam_update": (torch.optim.Adam, _adam),
    "adamw_update": (torch.optim.AdamW, _adam),
}
