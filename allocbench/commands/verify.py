# SPDX-License-Identifier: Apache-2.0
"""allocbench verify: compare `caching` with recordings of PyTorch on real GPUs."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table
from rich.text import Text

from allocbench.base import units
from allocbench.base.spec import parse
from allocbench.commands import options
from allocbench.errors import UsageError
from allocbench.output.files import STDOUT, check_outputs, write_json, write_text
from allocbench.output.terminal import console, fitting, left_out, plain_table

if TYPE_CHECKING:
    from allocbench.verification.verify import Verdict

EXAMPLES = (
    "allocbench verify snapshot.pickle",
    "allocbench verify snapshot.pickle --allocator caching:version=2.13",
    "allocbench verify snapshot.pickle --json -",
    "allocbench verify recordings/ --markdown -",
)
_COLUMNS = (
    "recording",
    "verdict",
    "rules",
    "allocs",
    "reserved equal",
    "address equal",
    "segment calls",
    "peak recorded",
    "peak predicted",
)
_SPARE = ("segment calls", "peak predicted", "peak recorded", "rules", "reserved equal")
"""Columns that a narrow terminal does without, the first of them first."""
_WIDEST = 10_000  # characters
_EXTENSIONS = (".pickle", ".pkl", ".pickle.gz", ".pkl.gz", ".json", ".json.gz")


def run(
    recordings: Annotated[list[Path], typer.Argument(metavar="RECORDING...")],
    allocator: Annotated[str, typer.Option(metavar="SPEC")] = "caching",
    capacity: Annotated[
        int | None, options.bytes_option("Capacity of the GPU, if it was not recorded.")
    ] = None,
    gpu: Annotated[str | None, typer.Option(metavar="N")] = None,
    json: Annotated[str | None, options.json_option("the verdicts")] = None,
    markdown: Annotated[str | None, options.markdown_option("a table")] = None,
) -> None:
    """Verify `caching` against recordings of real GPUs.

    The command replays a recording from its initial segments and blocks, with its own settings, on
    a device that returns the recorded addresses. It compares reserved bytes after each alloc, the
    address of each alloc, and the device calls. If the version of PyTorch is not given, it applies
    the rules of the version that agrees best.

    Exit codes: 0 everything is equal, 1 something differs, 2 the recording cannot be compared.

    Options:
        recordings: Memory snapshots, profiler traces, or folders of them.
        allocator: `caching` with a version, or settings to use instead of those recorded.
        gpu: The number of one GPU; default: all that have events.
    """
    from allocbench.verification.verify import verify_all  # imported late: --help stays fast

    if parse(allocator).name != "caching":
        raise UsageError(f"--allocator {allocator}: only caching can be compared with PyTorch")
    check_outputs(json, markdown)
    chosen = {} if gpu is None else {"device": gpu}
    paths, is_table = _files(recordings)
    verdicts = [
        verdict for path in paths for verdict in verify_all(path, allocator, capacity, **chosen)
    ]
    rows = [verdict.row() for verdict in verdicts]
    is_table = is_table or len(verdicts) > 1
    if json:
        write_json(rows if is_table else rows[0], json)
    if markdown:
        write_text(_markdown(verdicts) + "\n", markdown)
    if STDOUT not in (json, markdown):
        if is_table:
            _print_table(verdicts)
        else:
            _print_one(verdicts[0])
    raise typer.Exit(max(verdict.exit_code for verdict in verdicts))


def _files(given: Sequence[Path]) -> tuple[list[Path], bool]:
    """The recordings, and whether several can be given. In a folder, names decide."""
    from allocbench.inputs.traces import refuse_program

    files: list[Path] = []
    for path in given:
        if path.is_dir():
            inside = sorted(
                file
                for file in path.iterdir()
                if file.is_file() and file.name.endswith(_EXTENSIONS)
            )
            if not inside:
                raise UsageError(
                    f"{path}: holds no recording, a file that ends in {', '.join(_EXTENSIONS)}"
                )
            files += inside
        else:
            refuse_program(path)
            files.append(path)
    return files, len(files) > 1 or any(path.is_dir() for path in given)


def _cells(verdict: Verdict) -> list[str]:
    name, agreement = verdict.name, verdict.agreement
    if agreement is None:
        return [name, "cannot tell", *["n/a"] * (len(_COLUMNS) - 2)]
    calls = "n/a"
    if agreement.segment_calls is not None:
        calls = f"{agreement.segment_calls_equal:,} of {agreement.segment_calls:,}"
        if agreement.segment_calls_predicted != agreement.segment_calls:
            calls += f" ({agreement.segment_calls_predicted:,} predicted)"
    return [
        name,
        "different" if verdict.exit_code else "equal",
        verdict.version,
        f"{agreement.allocs:,}",
        f"{agreement.reserved_equal:,}",
        f"{agreement.placed_equal:,}",
        calls,
        units.size(agreement.peak_reserved_recorded),
        units.size(agreement.peak_reserved_predicted),
    ]


def _notes(verdict: Verdict) -> list[str]:
    """Remarks below the numbers of one recording."""
    if verdict.agreement is None:
        return [f"cannot tell: {verdict.unknown}"]
    notes = []
    if not verdict.told:
        notes.append(
            f"the rules of PyTorch {verdict.version} agree best; the file contains no version"
        )
    if verdict.settings:
        settings = ",".join(f"{name}={value}" for name, value in verdict.settings.items())
        notes.append(f"settings in the recording: {settings}")
    if not verdict.settings_recorded:
        notes.append(
            "the recording does not contain the allocator settings; if the program set any, give "
            "--allocator caching:conf=SETTINGS"
        )
    for count, what in ((verdict.frees_missing, "frees"), (verdict.allocs_missing, "allocs")):
        if count:
            notes.append(f"the recording contradicts itself: it lacks {count:,} {what}")
    if verdict.difference:
        notes.append(f"first difference: {verdict.difference}")
    return notes


def _print_one(verdict: Verdict) -> None:
    out = console()
    if verdict.agreement is None:
        (unknown,) = _notes(verdict)
        out.print(f"{verdict.file}: {unknown}", markup=False, highlight=False, soft_wrap=True)
        return
    out.print(f"{verdict.file}: {_cells(verdict)[1]}", markup=False, highlight=False)
    table = plain_table("", "", "", right=())
    for name, cell in list(zip(_COLUMNS, _cells(verdict), strict=True))[2:]:
        table.add_row(name, cell)
    out.print(table)
    for note in _notes(verdict):
        out.print(note, markup=False, highlight=False, soft_wrap=True)


def _print_table(verdicts: Sequence[Verdict]) -> None:
    out = console()
    options = out.options.update(max_width=_WIDEST)
    table, hidden = fitting(
        partial(_table, verdicts),
        lambda table: out.measure(table, options=options).maximum <= out.width,
        _SPARE,
    )
    out.print(table)
    if hidden:
        out.print(left_out(hidden, "--json, --markdown"))
    for verdict in verdicts:
        if verdict.difference or verdict.agreement is None:
            note = f"{verdict.name}: {_notes(verdict)[-1]}"
            out.print(note, markup=False, highlight=False, soft_wrap=True)


def _table(verdicts: Sequence[Verdict], hidden: Sequence[str]) -> Table:
    """A table of all columns but the hidden ones; headings of several words take several lines."""
    names = [name for name in _COLUMNS if name not in hidden]
    numbers = [name.replace(" ", "\n") for name in names if name in _COLUMNS[3:]]
    table = plain_table("", *names[: -len(numbers)], *numbers, right=numbers)
    for verdict in verdicts:
        cells = dict(zip(_COLUMNS, _cells(verdict), strict=True))
        table.add_row(*(Text(cells[name]) for name in names))
    return table


def _markdown(verdicts: Sequence[Verdict]) -> str:
    rows = [_COLUMNS, ["---"] * 3 + ["--:"] * (len(_COLUMNS) - 3), *map(_cells, verdicts)]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)
