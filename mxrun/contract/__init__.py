"""Checker of the operator contract: the properties every operator must have, tested on cases.

One property is a `check.Check`. `check.check_operator` runs all checks on an operator's cases and
returns a `Report`, in which every failure is one sentence; `check_property` generates the cases.
"""
