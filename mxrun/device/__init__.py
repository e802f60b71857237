"""Devices: memory, views, writes and reads, and programs of launches."""
