"""Shared parts of the commands: planning, runs and their data, trained models."""
