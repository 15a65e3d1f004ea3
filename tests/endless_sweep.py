# SPDX-License-Identifier: Apache-2.0
"""`allocbench` with sweeps whose runs never end, except for those of naive.

    python -m tests.endless_sweep PIDS sweep ...

Each such process adds a line with its id to the file PIDS.
"""

from __future__ import annotations

import os
import sys
import time
from functools import partial

from allocbench import sweep
from allocbench.__main__ import main
from allocbench.experiment import Effort
from allocbench.questions.runner import Row
from allocbench.reports.runs import Key
from allocbench.workloads import Trace


def run(trace: Trace, key: Key, effort: Effort, pids: str) -> Row:
    if key.allocator == "naive":
        return sweep.measure(trace, key, effort)
    with open(pids, "a") as file:
        file.write(f"{os.getpid()}\n")
    while True:
        time.sleep(600)


if __name__ == "__main__":
    from tests import endless_sweep  # so that workers find the function by its name

    pids = sys.argv.pop(1)
    setattr(sweep, "sweep", partial(sweep.sweep, runner=partial(endless_sweep.run, pids=pids)))  # noqa: B010
    main()
