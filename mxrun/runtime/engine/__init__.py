"""Dependency engine: functions ordered by the variables that they read and write."""
