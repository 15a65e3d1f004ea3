# SPDX-License-Identifier: Apache-2.0
"""Turn arguments of the command line into traces and specs, and check them."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import TypeVar

import numpy as np
import typer

from allocbench import allocators
from allocbench.allocators import human_bytes, spec
from allocbench.arguments.options import ALL
from allocbench.base.spec import SpecSyntaxError, parse
from allocbench.base.text import one_line
from allocbench.errors import UsageError, errors_naming
from allocbench.programs import program
from allocbench.replays import experiment, recorded
from allocbench.workloads import (
    AnyTrace,
    Lifetimes,
    OperatorGraph,
    StreamedTrace,
    Trace,
    catalog,
    lifetimes,
    read,
    read_large,
    read_plannable,
)

STANDARD_INPUT = "-"
_OPTIONS = re.compile(r"(?<=.):(?=\w+=)")
SMALLEST_DEVICE = 64 << 10  # bytes


def load(workload: str, model: str | None = None) -> Trace:
    """The trace of a workload or a file (`name` or `name:option=value,...`), or of a program.

    model: the model for a log of requests or a serving workload; the spec takes precedence.

    Raises UsageError if the text names neither a workload nor a file, TraceError if a file contains
    no trace, and the errors of `programs.program.load`.
    """
    return _load(workload, model, read)


def load_large(workload: str, model: str | None = None) -> tuple[str, AnyTrace]:
    """The name and the trace of a workload, as `load_all` gives them.

    A large file that can be read part by part stays where it is. Raises as `load` does.
    """
    trace = _load(workload, model, read_large)
    return own_name(workload, trace), trace


_Read = TypeVar("_Read", Trace, AnyTrace)


def _load(workload: str, model: str | None, reader: Callable[..., _Read]) -> _Read | Trace:
    if program.is_program(workload):
        return program.load(program.of_text(workload))
    more = {} if model is None else {"model": model}
    if catalog.knows(workload):
        return catalog.load(workload, **more)
    path, options = _file_and_options(workload)
    return reader(path, **more | options)


def _file_and_options(text: str) -> tuple[str, dict[str, str]]:
    """A path and its options (`path:option=value,...`), unless the text is the name of a file.

    Raises UsageError, with the most similar names, if there is no such file, and if what follows
    the path are no options.
    """
    file, options = text, dict[str, str]()
    begin = _OPTIONS.search(text)
    if begin and not os.path.exists(text):
        file = text[: begin.start()]
        try:
            options = parse(f"file{text[begin.start() :]}").options
        except SpecSyntaxError as error:
            raise UsageError(f"{text}: {error}") from None
    if Path(file).suffix == ".py":
        raise UsageError(f"{file}: is a program, not a trace; to run it, write -- python {file}")
    if file != STANDARD_INPUT and not os.path.exists(file):
        raise UsageError(f"{file}: neither a file nor a workload; {_nearest(file)}")
    return file, options


def _nearest(text: str) -> str:
    """A sentence with the names of workloads and files that are most similar to a text."""
    path = Path(text)
    folder = path.parent
    try:
        files = [str(folder / file.name) for file in folder.iterdir() if file.is_file()]
    except OSError:
        return f"there is no folder {folder}"
    names = catalog.names()
    near = get_close_matches(text, [*names, *files], n=3, cutoff=0.7)
    near = near or [name for name in names if name.startswith(text)][:3]
    if near:
        return f"did you mean {' or '.join(near)}?"
    return "`allocbench list workloads` shows the workloads"


def load_plannable(source: str, model: str | None = None) -> OperatorGraph | tuple[Lifetimes, bool]:
    """A model's graph; or the blocks of a workload or a file, and whether it was a CSV of them.

    Raises as `load` does.
    """
    if catalog.knows(source) or program.is_program(source) or model is not None:
        return lifetimes(load(source, model)), False
    path, options = _file_and_options(source)
    return read_plannable(path, **options)


def load_all(workloads: Sequence[str], model: str | None = None) -> dict[str, Trace]:
    """The traces by name, in order; raises as `load` does.

    The name of a trace comes from its provenance, or else from its file. If two names are equal,
    the argument is the name. Raises UsageError if an argument is given twice.
    """
    if len(set(workloads)) < len(workloads):
        twice = next(name for name in workloads if workloads.count(name) > 1)
        raise UsageError(f"{twice}: given twice")
    traces = [load(workload, model) for workload in workloads]
    names = [own_name(workload, trace) for workload, trace in zip(workloads, traces, strict=True)]
    written = [one_line(workload) for workload in workloads]
    return {
        own if names.count(own) == 1 and own not in written else argument: trace
        for own, argument, trace in zip(names, written, traces, strict=True)
    }


def own_name(workload: str, trace: AnyTrace) -> str:
    """The name of a trace from its provenance, or else from its file."""
    return one_line(trace.name or Path(workload).stem)


def allocator_specs(text: str, device: str | None = None) -> list[str]:
    """The specs of a comma-separated list, or of all strategies for "all".

    device: for "all", only strategies that work on it are returned; None returns all.

    `check_specs` checks whether they can be made. Raises UsageError if a spec is given twice.
    """
    if text != ALL:
        specs = spec.split(text)
    elif device is None:
        specs = [info.name for info in allocators.strategies()]
    else:
        with errors_naming(f"--device {device}"):
            specs = allocators.names(allocators.make_device(device))
    for listed in specs:
        if specs.count(listed) > 1:
            raise UsageError(f"--allocators: '{listed}' is given twice")
    return specs


def device_specs(text: str) -> list[str]:
    """The specs of a comma-separated list of devices; an item `option=value` belongs to the last.

    Raises UsageError for a device that cannot be made, or that is given twice.
    """
    specs = spec.split(text)
    for device in specs:
        if specs.count(device) > 1:
            raise UsageError(f"--devices: '{device}' is given twice")
        with errors_naming("--devices"):
            check_device(device)
    return specs


def check_specs(option: str, specs: Sequence[str], device: str) -> None:
    """Raise UsageError, naming the option, for a device or an allocator that cannot be made."""
    with errors_naming(f"--device {device}"):
        check_device(device)
    with errors_naming(option):
        experiment.check(specs, device)


def check_device(device: str) -> None:
    """Raise UsageError for a device that is too small for any program."""
    capacity = allocators.make_device(device).capacity
    if capacity < SMALLEST_DEVICE:
        raise UsageError(
            f"--device {device}: a capacity of {human_bytes(capacity)} is too small: a device has "
            f"at least {human_bytes(SMALLEST_DEVICE)}"
        )


def check_largest_request(traces: Mapping[str, Trace], device: str) -> None:
    """Raise UsageError if a single request is larger than the device.

    No allocator can serve such a trace, so there is nothing to compare. A capacity below the max
    load but above every request is allowed: failed requests are counted.
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


