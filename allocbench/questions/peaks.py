# SPDX-License-Identifier: Apache-2.0
"""Peaks of programs, kept in a file, and what made one grow."""

import json
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from allocbench.base import units
from allocbench.base.files import whole_file
from allocbench.base.spec import parse
from allocbench.base.text import one_line
from allocbench.errors import UsageError
from allocbench.null_gpu.device import is_null
from allocbench.programs import program
from allocbench.programs.execution import AMPLE
from allocbench.programs.program import ProgramWorkload
from allocbench.questions.holding import by_kind, holders, places_in_words
from allocbench.replays.runner import Runner
from allocbench.workloads import Trace

_ENDLESS = f"sim:{AMPLE}"
_LINE = re.compile(r":\d+(?= |$)")
_MOST = 5  # lines that explain


@dataclass(frozen=True)
class Peak:
    """The peak of a program. Bytes.

    load: live requested memory; equal in every run. reserved: what PyTorch's allocator holds from
    the card. device: that the program ran on. held: [kind, place, bytes] at the peak of the load,
    places without their line numbers.
    """

    load: int
    reserved: int
    device: str
    held: list[list[Any]]


def peak_of(trace: Trace) -> Peak:
    """The peak of a trace, with enough memory for all of its requests."""
    held = Counter[tuple[str, str]]()
    for row in holders(trace).to_dict("records"):
        held[row["kind"], _LINE.sub("", one_line(row["place"]))] += row["bytes"]
    return Peak(
        load=trace.max_load,
        reserved=Runner(trace, _ENDLESS).counted("caching")["peak_reserved"],
        device=_without_memory(trace.provenance.device),
        held=[[*key, size] for key, size in held.most_common()],
    )


def _without_memory(device: str) -> str:
    """The name of a device; that of a null GPU without its option `memory`."""
    if not is_null(device):
        return device
    spec = parse(device, first="card")
    card = spec.options.pop("card", "")
    kept = [f",{name}={value}" for name, value in spec.options.items() if name != "memory"]
    return f"{spec.name}:{card}{''.join(kept)}"


def run(asked: ProgramWorkload) -> tuple[Peak, Trace]:
    """The peak of a program, now or as kept; raises as `programs.program.load`."""
    trace = program.load(asked)
    return peak_of(trace), trace


def above_limit(peak: Peak, trace: Trace, limit: int) -> str | None:
    """Why a peak is above a limit of reserved bytes, in lines; None if it is not."""
    if peak.reserved <= limit:
        return None
    lines = [
        f"PyTorch reserves {units.size(peak.reserved)} at its peak on {peak.device}, "
        f"{units.size(peak.reserved - limit)} above the limit of {units.size(limit)}"
    ]
    for row in by_kind(holders(trace))[:_MOST]:
        held = f"  {units.size(row['bytes'])} {row['kind'] or 'live'}"
        lines.append(": ".join(filter(None, (held, places_in_words(row["places"])))))
    return "\n".join(lines)


def above_baseline(peak: Peak, baseline: Peak, percent: float) -> str | None:
    """Why a peak load exceeds a stored one by more than a share, in lines; None if it does not.

    Raises UsageError for a baseline of another card.
    """
    if peak.device != baseline.device:
        raise UsageError(
            f"the baseline was measured on {baseline.device}, this run on {peak.device}"
        )
    grown = peak.load - baseline.load
    if grown <= baseline.load * percent / 100:
        return None
    change = 100 * grown / max(1, baseline.load)
    lines = [
        f"the peak load is {units.size(peak.load)} on {peak.device}, {units.size(grown)} "
        f"({change:.2f} %) above the baseline of {units.size(baseline.load)}; "
        f"{percent:g} % is allowed"
    ]
    return "\n".join([*lines, *(f"  {line}" for line in what_grew(peak, baseline))])


def what_grew(peak: Peak, baseline: Peak) -> list[str]:
    """The kinds and places that hold more at the peak than before, largest first."""
    change = Counter({(kind, place): size for kind, place, size in peak.held})
    change.subtract({(kind, place): size for kind, place, size in baseline.held})
    return [
        f"+{units.size(size)} {' by '.join(filter(None, key)) or 'live'}"
        for key, size in change.most_common(_MOST)
        if size > 0
    ]


def read(path: Path) -> dict[str, Peak]:
    """The peaks of a file by name, empty without a file; raises UsageError."""
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
        return {name: Peak(**peak) for name, peak in stored.items()}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise UsageError(f"{path}: not a file of peaks: {error}") from error


def write(path: Path, peaks: Mapping[str, Peak]) -> None:
    """Write the peaks of a file, whole or not at all; raises OSError."""
    stored = {name: asdict(peaks[name]) for name in sorted(peaks)}
    with whole_file(path) as file:
        file.write((json.dumps(stored, indent=1) + "\n").encode())
