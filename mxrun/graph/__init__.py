"""Symbols, inference and gradients: a network before kernels, bytes and addresses."""
