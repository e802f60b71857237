"""Memory of a plan: lifetimes, shared storage, schedules, rematerialisation and offsets."""
