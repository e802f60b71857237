"""Reductions: values, indices and their compiled loops."""
