"""Threshold for announcing long waits to the user."""

from __future__ import annotations

WAIT_NOTICE_S = 2.0
"""Seconds of expected wait above which the wait is announced."""
