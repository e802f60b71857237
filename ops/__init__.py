"""Operator library: one file per family of operators, or a folder for a larger family."""
