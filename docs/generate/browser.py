# SPDX-License-Identifier: Apache-2.0
"""A headless Chromium that opens reports."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

CHROMIUM = ("chromium", "chromium-browser", "google-chrome")
DRIVER = ("chromedriver", "chromium.chromedriver")
_FLAGS = (
    "headless=new",
    "no-sandbox",
    "disable-dev-shm-usage",
    "disable-background-networking",
    "disable-component-update",
)
_LOADING_SECONDS = 120


def missing() -> list[str]:
    """The programs that are needed, but not on PATH."""
    return [names[0] for names in (CHROMIUM, DRIVER) if not _found(names)]


@contextmanager
def chromium(width: int = 1280, height: int = 900, *, dark: bool = False) -> Iterator[Any]:
    """A Selenium driver of a browser whose page has this size in pixels, without scroll bars.

    Raises FileNotFoundError without Chromium and its driver.
    """
    if missing():
        raise FileNotFoundError(f"not found on PATH: {', '.join(missing())}")
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = _found(CHROMIUM) or ""
    for flag in _FLAGS:
        options.add_argument(f"--{flag}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(_found(DRIVER)))
    try:
        driver.set_script_timeout(600)
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        for command, arguments in (
            ("setDeviceMetricsOverride", size),
            ("setEmulatedMedia", {"features": [scheme]}),
            ("setScrollbarsHidden", {"hidden": True}),
        ):
            driver.execute_cdp_cmd(f"Emulation.{command}", arguments)
        yield driver
    finally:
        driver.quit()


def visit(driver: Any, path: Path) -> None:
    """Open a report and wait until all its charts are drawn and can be explored.

    On a busy machine, Chromium may say that a page is loaded before its scripts ran.
    """
    from selenium.webdriver.support.ui import WebDriverWait

    driver.get(path.resolve().as_uri())
    WebDriverWait(driver, _LOADING_SECONDS).until(
        lambda page: page.execute_script("return typeof report !== 'undefined'")
    )
    driver.execute_async_script(
        "const done = arguments[0];"
        "report.ready.then(() => { report.cases.forEach(explore);"
        " requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done, 100))); })"
    )


def _found(names: tuple[str, ...]) -> str | None:
    return next((path for path in map(shutil.which, names) if path), None)
