"""Fetching the files of well-known data sets, checked against published digests."""
