"""Runtime beneath the executor: memory limits, random numbers, waiting, profile records."""
