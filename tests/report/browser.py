"""Chromium without a window: opens a page, lets scripts run, says what is there."""

import shutil
import subprocess

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")


def opened(address, folder, *flags):
    """The document after its scripts ran; fails on whatever the console was told."""
    assert CHROMIUM is not None
    done = subprocess.run(
        [
            *(CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", *flags),
            *("--enable-logging=stderr", f"--user-data-dir={folder / 'profile'}"),
            *("--dump-dom", address),
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert "CONSOLE" not in done.stderr  # neither errors nor refused loads
    return done.stdout
