# SPDX-License-Identifier: Apache-2.0
"""Shared by the suites: allocators, workloads, and one process per pair of them.

A cell is the result for one combination of parameters: a result row, or the reason why there is
none. Rows come from the command line of the installed commit, the only interface that all commits
have, so each metric is as defined by that commit.
"""

import itertools
import json
import math
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

ALLOCATORS = (
    "arena",
    "bfc",
    "buddy",
    "bump",
    "caching",
    "cupy_pool",
    "expandable",
    "free_lists",
    "ggml_pool",
    "mlx_cache",
    "naive",
    "planned",
    "rmm_arena",
    "rmm_pool",
    "slab",
    "tlsf",
    "xla_vmm",
)
FAST_WORKLOADS = ("gpt2-train", "llm-decode", "random:allocs=3000")
WORKLOADS = (
    "llama3-8b-lora",
    "serve-chat",
    "serve-paged",
    "sawtooth",
    "ping-pong",
    "robson",
)
DEVICE = "sim:80GiB"
_DIGITS = 9  # of a ratio: more would differ between compilers

Cell = dict[str, Any] | str
Params = Sequence[Sequence[Any]]


class Failed(str):
    """The last line of a process that failed."""


def command(*arguments: str) -> Cell:
    """The first object in the JSON output of an installed allocbench command.

    If the command refuses with one error line, for an unknown name for example, returns that line
    as the reason; any other failure returns a Failed.
    """
    line = [sys.executable, "-P", "-m", "allocbench", *arguments, "--json", "-"]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        output = json.loads(done.stdout)
        row: dict[str, Any] = output[0] if isinstance(output, list) else output
        return row
    last = (done.stderr.strip().splitlines() or ["no message"])[-1]
    if done.returncode == 2 and "Traceback" not in done.stderr:
        return last.removeprefix("error: ")
    return Failed(f"exit code {done.returncode}: {last}")


def replay(allocator: str, workload: str, *options: str, device: str = DEVICE) -> Cell:
    """The result row of one allocator on one workload, replayed in its own process."""
    return command("replay", workload, "--allocator", allocator, "--device", device, *options)


@contextmanager
def not_there() -> Iterator[None]:
    """Turn a refused name or option, or a missing package, into n/a with the reason."""
    try:
        yield
    except (ValueError, ImportError) as error:
        raise NotImplementedError(str(error)) from error


class Suite:
    """Benchmarks that are the columns of one row for each combination of `params`.

    A suite defines `params` and `param_names`, measures one combination in `cell`, and has its own
    `setup_cache` that calls `cells`, because asv identifies caches by their source location.
    """

    params: Params = ()
    parallel = False

    def cell(self, *combination: Any) -> Cell:
        """Measure one combination."""
        raise NotImplementedError

    def cells(self) -> dict[tuple[Any, ...], Cell]:
        """Measure every combination once, in parallel if no time is measured."""
        combinations = list(itertools.product(*self.params))
        with ThreadPoolExecutor(os.cpu_count() if self.parallel else 1) as pool:
            measured = pool.map(lambda combination: self.cell(*combination), combinations)
            return dict(zip(combinations, measured, strict=True))

    def setup(self, cells: dict[tuple[Any, ...], Cell], *combination: Any) -> None:
        """Get the row of a combination; raises NotImplementedError (n/a) with the reason."""
        result = cells[combination]
        if isinstance(result, Failed):
            raise RuntimeError(result)
        if isinstance(result, str):
            raise NotImplementedError(result)
        self.row = result


_VERSIONS = {"seconds_per_event_steady": "2"}
"""The versions of columns whose meaning has changed; others have 1."""


def tracks(**units: str) -> Callable[[type[Suite]], type[Suite]]:
    """Give a suite a `track_` benchmark for each column, with its unit; lower is better.

    Raise a version in `_VERSIONS` by hand when a column comes to measure something else.
    """

    def add(suite: type[Suite]) -> type[Suite]:
        for column, unit in units.items():
            setattr(suite, f"track_{column}", _track(column, unit))
        return suite

    return add


def _track(column: str, unit: str) -> Callable[..., float]:
    def track(suite: Suite, cells: object, *combination: Any) -> float:
        if column not in suite.row:
            raise NotImplementedError(f"this commit has no {column}")
        value = suite.row[column]
        if value is None:
            return math.nan
        return round(value, _DIGITS) if unit == "ratio" else value  # type: ignore[no-any-return]

    track.__name__ = f"track_{column}"
    track.unit = unit  # type: ignore[attr-defined]
    track.version = _VERSIONS.get(column, "1")  # type: ignore[attr-defined]
    track.pretty_source = f"the column {column} of `allocbench --json`"  # type: ignore[attr-defined]
    return track
