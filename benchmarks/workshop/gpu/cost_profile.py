# SPDX-License-Identifier: Apache-2.0
"""A cost model of the simulated device from a result of the stage `calibration`.

    python -m benchmarks.workshop.gpu.cost_profile NAME RESULT.json \\
        > allocators/device_costs_NAME.json

The option `costs=NAME` of a simulated device chooses the model.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

BELOW, ABOVE = 0.5, 2.0
"""The range of a cost, relative to the smallest and the largest measurement."""


def cost_profile(name: str, result: dict[str, Any]) -> dict[str, Any]:
    """The model in the form of `device_costs.json`: medians, and ranges around all measurements."""
    measured, where = result["measured"], result["provenance"]
    calls = {
        call: [
            {
                "bytes": size,
                "seconds": float(f"{seconds:.4g}"),
                "low": float(f"{BELOW * least:.4g}"),
                "high": float(f"{ABOVE * most:.4g}"),
                "measured": [name],
            }
            for (_, seconds), (size, least, most) in zip(
                points, measured["least_and_most"][call], strict=True
            )
        ]
        for call, points in measured["calls"].items()
    }
    return {
        "source": name,
        "provenance": "Estimates from measurements on one GPU without other work.",
        "unit": "bytes and seconds; straight lines between points, level outside",
        "rule": f"The median of {measured['repeats']} calls. The range is from half of the smallest"
        " to twice the largest of them.",
        "sources": {
            name: f"{where['gpu']}, {where['gpu_uuid'][:12]}, driver CUDA {where['driver_cuda']},"
            f" measured on {where['date'][:10]} with `make gpu ONLY=calibration`"
        },
        "calls": calls,
    }


if __name__ == "__main__":
    given, path = sys.argv[1:]
    profile = cost_profile(given, json.loads(Path(path).read_text(encoding="utf-8")))
    indented = json.dumps(profile, indent=2)
    print(re.sub(r'\{\s+"bytes"[^}]*\}', lambda point: json.dumps(json.loads(point[0])), indented))
