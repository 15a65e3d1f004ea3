# SPDX-License-Identifier: Apache-2.0
"""Programs that allocbench runs: `-- python train.py` wherever a trace is taken.

program.py         what to run and where; its traces, newly recorded or stored; their steps
functions.py       a Python function as a program
execution.py       runs it on this machine's GPU or on a null GPU
recording_cache.py recordings in the cache, and whether they are still valid
with_allocator.py  runs it on another allocator
hook/              what runs in the processes of a program
"""

PREFIX = "-- "
"""With what the text of a workload begins that is a command."""
LEAST_GROWTH = 512
"""Bytes by which memory must grow in a step: a million steps with less do not fill 512 MB."""


def is_program(workload: str) -> bool:
    """Whether the text of a workload is a command."""
    return workload.startswith(PREFIX)
