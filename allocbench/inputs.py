# SPDX-License-Identifier: Apache-2.0
"""What the command line's arguments stand for: traces, specs, a processor."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path

import numpy as np

from allocbench import allocators, experiment
from allocbench.allocators import human_bytes, spec
from allocbench.base.text import one_line
from allocbench.errors import UsageError, errors_naming
from allocbench.programs import program
from allocbench.workloads import (
    Lifetimes,
    Trace,
    catalog,
    lifetimes,
    read,
    read_blocks,
)

ALL = "all"
STANDARD_INPUT = "-"
SMALLEST_DEVICE = 64 << 10  # bytes


def load(workload: str, model: str | None = None) -> Trace:
    """The trace of a workload, `name` or `name:option=value,...`, of a file, written alike, or of
    a program, "-- python train.py".

    model: that of a log of requests, or of a serving workload; what the spec says goes before.

    Raises UsageError when it is none of these, TraceError for a file that holds no trace, and for
    a program as `programs.program.load`.
    """
    if program.is_program(workload):
        return program.load(program.of_text(workload))
    more = {} if model is None else {"model": model}
    if catalog.knows(workload):
        return catalog.load(workload, **more)
    path, options = _file_and_options(workload)
    return read(path, **more | options)


def _file_and_options(text: str) -> tuple[str, dict[str, str]]:
    """A path, and the options after its last colon unless a file has all of that for its name.

    Raises UsageError, with the nearest names there are, when no file has that path.
    """
    path, _, rest = text.rpartition(":")
    options = dict(item.split("=", 1) for item in rest.split(",") if "=" in item)
    is_spec = path and not Path(text).exists() and len(options) == rest.count(",") + 1
    found, given = (path, options) if is_spec else (text, {})
    if found != STANDARD_INPUT and not Path(found).exists():
        raise UsageError(f"{found}: neither a file nor a workload; {_nearest(found)}")
    return found, given


def _nearest(text: str) -> str:
    """The names of workloads and files that are spelled most like a text, in a sentence."""
    path = Path(text)
    folder = path.parent
    try:
        files = [str(folder / one.name) for one in folder.iterdir() if one.is_file()]
    except OSError:
        return f"there is no folder {folder}"
    near = get_close_matches(text, [*catalog.names(), *files], n=3, cutoff=0.7)
    if near:
        return f"did you mean {' or '.join(near)}?"
    return "`allocbench list workloads` shows the workloads"


def load_lifetimes(source: str, model: str | None = None) -> tuple[Lifetimes, bool]:
    """The blocks of a workload, a trace file or a CSV of lifetimes, and whether it is the last.

    Raises as `load` does.
    """
    if catalog.knows(source) or program.is_program(source) or model is not None:
        return lifetimes(load(source, model)), False
    path, options = _file_and_options(source)
    return read_blocks(path, **options)


def load_all(workloads: Sequence[str], model: str | None = None) -> dict[str, Trace]:
    """The traces by the names that rows are to have, in order; raises as `load` does.

    A trace is named by its provenance, else by its file; where two names are equal, by the
    argument as it was written. Raises UsageError when one argument is given twice.
    """
    if len(set(workloads)) < len(workloads):
        twice = next(name for name in workloads if workloads.count(name) > 1)
        raise UsageError(f"{twice}: given twice")
    traces = [load(workload, model) for workload in workloads]
    names = [
        one_line(trace.name or Path(workload).stem)
        for workload, trace in zip(workloads, traces, strict=True)
    ]
    written = [one_line(workload) for workload in workloads]
    return {
        own if names.count(own) == 1 and own not in written else argument: trace
        for own, argument, trace in zip(names, written, traces, strict=True)
    }


def allocator_specs(text: str, device: str | None = None) -> list[str]:
    """The specs of a comma-separated list, or of all strategies for "all".

    device: where all of them have to work; None: those that do not are wanted too.

    Whether they can be made is for `check_specs`. Raises UsageError when one is there twice.
    """
    if text != ALL:
        specs = spec.split(text)
    elif device is None:
        specs = [info.name for info in allocators.strategies()]
    else:
        with errors_naming(f"--device {device}"):
            specs = allocators.names(allocators.make_device(device))
    for one in specs:
        if specs.count(one) > 1:
            raise UsageError(f"--allocators: '{one}' is given twice")
    return specs


def device_specs(text: str) -> list[str]:
    """The specs of a comma-separated list of devices; an item `option=value` belongs to the last.

    Raises UsageError for a device that cannot be made, and when one is there twice.
    """
    specs = spec.split(text)
    for one in specs:
        if specs.count(one) > 1:
            raise UsageError(f"--devices: '{one}' is given twice")
        with errors_naming("--devices"):
            check_device(one)
    return specs


def check_specs(option: str, specs: Sequence[str], device: str) -> None:
    """Raise UsageError, naming the option, for a device or an allocator that cannot be made."""
    with errors_naming(f"--device {device}"):
        check_device(device)
    with errors_naming(option):
        experiment.check(specs, device)


def check_device(device: str) -> None:
    """Raise UsageError for a device that no program could run on."""
    capacity = allocators.make_device(device).capacity
    if capacity < SMALLEST_DEVICE:
        raise UsageError(
            f"--device {device}: a capacity of {human_bytes(capacity)} is too small: a device has "
            f"at least {human_bytes(SMALLEST_DEVICE)}"
        )


def check_largest_request(traces: Mapping[str, Trace], device: str) -> None:
    """Raise UsageError when one request alone is larger than the device.

    No allocator can serve such a trace, so there is nothing to compare. A capacity below its max
    load, but above each request, is an experiment: the requests that fail are counted.
    """
    capacity = allocators.make_device(device).capacity
    for workload, trace in traces.items():
        largest = int(trace.size.max())
        if largest > capacity:
            event = int(np.argmax(trace.size))
            raise UsageError(
                f"--device {device}: a capacity of {human_bytes(capacity)} is too small for "
                f"{workload}: event {event} (from 0) asks for {human_bytes(largest)}"
            )


def pin(cpu: int | None) -> None:
    """Keep this process on one processor; raises UsageError when it may not run there."""
    if cpu is None:
        return
    try:
        os.sched_setaffinity(0, {cpu})
    except (AttributeError, OSError, ValueError) as error:
        raise UsageError(f"--pin {cpu}: this process cannot be kept on that processor") from error
