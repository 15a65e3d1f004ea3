# SPDX-License-Identifier: Apache-2.0
"""Answers as the program nvidia-smi, which others run to learn the card: its fixed properties.

ALLOCBENCH_NULL has the cards. What changes while programs run is [N/A].
"""

from __future__ import annotations

import json
import os
import sys

_MIB = 1 << 20


def main() -> int:
    """Print the properties that the arguments ask for; the exit code."""
    card = json.loads(os.environ["ALLOCBENCH_NULL"])["settings"]
    options = dict(word.partition("=")[::2] for word in sys.argv[1:])
    if "-L" in options or "--list-gpus" in options:
        for number in range(card["count"]):
            print(f"GPU {number}: {card['name']} (UUID: {_uuid(number)})")
        return 0
    asked, form = options.get("--query-gpu"), options.get("--format", "").split(",")
    if asked is None or form[0] != "csv":
        only = "nvidia-smi on a null GPU: only -L and --query-gpu=NAMES --format=csv"
        print(only, file=sys.stderr)
        return 1
    names = [name.strip() for name in asked.split(",")]
    if "noheader" not in form:
        print(", ".join(names))
    for number in range(card["count"]):
        known = _properties(card, number, "" if "nounits" in form else " MiB")
        print(", ".join(known.get(name, "[N/A]") for name in names))
    return 0


def _properties(card: dict[str, int | str], number: int, unit: str) -> dict[str, str]:
    capability = int(card["compute_capability"])
    return {
        "index": str(number),
        "count": str(card["count"]),
        "name": str(card["name"]),
        "gpu_name": str(card["name"]),
        "uuid": _uuid(number),
        "gpu_uuid": _uuid(number),
        "memory.total": f"{int(card['memory']) // _MIB}{unit}",
        "compute_cap": f"{capability // 10}.{capability % 10}",
    }


def _uuid(number: int) -> str:
    return f"GPU-00000000-0000-0000-0000-{number + 1:012x}"  # as NVML of the null GPU says


if __name__ == "__main__":
    sys.exit(main())
