# SPDX-License-Identifier: Apache-2.0
"""The experiment runner and the command line, on top of allocators, workloads and reports."""

from importlib import metadata

try:
    __version__ = metadata.version("allocbench")
except metadata.PackageNotFoundError:
    __version__ = "unknown (not installed)"
