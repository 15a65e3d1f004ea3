# SPDX-License-Identifier: Apache-2.0
"""The bugs of tests/data/planted.toml: chosen ones, and those at places that were drawn."""

import tomllib
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Bug:
    """An edit of one file, and the tests that must fail because of it: see the file of bugs."""

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]
    reason: str = "^FAILED"
    sanitize: str = ""


_BUGS = tomllib.loads((Path(__file__).parents[1] / "data/planted.toml").read_text(encoding="utf-8"))
BUGS, DRAWN = (
    tuple(Bug(**bug | {"tests": tuple(bug["tests"])}) for bug in _BUGS[kind])
    for kind in ("chosen", "drawn")
)
