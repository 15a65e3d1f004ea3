# SPDX-License-Identifier: Apache-2.0
"""What a program did on a real and on a null GPU: its recordings, peaks and results compared."""

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np

from allocbench.verification.verify import Verdict, verify
from allocbench.workloads import ALLOC, FREE, Trace, TraceError, alignment
from allocbench.workloads.files import read_recording
from allocbench.workloads.recordings import CALLS, Recording
from benchmarks.workshop.gpu.tasks import observations

STAGE = "agreement"
_MODELLED = re.compile(r"\s*\[modelled: \w+\]$")
_PEAKS = ("requested_bytes", "allocated_bytes", "reserved_bytes")


@dataclass(frozen=True)
class Pair:
    """A process of a program on a real and on a null GPU.

    events: allocs and frees, real and null. common: how many of them are in both in the same order.
    first: the first event that differs, with both sides, or None. only_real, only_null: (label,
    bytes) -> how many more allocs than on the other. calls: of the allocator to the driver, by
    kind and bytes in order, real and null; calls_equal: whether these are the same sequence.
    shift: the distance of all addresses, if it is the same for all blocks. descending: share of the
    segments that lie below the one obtained before.
    """

    name: str
    events: tuple[int, int]
    common: int
    first: dict[str, Any] | None
    only_real: dict[str, int]
    only_null: dict[str, int]
    max_load: tuple[int, int]
    calls: tuple[int, int]
    calls_equal: bool
    shift: int | None
    descending: tuple[float | None, float | None]


def values(path: Path) -> dict[str, Any] | None:
    """What a task measured, or None if it has no result."""
    if not path.exists():
        return None
    result = json.loads(path.read_text(encoding="utf-8"))
    found: dict[str, Any] = result.get("measured", result.get("null"))
    return found


def symbols(trace: Trace) -> list[tuple[int, int, str]]:
    """Each alloc and free: op, bytes of the block, label of the alloc without marks of a null GPU.

    Consecutive frees are sorted by size, as `alignment.agreement` does. Blocks that lived when the
    recording began come first, also sorted: a recording has them in the order of their addresses.
    """
    labels = [_MODELLED.sub("", label) for label in trace.labels]
    number = trace.label if trace.label is not None else np.zeros(len(trace), np.uint32)
    sizes, found = dict[int, int](), list[tuple[int, int, str]]()
    rows = zip(trace.op, trace.block, trace.size, number, strict=True)
    for op, block, size, label in rows:
        if op == ALLOC:
            sizes[int(block)] = int(size)
            found.append((ALLOC, int(size), labels[label] if labels else ""))
        elif op == FREE:
            found.append((FREE, sizes.pop(int(block), -1), ""))
    held = _held(trace)
    found[:held] = sorted(found[:held])
    runs = (list(run) for _, run in groupby(found, key=itemgetter(0)))
    return [event for run in runs for event in (sorted(run) if run[0][0] == FREE else run)]


def _held(trace: Trace) -> int:
    """How many blocks lived when the recording began, and an alloc at that time if there is one."""
    if trace.time_ns is None:
        return 0
    later = np.flatnonzero((trace.op != ALLOC) | (trace.time_ns != 0))
    return int(later[0]) if len(later) else len(trace)


def compare(name: str, real: Recording, null: Recording) -> Pair:
    """Compare what two processes allocated."""
    left, right = symbols(real.trace), symbols(null.trace)
    first = None
    for n in range(max(len(left), len(right))):
        there, here = (side[n] if n < len(side) else None for side in (left, right))
        if there is None or here is None or there[:2] != here[:2]:
            first = {"event": n, "real": there, "null": here}
            break
    allocs = [Counter(event[1:] for event in side if event[0] == ALLOC) for side in (left, right)]
    both = alignment.agreement(null.trace, real.trace)
    calls = [_calls(recording) for recording in (real, null)]
    return Pair(
        name,
        (len(left), len(right)),
        both.matched if first else len(left),
        first,
        _named(allocs[0] - allocs[1]),
        _named(allocs[1] - allocs[0]),
        (real.trace.max_load, null.trace.max_load),
        (len(calls[0]), len(calls[1])),
        calls[0] == calls[1],
        _shift(real, null),
        (_descending(real), _descending(null)),
    )


def _named(counts: Counter[tuple[int, str]]) -> dict[str, int]:
    return {f"{label or '?'} {size:,}": count for (size, label), count in counts.most_common()}


def _calls(recording: Recording) -> list[tuple[str, int]]:
    if recording.calls is None:
        return []
    pairs = zip(recording.calls.kind.tolist(), recording.calls.size.tolist(), strict=True)
    return [(CALLS[kind], size) for kind, size in pairs]


def _shift(real: Recording, null: Recording) -> int | None:
    if len(real.address) != len(null.address) or not len(real.address):
        return None
    distances = np.unique(real.address.astype(np.int64) - null.address.astype(np.int64))
    return int(distances[0]) if len(distances) == 1 else None


def _descending(recording: Recording) -> float | None:
    calls = recording.calls
    if calls is None or np.count_nonzero(calls.kind == 0) < 2:
        return None
    return float(np.mean(np.diff(calls.address[calls.kind == 0].astype(np.int64)) < 0))


def pairs(real: Path, null: Path) -> Iterator[tuple[str, Pair | None, Verdict | None, str]]:
    """Each process that left a snapshot on both: name, comparison, `caching` on the real one.

    The last value says why there is no comparison, or is "".
    """
    capacity = _capacity(real)
    for one in observations.every():
        there, here = (values(side / f"{one.name}.json") for side in (real, null))
        if there is None or here is None:
            yield one.name, None, None, "no result " + ("on the real GPU" if here else "on both")
            continue
        if there["code"] != here["code"]:
            yield one.name, None, None, f"exit codes {there['code']} and {here['code']}"
        for path in sorted(real.glob(f"{one.name}.*.pickle.gz")):
            name = path.name.removesuffix(".pickle.gz")
            verdict = verify(path, "caching:version=2.11", capacity)
            try:
                found = compare(name, read_recording(path), read_recording(null / path.name))
            except (TraceError, OSError) as error:
                yield name, None, verdict, str(error)
            else:
                yield name, found, verdict, ""


def _capacity(real: Path) -> int | None:
    found = values(real / "device.json")
    return int(found["driver"]["total"]) if found else None


def peak_bytes(folder: Path, name: str) -> dict[str, int | None]:
    """The peaks of a program's last process by PyTorch's own statistics: requested, allocated..."""
    facts = (values(folder / f"{name}.json") or {}).get("facts") or {}
    stats = facts.get("stats", {})
    return {peak.removesuffix("_bytes"): stats.get(f"{peak}.all.peak") for peak in _PEAKS}


def checks(found: Mapping[str, Any] | None, wanted: Mapping[str, Any]) -> str:
    """Which results of the checks are not those of PyTorch's own allocator."""
    if found is None:
        return "no result"
    if found["returned"] is None:
        return f"exit code {found['code']}: {found['stderr'].strip()[-120:]!r}"
    failed = [name for name, value in found["returned"].items() if isinstance(value, str)]
    other = [name for name in wanted if found["returned"].get(name) != wanted[name]]
    told = [f"{name} failed" for name in failed]
    told += [f"{name} differs" for name in other if name not in failed]
    return "; ".join(told) or f"all {len(wanted)} equal"
