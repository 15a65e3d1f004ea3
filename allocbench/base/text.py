# SPDX-License-Identifier: Apache-2.0
"""Text for one line of a terminal."""


def one_line(text: str) -> str:
    """The text without line breaks and control characters."""
    return "".join(c if c.isprintable() else "?" for c in " ".join(text.split()))
