"""Operators as semantics (property), readable bodies and prepared kernels."""
