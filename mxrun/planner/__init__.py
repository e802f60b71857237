"""Memory planning: liveness, shared storage, scheduling, rematerialisation, placement."""
