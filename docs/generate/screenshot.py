# SPDX-License-Identifier: Apache-2.0
"""The picture of a report in the README: a PNG of the top of an HTML report, in Chromium.

    python -m docs.generate.screenshot report.html docs/report.png

`make screenshot` takes it of the comparison that the README shows.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

CHROMIUM = ("chromium", "chromium-browser", "google-chrome")
WIDTH, HEIGHT = 1280, 1745  # pixels of the page


def take(page: Path, picture: Path, width: int = WIDTH, height: int = HEIGHT) -> None:
    """Write a PNG of the first `height` pixels of a page, in light colors.

    Raises FileNotFoundError without a Chromium, CalledProcessError when it fails.
    """
    browser = next(filter(None, map(shutil.which, CHROMIUM)), None)
    if browser is None:
        raise FileNotFoundError(f"none of {', '.join(CHROMIUM)} is on PATH")
    with tempfile.TemporaryDirectory() as profile:
        subprocess.run(
            [
                browser,
                "--headless=new",
                "--no-sandbox",
                "--disable-dev-shm-usage",
                "--hide-scrollbars",
                f"--user-data-dir={profile}",
                f"--window-size={width},{height}",
                "--virtual-time-budget=10000",
                f"--screenshot={picture.resolve()}",
                page.resolve().as_uri(),
            ],
            check=True,
            capture_output=True,
            timeout=120,
        )


if __name__ == "__main__":
    take(Path(sys.argv[1]), Path(sys.argv[2]))
