# SPDX-License-Identifier: Apache-2.0
"""User errors: those that the command line reports in one line."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeAlias

from allocbench.allocators import SpecError


class UsageError(ValueError):
    """Invalid arguments. The message is one line, which says what would be valid."""


_Kind: TypeAlias = type[Exception]
USER_ERRORS: tuple[_Kind, _Kind, _Kind, _Kind, _Kind, _Kind]


def __getattr__(name: str) -> tuple[_Kind, ...]:
    """`USER_ERRORS`, created on first use: this imports every module that defines such an error."""
    if name != "USER_ERRORS":
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    from allocbench.null_gpu.torch_build import NullGpuError
    from allocbench.reports.output import ResultError
    from allocbench.workloads import TraceError
    from allocbench.workloads.recording import RecordError

    globals()[name] = error_class = (
        UsageError,
        SpecError,
        TraceError,
        ResultError,
        RecordError,
        NullGpuError,
    )
    return error_class


@contextmanager
def errors_naming(option: str) -> Iterator[None]:
    """Turn a SpecError into a UsageError that names the option it came from."""
    try:
        yield
    except SpecError as error:
        raise UsageError(f"{option}: {error}") from error
