"""Pooling: its operator and the compiled loops for maxima and sums."""
