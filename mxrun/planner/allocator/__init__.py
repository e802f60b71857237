"""Placement of blocks with known lifetimes, and its gap to the lower bound."""
