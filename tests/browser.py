# SPDX-License-Identifier: Apache-2.0
"""A headless Chromium that reports a page's network requests and console messages."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = ("chromium", "chromium-browser", "google-chrome")
DRIVER = ("chromedriver", "chromium.chromedriver")


def found(names: tuple[str, ...]) -> str | None:
    return next((path for path in map(shutil.which, names) if path), None)


def needs_chromium() -> None:
    """Skip with a reason if there is no Chromium; fail instead if it is required."""
    missing = [names[0] for names in (CHROMIUM, DRIVER) if not found(names)]
    if not missing:
        return
    why = f"no {' and no '.join(missing)} found on PATH"
    if os.environ.get("CI"):
        pytest.fail(f"{why}, though this is a CI run: .ci/run installs them")
    pytest.skip(why)


@contextmanager
def chromium(width: int = 1280, height: int = 900, *, dark: bool = False) -> Iterator[Any]:
    """A driver of a browser with a window of this size; `Browser` reads its logs."""
    needs_chromium()
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = found(CHROMIUM) or ""
    for flag in (
        "headless=new",
        "no-sandbox",
        "disable-dev-shm-usage",
        "disable-background-networking",
        "disable-component-update",
    ):
        options.add_argument(f"--{flag}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(found(DRIVER)))
    try:
        driver.set_script_timeout(600)
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})
        yield driver
    finally:
        driver.quit()


def visit(driver: Any, path: Path) -> None:
    """Open a report and wait until its charts can be explored, all of them made."""
    driver.get(path.as_uri())
    driver.execute_async_script(
        "const done = arguments[0];"
        "report.ready.then(() => { report.cases.forEach(explore);"
        " requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done, 100))); })"
    )


def trouble(driver: Any) -> list[str]:
    """The console messages of the page, and every other address that it requested."""
    said = [entry["message"] for entry in driver.get_log("browser")]
    for entry in driver.get_log("performance"):
        message = json.loads(entry["message"])["message"]
        if message["method"] == "Network.requestWillBeSent":
            address = message["params"]["request"]["url"]
            if not address.startswith(("file:", "data:", "blob:")):
                said.append(f"asked for {address}")
    return said
