"""Compiler from Symbol to Plan: passes and planning stages in order, and verification."""
