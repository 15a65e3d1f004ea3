# SPDX-License-Identifier: Apache-2.0
"""Where things are kept between runs."""

import os
from pathlib import Path


def cache() -> Path:
    """The folder of this program in the user's cache; it may not exist yet."""
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return base / "allocbench"
