"""Runs: training state, the folder with its checkpoints, and trained models read from it."""
