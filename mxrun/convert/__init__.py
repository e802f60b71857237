"""Export of networks to the formats of other frameworks."""
