"""Pooling: its operator, and compiled loops for maxima and sums."""
