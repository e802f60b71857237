"""When a process counts as hanging."""

HANG_S = 600.0
"""Seconds after which a process counts as hanging, however busy the machine is."""
