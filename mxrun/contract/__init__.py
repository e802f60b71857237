"""The operator contract as a program: what every operator promises, tried on cases.

A promise is a `check.Check`. `check.check_operator` tries all of them on an operator's cases and
answers a `Report`, in which every failure is one sentence; `check_property` makes the cases up.
"""
