"""Imperative arrays: NDArray, its operators, and automatic differentiation."""
