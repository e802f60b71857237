"""NVIDIA's cards as a device, through CuPy, which is imported when a card is first used."""
