# SPDX-License-Identifier: Apache-2.0
"""How tasks that run at the same time share a GPU."""

MEMORY = 70
"""GiB of GPU memory that they may use together; it leaves room for estimates that are too low."""
BLIND = 54
"""GiB that the runs of a later round may use together. It leaves room for the workspaces of
convolutions, which are measured at the same time."""
