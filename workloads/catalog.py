# SPDX-License-Identifier: Apache-2.0
"""The workloads by name: bundled traces of PyTorch programs, and generators.

`make traces` makes the bundled traces again, byte for byte, on a null GPU. A generator takes
options: `random:allocs=1000,seed=7`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from allocbench.base.spec import SpecSyntaxError, name_of, parse
from allocbench.workloads.generator import Generator, Value
from allocbench.workloads.serving import GENERATORS as SERVING
from allocbench.workloads.synthetic import GENERATORS as SYNTHETIC
from allocbench.workloads.vocabulary import TraceError

if TYPE_CHECKING:
    from allocbench.workloads.trace import Trace

DATA = Path(__file__).parent / "data"
SIZES = DATA / "sizes.json"
"""The sizes of all workloads, written by `make traces`."""


_DATE = "2026-11-22"
"""When the bundled traces were made."""
_PROGRAMS = "benchmarks.workshop.models"
"""The package of their programs, which the repository has, and the wheel has not."""


@dataclass(frozen=True)
class Workload:
    """A bundled workload: the module of its program, and the date of its trace.

    purpose: "training" or "inference".
    """

    name: str
    purpose: str
    module: str
    summary: str
    date: str = _DATE
    kind: str = "captured"

    @property
    def source(self) -> str:
        """Where the trace comes from."""
        return self.module

    @property
    def path(self) -> Path:
        """The bundled file."""
        return DATA / f"{self.name}.parquet"


_WORKLOADS = {
    name: Workload(name, row["purpose"], f"{_PROGRAMS}.{row['module']}", row["summary"])
    for name, row in json.loads((DATA / "workloads.json").read_text("utf-8")).items()
}
_GENERATORS = {generator.name: generator for generator in (*SERVING, *SYNTHETIC)}


def names() -> list[str]:
    """Names of all workloads: the captured ones sorted, then the generators."""
    return [*captured(), *_GENERATORS]


def captured() -> list[str]:
    """Names of the bundled workloads, sorted."""
    return sorted(_WORKLOADS)


def generators() -> list[Generator]:
    """The workloads that are generated on demand."""
    return list(_GENERATORS.values())


def knows(spec: str) -> bool:
    """Whether a spec, `name` or `name:option=value,...`, names a workload."""
    return name_of(spec) in names()


def info(name: str) -> Workload | Generator:
    """The workload with a name; raises TraceError, with the valid names, if there is none."""
    if name in _GENERATORS:
        return _GENERATORS[name]
    if name not in _WORKLOADS:
        raise TraceError(f"unknown workload '{name}'; workloads: {', '.join(names())}")
    return _WORKLOADS[name]


def load(spec: str, **options: Value) -> Trace:
    """The trace of a workload: `name`, or `name:option=value,option=value` for a generator.

    options: further options; those in the spec take precedence.

    Raises TraceError for an unknown name or option, and for an invalid value of an option.
    """
    try:
        parsed = parse(spec)
    except SpecSyntaxError as error:
        raise TraceError(str(error)) from error
    name, written = parsed.name, parsed.options
    workload = info(name)
    if parsed.inner:
        raise TraceError(f"{spec}: a workload cannot wrap anything; of= is an option of allocators")
    if isinstance(workload, Generator):
        try:
            return workload.trace(options | written)
        except TraceError as error:
            raise TraceError(f"{name}: {error}") from error
    if options or written:
        raise TraceError(f"{spec}: {name} is a bundled trace and has no options")
    from allocbench.workloads.files import read

    return read(workload.path)


@dataclass(frozen=True)
class Size:
    """How long a trace is, and its max load in bytes."""

    events: int
    max_load: int


def sizes() -> dict[str, Size]:
    """The size of every workload in its default options, for which no trace is read."""
    return {name: Size(**size) for name, size in json.loads(SIZES.read_text("utf-8")).items()}


def bundled(name: str) -> Workload:
    """The bundled workload with a name; raises TraceError with the valid names."""
    if name not in _WORKLOADS:
        raise TraceError(f"unknown workload '{name}'; bundled workloads: {', '.join(captured())}")
    return _WORKLOADS[name]
