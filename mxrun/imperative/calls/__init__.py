"""Calls of operators on arrays: functions from the registry, prepared plans, random numbers."""
