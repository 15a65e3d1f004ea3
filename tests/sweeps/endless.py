# SPDX-License-Identifier: Apache-2.0
"""`allocbench` with sweeps whose runs never end, except for those of naive.

    python -m tests.sweeps.endless PIDS sweep ...

Each such process adds a line with its id to the file PIDS.
"""

import os
import sys
import time
from functools import partial

from allocbench.__main__ import main
from allocbench.replays.experiment import Effort
from allocbench.replays.runner import Row
from allocbench.reports.rows.bundle import Key
from allocbench.sweeps import sweep
from allocbench.workloads import Trace


def run(trace: Trace, key: Key, effort: Effort, pids: str) -> Row:
    if key.allocator == "naive":
        return sweep.measure(trace, key, effort)
    with open(pids, "a") as file:
        file.write(f"{os.getpid()}\n")
    while True:
        time.sleep(600)


if __name__ == "__main__":
    from tests.sweeps import endless  # so that workers find the function by its name

    pids = sys.argv.pop(1)
    setattr(sweep, "sweep", partial(sweep.sweep, runner=partial(endless.run, pids=pids)))  # noqa: B010
    main()
