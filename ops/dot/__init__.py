"""dot and batch_dot: matrix products."""