def tell_recorded(traces: Mapping[str, AnyTrace], specs: Sequence[str], device: str) -> None:
    """Say on standard error what recordings decide about allocators: settings, first segments."""
    for name, trace in traces.items():
        for line in recorded.told(name, trace, specs, device):
            typer.echo(f"note: {line}", err=True)


def tell_streamed(name: str, trace: AnyTrace) -> None:
    """Say on standard error that a trace is read again for each replay."""
    if isinstance(trace, StreamedTrace):
        typer.echo(
            f"note: {name}: {len(trace):,} events are not kept in memory; the file is read again "
            "for each replay. --time 0 and --no-min-capacity need fewer of them",
            err=True,
        )


def free_of(device: str) -> tuple[int, int] | None:
    """The free and all bytes of the memory of a real GPU; None for a simulated device."""
    opened = allocators.make_device(device)
    if not isinstance(opened, allocators.CudaDevice):
        return None
    with opened:
        return opened.free_bytes, opened.total


def tell_free(failures: int, device: str, free: tuple[int, int] | None) -> None:
    """If requests failed, say on standard error how much of a real GPU was free before.

    free: what `free_of` returned before the replays.
    """
    if failures and free is not None:
        at_start, total = map(human_bytes, free)
        typer.echo(
            f"note: requests failed; when the replays began, {at_start} of the {total} of {device} "
            "were free",
            err=True,
        )


def pin(cpu: int | None) -> None:
    """Keep this process on one processor; raises UsageError if it may not run there."""
    if cpu is None:
        return
    try:
        os.sched_setaffinity(0, {cpu})
    except (AttributeError, OSError, ValueError) as error:
        raise UsageError(f"--pin {cpu}: this process cannot be pinned to that processor") from error
