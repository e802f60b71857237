"""Storage, resources, random numbers and the engine: what runs beneath the executor."""
