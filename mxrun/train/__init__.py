"""Training loop, optimisers, learning-rate schedules, initialisers, metrics and checkpoints."""
