# SPDX-License-Identifier: Apache-2.0
"""User errors: those that the command line reports in one line."""

from collections.abc import Iterator
from contextlib import contextmanager

from allocbench.allocators import SpecError


class UsageError(ValueError):
    """Invalid arguments. The message is one line, which says what would be valid."""


def user_errors() -> tuple[type[Exception], ...]:
    """The errors that are a user's to mend; imports every module that defines one."""
    from allocbench.null_gpu.torch_build import NullGpuError
    from allocbench.reports.output import ResultError
    from allocbench.workloads import TraceError
    from allocbench.workloads.fake_cuda import CaptureError
    from allocbench.workloads.recording import RecordError

    return (
        UsageError,
        SpecError,
        TraceError,
        ResultError,
        CaptureError,
        RecordError,
        NullGpuError,
    )


@contextmanager
def errors_naming(option: str) -> Iterator[None]:
    """Turn a SpecError into a UsageError that names the option it came from."""
    try:
        yield
    except SpecError as error:
        raise UsageError(f"{option}: {error}") from error
