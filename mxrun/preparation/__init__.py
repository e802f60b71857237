"""From a config to a plan and bound executors with values, for all commands."""
