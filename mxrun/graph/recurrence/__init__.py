"""Recurrences: nodes whose operator is a network of its own, applied at every time step."""
