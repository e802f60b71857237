"""Operator interface: semantics (`property`), NumPy bodies and prepared kernels."""
