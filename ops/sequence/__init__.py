"""Operators on batches of sequences of different lengths."""
