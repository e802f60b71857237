"""Foundations that every layer may import: errors, data types, registries, typed parameters."""
