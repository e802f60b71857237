"""Reorders between layouts and types, and the loops for packed layouts."""
