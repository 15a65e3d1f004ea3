# SPDX-License-Identifier: Apache-2.0
"""How low plans are and how long they take, with all lifetimes known."""

from __future__ import annotations

from benchmarks import common

_SECONDS = 2


def _plan(planner: str, workload: str) -> common.Cell:
    found = common.command("plan", workload, "--planner", planner, "--time-limit", str(_SECONDS))
    if isinstance(found, dict):
        found["height_over_max_load"] = found["height"] / found["max_load"]
    return found


@common.tracks(height_over_max_load="ratio", seconds="seconds")
class FastPlanners(common.Suite):
    """Those that place each block once."""

    params: common.Params = (
        ("best_fit", "execution_order", "greedy_by_size", "no_reuse"),
        common.FAST_WORKLOADS,
    )
    param_names = ("planner", "workload")

    def cell(self, planner: str, workload: str) -> common.Cell:
        return _plan(planner, workload)

    def setup_cache(self) -> object:
        return self.cells()


@common.tracks(height_over_max_load=f"ratio after {_SECONDS} s", seconds="seconds")
class Exact(FastPlanners):
    """The search that ends at a proof or at a time limit: what it finds depends on the machine."""

    params: common.Params = (("exact",), common.FAST_WORKLOADS + common.WORKLOADS)

    def setup_cache(self) -> object:
        return self.cells()
