# SPDX-License-Identifier: Apache-2.0
"""The packages of the installed commit; on older commits they were top-level packages."""

try:
    from allocbench import allocators, workloads
    from allocbench.workloads import catalog
except ImportError:
    import allocators  # type: ignore[no-redef]
    import workloads  # type: ignore[no-redef]
    from workloads import catalog  # type: ignore[no-redef]

__all__ = ["allocators", "catalog", "workloads"]
