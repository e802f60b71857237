"""Placements of blocks with known lifetimes, held against the lower bound."""
