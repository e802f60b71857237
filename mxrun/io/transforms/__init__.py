"""Transforms of records into the rows of a batch."""
