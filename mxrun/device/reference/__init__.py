"""The reference device: NumPy bodies alone."""
