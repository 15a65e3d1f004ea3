# SPDX-License-Identifier: Apache-2.0
"""The picture of a report in the README: a PNG of the top of an HTML report, in Chromium.

    python -m docs.generate.screenshot report.html docs/report.png

`make screenshot` takes it of the comparison that the README shows.
"""

import sys
from pathlib import Path

from docs.generate.browser import chromium, visit

WIDTH, HEIGHT = 1280, 1700  # pixels of the page


def take(page: Path, picture: Path, width: int = WIDTH, height: int = HEIGHT) -> None:
    """Write a PNG of the first `height` pixels of a report with all its charts, in light colors.

    Raises FileNotFoundError without Chromium and its driver, and selenium's WebDriverException if
    the page is not a report.
    """
    with chromium(width, height) as driver:
        visit(driver, page)
        picture.write_bytes(driver.get_screenshot_as_png())


if __name__ == "__main__":
    take(Path(sys.argv[1]), Path(sys.argv[2]))
