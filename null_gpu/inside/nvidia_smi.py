# SPDX-License-Identifier: Apache-2.0
"""Answers as the program nvidia-smi, which others run to learn the card and its free memory.

ALLOCBENCH_NULL has the cards. A card is idle, and what is not known of it is [N/A].
"""

from __future__ import annotations

import json
import os
import struct
import sys
from pathlib import Path

_MIB, _WORD = 1 << 20, 8


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
        known, with_unit = _properties(card, number), "nounits" not in form
        shown = [known.get(name, ("[N/A]", "")) for name in names]
        print(", ".join(text + unit if with_unit else text for text, unit in shown))
    return 0


def _properties(card: dict[str, int | str], number: int) -> dict[str, tuple[str, str]]:
    """The properties of a card by name: a value and its unit."""
    capability, total = int(card["compute_capability"]), int(card["memory"])
    used = _used(Path(str(card["usage"])), number)
    properties = {
        "index": str(number),
        "count": str(card["count"]),
        "name": str(card["name"]),
        "uuid": _uuid(number),
        "compute_cap": f"{capability // 10}.{capability % 10}",
    }
    sizes = {"total": total, "used": used, "free": total - used}
    found = {name: (text, "") for name, text in properties.items()}
    found |= {f"memory.{name}": (str(size // _MIB), " MiB") for name, size in sizes.items()}
    found |= {f"utilization.{part}": ("0", " %") for part in ("gpu", "memory")}
    return found | {f"gpu_{name}": found[name] for name in ("name", "uuid")}


def _used(usage: Path, number: int) -> int:
    """The bytes of a card in use, which come first in the file that its processes share."""
    try:
        with usage.open("rb") as file:
            file.seek(_WORD * number)
            return int(struct.unpack("<Q", file.read(_WORD))[0])
    except (OSError, struct.error):
        return 0  # no process has used a card yet


def _uuid(number: int) -> str:
    return f"GPU-00000000-0000-0000-0000-{number + 1:012x}"  # as NVML of the null GPU says


if __name__ == "__main__":
    sys.exit(main())
