# SPDX-License-Identifier: Apache-2.0
"""The results of the stages of `make gpu` that need no PyTorch, as Markdown tables."""

import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.workshop.gpu.tables import stored

_IDLE = ("", "hit", "miss", "idle", "ready")
"""The cases of a cost on an idle device with few live objects."""

_NO_BYTES = ("seconds", "placements", "device_")
"""Parts of the names of fields of a replay that are no bytes or counts: times and addresses."""


def parts(folder: Path) -> Iterator[str]:
    """A section for each of the stages that has results."""
    for result in stored.results(folder, "driver").values():
        if "measured" in result:
            yield _scenarios(result["measured"]["scenarios"])
    for result in stored.results(folder, "costs").values():
        if "measured" in result:
            yield _costs(result["measured"]["costs"])
    for result in stored.results(folder, "replays").values():
        if "measured" in result:
            rows = [row for row in result["measured"]["rows"] if "gpu" in row]
            yield _replays(rows)
            yield from _pools(rows)
    for result in stored.results(folder, "integrity").values():
        if "measured" in result:
            yield _integrity(result["measured"])


def different(row: dict[str, Any]) -> list[str]:
    """The names of the bytes and counts that a replay on the simulated device has otherwise.

    The steps of a search depend on the addresses, and are left out.
    """
    real, simulated = row["gpu"], row["simulated"]
    return [
        name
        for name in real
        if not any(part in name for part in _NO_BYTES)
        and _counted(real[name]) != _counted(simulated[name])
    ]


def _counted(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    return {name: count for name, count in value.items() if name != "search_steps"}


def _scenarios(scenarios: dict[str, dict[str, Any]]) -> str:
    groups: dict[str, list[dict[str, Any]]] = {}
    for name, scenario in scenarios.items():
        groups.setdefault(name.partition(".")[0], []).append(scenario)
    rows = [
        [
            group,
            str(len(found)),
            str(sum(len(one["lines"]) for one in found)),
            str(sum(one["exit_code"] is None for one in found)),
            str(sum((one["exit_code"] or 0) < 0 for one in found)),
        ]
        for group, found in groups.items()
    ]
    headings = ["scenarios", "number", "results", "did not end", "ended by a signal"]
    return "## Sequences of driver calls\n\n" + stored.table(headings, rows)


def _costs(costs: list[dict[str, Any]]) -> str:
    rows = [
        [
            f"{row['call']} {row['case']}".strip(),
            stored.size(row["bytes"]) if row["bytes"] else "",
            *(stored.seconds(row[name]) for name in ("quartile_1", "median", "quartile_3")),
        ]
        for row in costs
        if row["case"] in _IDLE
    ]
    headings = ["call", "bytes", "first quartile", "median", "third quartile"]
    return "## The cost of single driver calls, idle device\n\n" + stored.table(headings, rows)


def _replays(rows: list[dict[str, Any]]) -> str:
    by_allocator: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        if "simulated" in row:
            by_allocator.setdefault(row["allocator"], []).append(row)
    table = []
    for allocator, found in by_allocator.items():
        within = 0
        ratios = []
        for row in found:
            model, measured = row["simulated"], row["gpu"]["device_seconds"]
            within += model["device_seconds_low"] <= measured <= model["device_seconds_high"]
            ratios.append(measured / model["device_seconds"])
        table.append(
            [
                allocator,
                str(len(found)),
                str(sum(not different(row) for row in found)),
                str(within),
                f"{min(ratios):.2f}x to {max(ratios):.2f}x",
                f"{statistics.median(ratios):.2f}x",
            ]
        )
    headings = ["allocator", "replays", "equal bytes and counts", "device time within the range"]
    headings += ["device time / estimate", "median"]
    title = "## Replays on the GPU and on a simulated device\n\n"
    note = "\n\nThe ranges are those of the estimates when the replays ran."
    return title + stored.table(headings, table) + note


def _pools(rows: list[dict[str, Any]]) -> Iterator[str]:
    table = [
        [
            row["workload"],
            stored.size(row["gpu"]["peak_requested"]),
            stored.size(row["gpu"]["peak_reserved"]),
            str(row["gpu"]["failures"]),
            stored.seconds(row["gpu"]["device_seconds"]),
        ]
        for row in rows
        if "simulated" not in row
    ]
    if table:
        headings = ["workload", "requested at the peak", "peak reserved", "failures", "device time"]
        yield "## The driver's memory pool (`cuda_async`)\n\n" + stored.table(headings, table)


def _integrity(measured: dict[str, Any]) -> str:
    by_workload: dict[str, list[dict[str, Any]]] = {}
    for row in measured["rows"]:
        by_workload.setdefault(row["workload"], []).append(row)
    rows = []
    for workload, found in by_workload.items():
        done = [row for row in found if "blocks" in row]
        rows.append(
            [
                workload,
                str(len(found)),
                f"{sum(row['blocks'] for row in done):,}",
                stored.size(sum(row["bytes"] for row in done)),
                str(sum(row["wrong_words"] + row["read_wrong"] for row in done)),
                str(sum(row["failures"] for row in done) + len(found) - len(done)),
            ]
        )
    headings = ["workload", "allocators", "blocks", "bytes compared", "wrong words", "failures"]
    found = measured["changed_on_purpose"]
    note = (
        f"\n\nOf one word that was changed on purpose, the kernel found {found['compared_wrong']} "
        f"and the host {found['read_wrong']}."
    )
    return "## Patterns in each block of a replay\n\n" + stored.table(headings, rows) + note
