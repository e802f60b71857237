"""How long a user waits without a word."""

from __future__ import annotations

WAIT_NOTICE_S = 2.0
"""A wait that is expected to be longer is announced, in seconds."""
