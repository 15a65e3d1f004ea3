# SPDX-License-Identifier: Apache-2.0
"""The experiment runner and the command line, on top of allocators, workloads and reports."""

__version__: str


def __getattr__(name: str) -> str:
    """`__version__`, read from the installed package when it is first asked for."""
    if name != "__version__":
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    from importlib import metadata  # takes longer to import than the rest of this package

    try:
        version = metadata.version("allocbench")
    except metadata.PackageNotFoundError:
        version = "unknown (not installed)"
    globals()["__version__"] = version
    return version
