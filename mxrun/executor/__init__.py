"""Addresses, the tape and the step: what runs a plan."""
