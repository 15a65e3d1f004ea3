# SPDX-License-Identifier: Apache-2.0
"""Tests in a browser: skipped without one, and what the page says and requests."""

import json
import os
from typing import Any

import pytest

from docs.generate import browser


def needs_chromium() -> None:
    """Skip with a reason if there is no Chromium; fail instead if it is required."""
    missing = browser.missing()
    if not missing:
        return
    why = f"no {' and no '.join(missing)} found on PATH"
    if os.environ.get("CI"):
        pytest.fail(f"{why}, though this is a CI run: .ci/run installs them")
    pytest.skip(why)


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
