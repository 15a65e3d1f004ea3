# SPDX-License-Identifier: Apache-2.0
"""The base of all errors that a user sees as one line, and one for missing dependencies."""

from collections.abc import Iterator
from contextlib import contextmanager


class UserError(ValueError):
    """Invalid input, or something that this machine lacks. The message is one line."""


@contextmanager
def needs_extra(extra: str) -> Iterator[None]:
    """Turn a failed import into one that names the extra to install; raises ModuleNotFoundError."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"{error.name} is not installed: pip install {error.name}, or allocbench with its"
            f" extra '{extra}'",
            name=error.name,
        ) from error
