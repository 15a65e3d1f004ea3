# SPDX-License-Identifier: Apache-2.0
"""Text for a terminal."""


def one_line(text: str) -> str:
    """The text without line breaks and control characters."""
    return printable(" ".join(text.split()))


def printable(text: str, kept: str = "") -> str:
    """The text with `?` in place of characters that are not printable, such as terminal commands.

    kept: characters that stay as they are.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in kept else "?" for c in text)


def encodable(text: str) -> str:
    """The text with `?` in place of surrogates, which stand for bytes that are not UTF-8."""
    return text.encode(errors="replace").decode()
