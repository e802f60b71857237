"""Largest values that commands, configs and functions take of what one number means everywhere."""

from __future__ import annotations

MAX_SEED = (1 << 63) - 1
"""Largest seed of random numbers."""

MAX_GENERATED = 1 << 24
"""Largest number of tokens to generate."""

MAX_BATCH = (1 << 31) - 1
"""Largest batch size."""
