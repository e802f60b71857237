"""Passes: functions Graph → Graph, one per file."""
