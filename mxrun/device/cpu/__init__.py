"""The CPU: arena, pool of threads, tape, oneDNN, measured peaks."""
