"""Errors, data types, contexts, registries and typed parameters: what every layer may use."""
