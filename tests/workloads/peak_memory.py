# SPDX-License-Identifier: Apache-2.0
"""How much memory reading a file takes, measured in another process."""

import subprocess
import sys
from pathlib import Path

_PROGRAM = """
import sys
from allocbench import workloads

def peak():
    status = open("/proc/self/status").read()
    return 1024 * int(status.split("VmHWM:")[1].split()[0])

small, large = sys.argv[1:]
workloads.read(small)
before = peak()
trace = workloads.read(large)
print(len(trace), peak() - before)
"""


def events_and_growth(small: Path, large: Path) -> tuple[int, int]:
    """The events of the trace `large`, and the bytes by which reading it raises peak memory.

    small: a trace of the same format, read first, so that imports do not count. Linux only.
    """
    command = [sys.executable, "-c", _PROGRAM, str(small), str(large)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    events, grown = map(int, done.stdout.split())
    return events, grown
