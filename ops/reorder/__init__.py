"""Reorders between layouts and dtypes, and the loops for packed layouts."""
