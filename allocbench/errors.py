# SPDX-License-Identifier: Apache-2.0
"""User errors: those that the command line reports in one line."""

from collections.abc import Iterator
from contextlib import contextmanager

from allocbench.allocators import SpecError
from allocbench.base.errors import UserError


class UsageError(UserError):
    """Invalid arguments. The message is one line, which says what would be valid."""


USER_ERRORS = (UserError, SpecError)
"""All of them; SpecError is defined by the native code."""


@contextmanager
def errors_naming(option: str) -> Iterator[None]:
    """Turn a SpecError into a UsageError that names the option it came from."""
    try:
        yield
    except SpecError as error:
        told = str(error)
        raise UsageError(told if told.startswith(option) else f"{option}: {told}") from error
