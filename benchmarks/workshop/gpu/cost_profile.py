# SPDX-License-Identifier: Apache-2.0
"""A cost model of the simulated device from results of the stages `calibration` and `costs`.

    python -m benchmarks.workshop.gpu.cost_profile NAME CALIBRATION.json COSTS.json \\
        > allocators/device_costs_NAME.json

The option `costs=NAME` of a simulated device chooses the model.
"""

import json
import re
import sys
from pathlib import Path
from typing import Any

BELOW, ABOVE = 0.5, 2.0
"""The range of a cost, relative to the smallest and the largest measurement."""


_IN_POOL = {
    "pool_malloc": ("cuMemAllocFromPoolAsync", "hit"),
    "pool_free": ("cuMemFreeAsync", "hit"),
}
"""The calls and cases that cost what a call costs whose pool neither grows nor shrinks."""
_BY_PAGE = {
    "pool_grow": ("cuMemAllocFromPoolAsync", "miss"),
    "pool_shrink": ("cuMemPoolTrimTo", "to 0"),
}
"""Those that cost what the pages of a pool cost, if they are many."""
_PAGE, _PAGES = 32 << 20, 32


def cost_profile(name: str, result: dict[str, Any], costs: dict[str, Any]) -> dict[str, Any]:
    """The model in the form of `device_costs.json`: medians, and ranges around all measurements.

    result, costs: what the stages `calibration` and `costs` store. The second has those of pools.
    """
    measured, where = result["measured"], result["provenance"]
    calls = {
        call: [
            _point({"median": seconds, "least": least, "most": most}, size, 1, name)
            for (_, seconds), (size, least, most) in zip(
                points, measured["least_and_most"][call], strict=True
            )
        ]
        for call, points in measured["calls"].items()
    }
    pools = f"{name}-pools"
    for call, case in _IN_POOL.items():
        rows = _rows(costs, case)
        calls[call] = [_point(row, row["bytes"], 1, pools) for row in rows]
    for call, case in _BY_PAGE.items():
        (row,) = (row for row in _rows(costs, case) if row["bytes"] == _PAGE * _PAGES)
        calls[call] = [_point(row, _PAGE, _PAGES, pools)]
    return {
        "source": name,
        "provenance": "Estimates from measurements on one GPU without other work.",
        "unit": "bytes and seconds; straight lines between points, level outside",
        "rule": f"The median of {measured['repeats']} calls. The range is from half of the smallest"
        f" to twice the largest of them. A page of a pool costs {_PAGES} times less than {_PAGES}"
        " of them in one call.",
        "sources": {
            name: _source(where, "calibration"),
            pools: _source(costs["provenance"], "costs") + "; 0.3 us of each call are Python's",
        },
        "calls": calls,
    }


def _rows(costs: dict[str, Any], case: tuple[str, str]) -> list[dict[str, Any]]:
    return [row for row in costs["measured"]["costs"] if (row["call"], row["case"]) == case]


def _point(row: dict[str, Any], size: int, share: int, source: str) -> dict[str, Any]:
    """A point of a curve from a cost, for one of `share` equal parts of the call."""
    return {
        "bytes": size,
        "seconds": float(f"{row['median'] / share:.4g}"),
        "low": float(f"{BELOW * row['least'] / share:.4g}"),
        "high": float(f"{ABOVE * row['most'] / share:.4g}"),
        "measured": [source],
    }


def _source(where: dict[str, Any], stage: str) -> str:
    return (
        f"{where['gpu']}, {where['gpu_uuid'][:12]}, driver CUDA {where['driver_cuda']},"
        f" measured on {where['date'][:10]} with `make gpu ONLY={stage}`"
    )


if __name__ == "__main__":
    given, *paths = sys.argv[1:]
    profile = cost_profile(given, *(json.loads(Path(path).read_text("utf-8")) for path in paths))
    indented = json.dumps(profile, indent=2)
    print(re.sub(r'\{\s+"bytes"[^}]*\}', lambda point: json.dumps(json.loads(point[0])), indented))
