"""Runnable example configs, smallest first."""
