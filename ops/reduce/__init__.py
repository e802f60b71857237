"""Reductions: values, indices, and the compiled loops of both."""
