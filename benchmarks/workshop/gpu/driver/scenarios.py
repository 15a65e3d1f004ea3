# SPDX-License-Identifier: Apache-2.0
"""All scenarios by name; `python -m benchmarks.workshop.gpu.driver.scenarios NAME` runs one."""

import sys
from collections.abc import Callable

from benchmarks.workshop.gpu.driver import captures, contexts, memory, pools, streams, virtual
from benchmarks.workshop.gpu.driver.cuda import Cuda

SCENARIOS: dict[str, Callable[[Cuda], None]] = {
    f"{module.__name__.rpartition('.')[2]}.{scenario.__name__}": scenario
    for module in (memory, virtual, pools, streams, captures, contexts)
    for scenario in module.SCENARIOS
}
TOGETHER = frozenset(
    name for name, scenario in SCENARIOS.items() if scenario in (*captures.SCENARIOS, *streams.DEAD)
)
"""Scenarios that neither count free bytes nor keep a stream busy: they may run at the same time."""

if __name__ == "__main__":
    SCENARIOS[sys.argv[1]](Cuda())
