"""Scheduling: order of a graph's steps by peak memory, and lower bounds over all schedules."""
