# SPDX-License-Identifier: Apache-2.0
"""The traces of workloads: bundled ones, generators, files, and programs that are run."""

import os
import re
from collections.abc import Callable, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import TypeVar

from allocbench.base.spec import SpecSyntaxError, parse
from allocbench.base.text import one_line, printable
from allocbench.errors import UsageError
from allocbench.programs import is_program
from allocbench.workloads import (
    AnyTrace,
    Lifetimes,
    OperatorGraph,
    Trace,
    catalog,
    lifetimes,
    read,
    read_large,
    read_plannable,
)
from allocbench.workloads.xla_buffers import BufferAssignment

AnyOrWhole = TypeVar("AnyOrWhole", Trace, AnyTrace)
STANDARD_INPUT = "-"
_OPTIONS = re.compile(r"(?<=.):(?=\w+=)")


def load(workload: str, model: str | None = None) -> Trace:
    """The trace of a workload or a file (`name` or `name:option=value,...`), or of a program.

    model: the model for a log of requests or a serving workload; the spec takes precedence.

    Raises UsageError if the text names neither a workload nor a file, TraceError if a file contains
    no trace, and the errors of `programs.program.load`.
    """
    return _load(workload, model, read)


def load_large(workload: str, model: str | None = None) -> dict[str, AnyTrace]:
    """The trace of a workload by its name, as `load_all` gives them.

    A large file that can be read part by part stays where it is. Raises as `load` does.
    """
    trace = _load(workload, model, read_large)
    return {own_name(workload, trace): trace}


def _load(
    workload: str, model: str | None, reader: Callable[..., AnyOrWhole]
) -> AnyOrWhole | Trace:
    if is_program(workload):
        from allocbench.programs import program  # imported late: it needs much

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
    refuse_program(file)
    if file != STANDARD_INPUT and not os.path.exists(file):
        raise UsageError(f"{file}: neither a file nor a workload; {_nearest(file)}")
    return file, options


def refuse_program(file: str | Path) -> None:
    """Raise UsageError for a program of Python where a trace is expected."""
    if Path(file).suffix == ".py":
        raise UsageError(f"{file}: is a program, not a trace; to run it, write -- python {file}")


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


def load_plannable(
    source: str, model: str | None = None
) -> OperatorGraph | BufferAssignment | tuple[Lifetimes, bool]:
    """A model's graph; XLA's buffers; or the blocks of a workload or a file, and whether it was a
    CSV of them.

    Raises as `load` does.
    """
    if catalog.knows(source) or is_program(source) or model is not None:
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
    written = [printable(" ".join(workload.split())) for workload in workloads]  # not cut: unique
    return {
        own if names.count(own) == 1 and own not in written else argument: trace
        for own, argument, trace in zip(names, written, traces, strict=True)
    }


def own_name(workload: str, trace: AnyTrace) -> str:
    """The name of a trace from its provenance, or else from its file."""
    return one_line(trace.name or Path(workload).stem)
