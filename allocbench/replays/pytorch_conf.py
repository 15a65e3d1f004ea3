# SPDX-License-Identifier: Apache-2.0
"""Options of `caching` as the value of PyTorch's environment variable."""

from __future__ import annotations

from collections.abc import Mapping

_FLAGS = {"true": "True", "false": "False"}
_NOT_IN_CONF = ("version", "conf")


def conf(options: Mapping[str, str]) -> str:
    """The value of PyTorch's variable for options of `caching`; empty for its defaults."""
    items = [
        f"{name}:{_FLAGS.get(value, value)}"
        for name, value in options.items()
        if name not in _NOT_IN_CONF
    ]
    return ",".join(filter(None, [options.get("conf", ""), *items]))
