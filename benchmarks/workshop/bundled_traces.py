# SPDX-License-Identifier: Apache-2.0
"""Make the traces of the bundled programs: replace the files, or compare their bytes.

    python -m benchmarks.workshop.bundled_traces --python PATH [--check] [NAME...]

Each program runs on a null H100 without workspaces of cuDNN. PATH is a Python with a CUDA build of
PyTorch; it needs nothing else. The second runs of training programs are made, too.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from allocbench.errors import USER_ERRORS
from allocbench.null_gpu import launch
from allocbench.workloads import FREE, MARK, Trace, TraceError, catalog, write
from allocbench.workloads.coverage import WHOLE
from allocbench.workloads.recording import RecordError, record
from allocbench.workloads.trace import spans
from benchmarks.workshop import second_runs
from benchmarks.workshop.models.program import ModelProgram

ROOT = Path(__file__).parents[2]
DEVICE = "null:h100,convolution_workspace=0,graph_workspace=0"
"""The bundled traces are older than the formulas for workspaces of cuDNN."""
TORCH = "2.13.0"
"""The PyTorch that the bundled traces are made with."""
_OF_PYTORCH = ("Optimizer.step#", "Optimizer.zero_grad#")  # annotations that PyTorch adds


@dataclass(frozen=True)
class TraceFile:
    """A file, and the program that it is made with.

    name: of the trace. module, arguments: the command line, `python -m MODULE ARGUMENT...`.
    """

    path: Path
    name: str
    date: str
    program: ModelProgram[Any]
    module: str
    arguments: tuple[str, ...] = ()


def files(names: Sequence[str]) -> list[TraceFile]:
    """The files of some workloads, those of second runs last; raises TraceError."""
    from benchmarks.workshop.second_runs.__main__ import PROGRAMS

    workloads = [catalog.bundled(name) for name in names]
    return [
        *(
            TraceFile(one.path, one.name, one.date, import_module(one.module).PROGRAM, one.module)
            for one in workloads
        ),
        *(
            TraceFile(
                second_runs.path_of(one.name),
                f"{one.name}-again",
                one.date,
                PROGRAMS[one.name],
                second_runs.__name__,
                (one.name,),
            )
            for one in workloads
            if one.name in PROGRAMS
        ),
    ]


def trace_of(file: TraceFile, python: str, device: str = DEVICE, keep: Path | None = None) -> Trace:
    """The trace of a program on a null GPU, labeled with operators and without times.

    keep: a folder for PyTorch's own memory snapshot. Raises RecordError if the program fails or
    does not leave one recording, TraceError for another PyTorch, and as `launch.session` does.
    """
    command = [python, "-m", file.module, *file.arguments, "--device", "cuda"]
    with launch.session(device, launch.Limits()) as session:
        recorded = record(
            command,
            labels="operators",
            path=[str(ROOT)],
            machine=session.machine,
            keep=keep,
            stdout=subprocess.DEVNULL,
        )
    if recorded.code or len(recorded.traces) != 1:
        reason = next(iter(recorded.complaints), f"exit code {recorded.code}")
        raise RecordError(f"{file.name}: no recording: {reason}")
    trace = recorded.traces[""]
    torch = trace.provenance.torch.partition("+")[0]
    if torch != TORCH:
        raise TraceError(f"{python}: PyTorch {torch}; the bundled traces are made with {TORCH}")
    provenance = replace(
        trace.provenance,
        name=file.name,
        kind="captured",
        source=file.module,
        model=file.program.model,
        date=file.date,
        torch=torch,
        seed=file.program.seed,
        extra={
            "config": asdict(file.program.full),
            "features": trace.provenance.extra["features"],
        },
    )
    trace = with_labels_in_order(_ordered(_without_marks_of_pytorch(trace)))
    return replace(trace, provenance=provenance, coverage=WHOLE)  # it ran to its end


def _without_marks_of_pytorch(trace: Trace) -> Trace:
    """The trace without the marks that PyTorch adds, without times and lines."""
    foreign = [place for place, label in enumerate(trace.labels) if label.startswith(_OF_PYTORCH)]
    rest = (trace.op != MARK) | ~np.isin(trace.block, foreign)
    columns = {name: column[rest] for name, column in trace.columns().items()}
    return replace(trace, **columns | {"time_ns": None, "line": None, "stack": None}).relabeled({})


def _ordered(trace: Trace) -> Trace:
    """The same trace with block ids in order of allocation and consecutive frees in order of id.

    Some programs free several blocks at once in an order that differs from run to run: autocast
    drops its cached weights in the order of a hash table. The order of frees with no other event
    in between means nothing.
    """
    allocs, ends = spans(trace.op, trace.block)
    freed = ends < len(trace)
    block = trace.block.copy()
    block[allocs] = np.arange(len(allocs))
    block[ends[freed]] = np.flatnonzero(freed)
    frees = np.flatnonzero(trace.op == FREE)
    run = np.cumsum(trace.op != FREE)[frees]
    order = np.arange(len(trace))
    order[frees] = frees[np.lexsort((block[frees], run))]
    return replace(
        trace,
        block=block[order],
        stream=trace.stream[order],
        pool=None if trace.pool is None else trace.pool[order],
        **trace.named(lambda column: column[order]),
    )


def with_labels_in_order(trace: Trace) -> Trace:
    """The same trace with its labels in the order in which events name them.

    Labels of allocs come first, then marks, modules and kinds, so that the numbers of labels do not
    depend on how a recording was read.
    """
    marks = trace.op == MARK
    columns = trace.named(lambda column: column)
    uses = [columns.get("label", trace.block[:0]), trace.block[marks], *columns.values()]
    used, first = np.unique(np.concatenate(uses), return_index=True)
    order = used[np.argsort(first)]
    new = np.zeros(len(trace.labels), np.uint32)
    new[order] = np.arange(len(order))
    block = trace.block.copy()
    block[marks] = new[block[marks]]
    labels = tuple(trace.labels[place] for place in order.tolist())
    return replace(trace, block=block, labels=labels, **trace.named(lambda column: new[column]))


def different(traces: Sequence[tuple[TraceFile, Trace]]) -> list[str]:
    """The names of the traces that are stored in other bytes than the files have."""
    names = []
    with tempfile.TemporaryDirectory() as folder:
        for file, trace in traces:
            new = Path(folder) / file.path.name
            write(trace, new)
            if new.read_bytes() != file.path.read_bytes():
                names.append(file.name)
    return names


def replace_files(traces: Sequence[tuple[TraceFile, Trace]]) -> None:
    """Write the files, and the sizes of all workloads, which the catalog shows without reading."""
    for file, trace in traces:
        write(trace, file.path)
    loaded = {name: catalog.load(name) for name in catalog.names()}
    sizes = {
        name: {"events": len(trace), "max_load": trace.max_load} for name, trace in loaded.items()
    }
    catalog.SIZES.write_text(json.dumps(sizes, indent=1) + "\n", encoding="utf-8")


def markdown() -> str:
    """The bundled traces as a Markdown table, measured from the files."""
    lines = [
        "| workload | events | steps | max load (bytes) | file (bytes) |",
        "|---|--:|--:|--:|--:|",
    ]
    for name in catalog.captured():
        trace, size = catalog.load(name), catalog.bundled(name).path.stat().st_size
        cells = (name, f"{len(trace):,}", trace.steps, f"{trace.max_load:,}", f"{size:,}")
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(lines)


def main() -> int:
    """The command line. Returns the exit code: 0 equal or replaced, 1 different, 2 not possible."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.workshop.bundled_traces", description=__doc__
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="a workload; default: all")
    parser.add_argument(
        "--check", action="store_true", help="compare the bytes instead of replacing the files"
    )
    parser.add_argument(
        "--python", required=True, help="an interpreter that has a CUDA build of PyTorch"
    )
    arguments = parser.parse_args()
    try:
        chosen = files(arguments.names or catalog.captured())
        with ThreadPoolExecutor(max_workers=2) as pool:
            made = pool.map(partial(trace_of, python=arguments.python), chosen)
            traces = [*zip(chosen, made, strict=True)]
    except USER_ERRORS as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    if arguments.check and (names := different(traces)):
        for name in names:
            print(f"error: {name}: the new trace differs from the file", file=sys.stderr)
        return 1
    if not arguments.check:
        replace_files(traces)
    print(markdown())
    return 0


if __name__ == "__main__":
    sys.exit(main())
