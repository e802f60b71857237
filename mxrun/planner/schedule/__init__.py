"""Schedules: orders of a graph's steps by their peak memory."""
