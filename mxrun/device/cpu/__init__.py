"""The CPU: arena, thread team, tape, oneDNN, measured peaks."""
