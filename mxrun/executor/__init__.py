"""Execution of a plan: addresses, tapes and steps."""
