"""Rematerialisation: forward steps run again in backward to lower peak memory."""
