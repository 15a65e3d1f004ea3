# SPDX-License-Identifier: Apache-2.0
"""Show where two results of `calls` differ.

python -m benchmarks.workshop.gpu.driver.compare A B
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any


def differences(
    first: dict[str, Any], second: dict[str, Any]
) -> Iterator[tuple[str, str, Any, Any]]:
    """Scenario, label, and what each of two results has there, where they differ.

    first, second: the values by scenario of two results. What is `raw` is not compared.
    """
    for name in dict.fromkeys([*first, *second]):
        one, other = first.get(name), second.get(name)
        if one is None or other is None:
            yield name, "", one is not None, other is not None
            continue
        if one["exit_code"] != other["exit_code"]:
            yield name, "exit code", one["exit_code"], other["exit_code"]
        ours, theirs = _by_label(one["lines"]), _by_label(other["lines"])
        for label in dict.fromkeys([*ours, *theirs]):
            if ours.get(label) != theirs.get(label):
                yield name, label, ours.get(label), theirs.get(label)


def _by_label(lines: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {
        line["label"]: {key: line[key] for key in line if key not in ("label", "raw")}
        for line in lines
    }


def main() -> int:
    """The command line; 1 if the results differ."""
    results = []
    for path in sys.argv[1:3]:
        content = json.loads(Path(path).read_text(encoding="utf-8"))
        results.append((content.get("measured") or content["null"])["scenarios"])
    found = list(differences(*results))
    for name, label, one, other in found:
        print(f"{name}: {label}: {json.dumps(one)} | {json.dumps(other)}")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
