# SPDX-License-Identifier: Apache-2.0
"""A clear error where an optional dependency is missing."""

from collections.abc import Iterator
from contextlib import contextmanager


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
