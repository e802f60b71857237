"""The training loop and what it needs: optimisers, initialisers, metrics, checkpoints."""
