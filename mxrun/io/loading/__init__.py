"""Iterators that write batches, and what makes these ahead."""
