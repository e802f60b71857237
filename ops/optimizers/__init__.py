"""Optimizer updates: one operator per rule."""
