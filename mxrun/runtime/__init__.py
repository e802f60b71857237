"""Runtime beneath the executor: storage, random numbers, machine measurements, profile records."""
