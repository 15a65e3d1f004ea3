# SPDX-License-Identifier: Apache-2.0
"""Height of plans and time to compute them, with all lifetimes known."""

from benchmarks import common

_SECONDS = 2


def _plan(planner: str, workload: str) -> common.Cell:
    row = common.command("plan", workload, "--planner", planner, "--time-limit", str(_SECONDS))
    if isinstance(row, dict):
        row["height_over_max_load"] = row["height"] / row["max_load"]
    return row


@common.tracks(height_over_max_load="ratio", seconds="seconds")
class FastPlanners(common.Suite):
    """The planners that place each block once."""

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
    """The exact search, which stops at a time limit, so results depend on the machine."""

    params: common.Params = (("exact",), common.FAST_WORKLOADS + common.WORKLOADS)

    def setup_cache(self) -> object:
        return self.cells()
