"""Networks, memory, time and references of what a config may contain, for reports."""
