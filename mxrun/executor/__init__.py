"""Execution of a plan: its memory on a device, its programs, and their runs."""
