"""Updates of the optimizers: one operator for each rule."""
