"""Data sets: columns, splits, classes, and the registry of formats."""
