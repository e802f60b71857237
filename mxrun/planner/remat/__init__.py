"""Rematerialisation: steps run again in backward so that less memory is live."""
