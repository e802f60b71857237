"""HTML pages rendered by a browser."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from commands import HANG_S

_BROWSERS = ("chromium", "chromium-browser", "google-chrome")


def opened(page: Path) -> str:
    """The page's document after its scripts ran; the test skips where no Chromium is installed."""
    browser = next(filter(None, map(shutil.which, _BROWSERS)), None)
    if browser is None:
        pytest.skip("no Chromium is installed to open a page with")
    done = subprocess.run(
        [
            *(browser, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"),
            *(f"--user-data-dir={page.parent / 'browser'}", "--window-size=1200,900"),
            *("--virtual-time-budget=2000", "--dump-dom", page.as_uri()),
        ],
        capture_output=True,
        text=True,
        timeout=HANG_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
