# SPDX-License-Identifier: Apache-2.0
"""allocbench sweep: run many workloads, allocators and devices, on all cores."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from itertools import chain
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from allocbench.commands import options
from allocbench.errors import UsageError
from allocbench.inputs import ALL, DEVICE
from allocbench.output.files import STDOUT, check_outputs
from allocbench.output.stdout import tell_notes
from allocbench.output.terminal import console, progress_bar, say
from allocbench.reports.rows import results

if TYPE_CHECKING:
    import pandas as pd

    from allocbench.reports.rows.bundle import Key
    from allocbench.workloads import Trace

EXAMPLES = (
    "allocbench sweep gpt2-train llm-decode --device sim:24GiB,sim:80GiB -o sweep.jsonl",
    "allocbench sweep trace.csv --allocators bfc,bfc:allow_growth=false,naive --json rows.json",
)


def run(
    workloads: options.Workloads,
    allocators: options.Allocators = ALL,
    device: options.Devices = None,
    model: options.Model = None,
    time: options.Passes = 0,
    min_capacity: options.Capacity = True,
    workers: Annotated[int, typer.Option(metavar="N", min=0)] = 0,
    retry: Annotated[bool, typer.Option("--retry")] = False,
    output: Annotated[
        str,
        options.output_option(
            "JSON lines file to which results are added; existing results are skipped."
        ),
    ] = "sweep.jsonl",
    json: options.Json = None,
) -> None:
    """Run every workload through every allocator on every device, in many processes.

    At the end, the results are shown as `compare` shows them. `report` makes a report of the file.
    A sweep that was interrupted or killed can be started again: finished runs are not repeated if
    trace, spec, device and code are the same and they measured no less. A run that fails or crashes
    becomes a row with its error. Host times (--time) are measured while other runs keep the machine
    busy.

    Options:
        workers: Number of processes; 0: one per processor.
        retry: Repeat runs that ended with an error.
    """
    from allocbench.commands.comparison import show
    from allocbench.inputs.devices import device_specs
    from allocbench.inputs.question import (
        allocator_specs,
        check_specs,
        failed_on,
        notes_on_device,
        notes_on_recordings,
    )
    from allocbench.inputs.traces import load_all
    from allocbench.replays.experiment import Effort
    from allocbench.replays.runner import can_be_made

    places = device_specs(device) if device else [DEVICE]
    works = [allocator_specs(allocators, place) for place in places]
    specs = list(dict.fromkeys(chain.from_iterable(works)))
    for spec in specs:
        if not any(can_be_made(spec, device) for device in places):
            check_specs("--allocators", [spec], places[0])
    if output == STDOUT:
        raise UsageError("--output -: results are added to a file; --json - prints rows")
    check_outputs(output, json)
    sweeping = options.imported("sweeps.sweep")
    traces = load_all(workloads, model)
    if not device and (chosen := failed_on(DEVICE, traces)) != DEVICE:
        places = [chosen]
        tell_notes(notes_on_device(chosen))
    tell_notes(notes_on_recordings(traces, specs, places[0]))
    with _Progress() as progress:
        swept = sweeping.sweep(
            traces,
            specs,
            places,
            output,
            Effort(time, min_capacity),
            workers=workers,
            retry=retry,
            total=progress.total,
            done=progress.done,
        )
    if json:
        results.write(swept.drop(columns=["trace", "code", "error"]), json)
    if json == STDOUT:
        return
    rows = _requested(swept, traces, specs, places)
    if not rows.empty:
        show(rows, options.reference_of(None, specs))
    _tell(swept, progress.runs, output)


class _Progress(ExitStack):
    """A progress bar that begins when the number of runs is known. runs: that number."""

    runs = 0

    def total(self, runs: int) -> None:
        self.runs = runs
        self._show = self.enter_context(progress_bar(runs + 1))
        self._show(f"{runs:,} runs")

    def done(self, key: Key) -> None:
        self._show(f"{key.workload} {key.allocator} {key.device}")


def _tell(swept: pd.DataFrame, added: int, path: str) -> None:
    out = console()
    earlier = max(0, len(swept) - added)
    say([f"{path}: {len(swept):,} rows, {earlier:,} of them from earlier sweeps"])
    say([f"allocbench report {shlex.quote(path)} makes a report of these rows"])
    for row in swept[swept["error"].notna()].to_dict("records"):
        name = f"{row['workload']} {row['allocator']} {row['device']}"
        out.print(Text(f"error: {name}: {row['error']}"), soft_wrap=True)


def _requested(
    swept: pd.DataFrame, traces: Mapping[str, Trace], specs: Sequence[str], devices: Sequence[str]
) -> pd.DataFrame:
    """The checked rows of these runs by this code, in the order of the command line."""
    import pandas as pd

    from allocbench.sweeps.file import code_version, fingerprint

    names = {fingerprint(trace): name for name, trace in traces.items()}
    orders = {"trace": list(names), "device": list(devices), "allocator": list(specs)}
    rows = swept[swept["code"] == code_version()]
    for column, order in orders.items():
        rows = rows[rows[column].isin(order)]
    places = {column: rows[column].map(order.index) for column, order in orders.items()}
    rows = rows.assign(workload=rows["trace"].map(names))
    rows = rows.loc[pd.DataFrame(places).sort_values(list(orders)).index]
    return results.frame(rows.drop(columns=["trace", "code", "error"]))
