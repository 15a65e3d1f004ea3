# SPDX-License-Identifier: Apache-2.0
"""Tables, drawings and files of any command, against models that look at each letter and byte."""

import errno
import io
import json
import os
import sys
from collections.abc import Callable, Sequence
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from allocbench.errors import UsageError
from allocbench.output import files, stdout, terminal
from allocbench.output.text_drawings import FREE as IDLE
from allocbench.output.text_drawings import FULL, PARTLY, PIN, picture, plot
from allocbench.workloads import ALLOC, FREE, MARK, TraceError, read
from allocbench.workloads.coverage import Coverage
from tests.traces import make

KIB = 1 << 10


@given(
    st.lists(st.tuples(st.integers(1, 9), st.integers(0, 90)), min_size=1, max_size=30),
    st.integers(1, 20),
    st.integers(1, 4),
)
def test_a_plot_is_as_high_as_the_largest_value_of_each_column(
    points: list[tuple[int, int]], width: int, height: int
) -> None:
    x = np.cumsum([step for step, _ in points])
    y = np.array([value for _, value in points])
    columns: list[int] = []
    for n in range(width):
        inside = [
            value
            for at, value in zip(x.tolist(), y.tolist(), strict=True)
            if (at - x[0]) * width // (x[-1] - x[0] + 1) == n
        ]
        columns.append(max(inside) if inside else columns[-1])
    lines = plot(x, y, width=width, height=height)
    assert [len(line) for line in lines] == [width] * height
    top = max(1, *columns)
    for n, value in enumerate(columns):
        drawn = sum(" ▁▂▃▄▅▆▇█".index(line[n]) for line in lines)
        assert drawn == -(-value * 8 * height // top)
        assert "".join(line[n] for line in lines).lstrip(" ")[1:].strip("█") == ""


Block = tuple[int, bool]  # bytes, and whether it is allocated


@given(
    st.lists(
        st.lists(st.tuples(st.integers(1, 40), st.booleans()), min_size=1, max_size=6), max_size=5
    ),
    st.integers(1, 30),
    st.integers(1, 4),
    st.randoms(use_true_random=False),
)
def test_a_picture_shows_each_share_of_each_segment(
    found: list[list[Block]], width: int, most: int, draw: Any
) -> None:
    segments: list[Any] = []
    pins = set[int]()
    for n, blocks in enumerate(found):
        at, made = 1000 * (n + 1), []
        for size, allocated in blocks:
            made.append(SimpleNamespace(address=at, size=size, allocated=allocated))
            if allocated and draw.random() < 0.2:
                pins.add(at)
            at += size
        size = sum(size for size, _ in blocks)
        segments.append(SimpleNamespace(address=1000 * (n + 1), size=size, blocks=made))
    draw.shuffle(segments)
    lines = picture(segments, pins, width=width, most=most)
    if not segments:
        assert lines == ["nothing is held from the device"]
        return
    pinned = {one.address for one in segments if any(b.address in pins for b in one.blocks)}
    order = sorted(segments, key=lambda one: (one.address not in pinned, -one.size))
    shown, rest = sorted(order[:most], key=lambda one: one.address), order[most:]
    assert [line.split()[0] for line in lines[: len(shown)]] == [hex(one.address) for one in shown]
    if rest:
        free = sum(b.size for one in rest for b in one.blocks if not b.allocated)
        held = sum(one.size for one in rest)
        assert lines[-1] == f"and {len(rest)} more of {held} B, {free} B of it free"
    largest = max(one.size for one in shown)
    for one, line in zip(shown, lines, strict=False):
        bar = line.partition("|")[2][:-1]
        assert abs(len(bar) - max(1, width * one.size / largest)) <= 0.5
        cell = Fraction(one.size, len(bar))
        for n, letter in enumerate(bar):
            low, high = one.address + n * cell, one.address + (n + 1) * cell
            over = [
                (block, min(high, block.address + block.size) - max(low, block.address))
                for block in one.blocks
                if block.allocated
            ]
            share = sum(max(Fraction(0), part) for _, part in over) / cell
            marked = any(part > 0 and block.address in pins for block, part in over)
            wanted = FULL if share > Fraction(999, 1000) else PARTLY if share else IDLE
            assert letter == (PIN if marked else wanted)


WORDS = st.text("abcdefgh", min_size=1, max_size=9)
TEXT = st.lists(WORDS, min_size=1, max_size=5).map(" ".join)
NUMBER = st.integers(0, 10**9).map(str)


@settings(max_examples=150)
@given(data=st.data(), width=st.integers(30, 130))
def test_tables_fit_and_lose_nothing(data: st.DataObject, width: int) -> None:
    """Numbers are never folded; spare columns go first, then each row is a list of its cells."""
    kinds = data.draw(
        st.lists(st.sampled_from(["text", "number", "spare"]), min_size=1, max_size=5)
    )
    kinds[0] = "text"
    rows = data.draw(
        st.lists(
            st.tuples(*(NUMBER if kind == "number" else TEXT for kind in kinds)),
            min_size=1,
            max_size=3,
        )
    )
    headings = [f"{kind} {n}" for n, kind in enumerate(kinds)]
    of = {kind: [h for h, k in zip(headings, kinds, strict=True) if k == kind] for kind in kinds}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", str(width))
        table = terminal.plain_table(
            "", *headings, right=of.get("number", ()), spare=of.get("spare", ())
        )
    for row in rows:
        table.add_row(*row)
    out = io.StringIO()
    Console(file=out, width=width).print(table)
    lines = out.getvalue().splitlines()
    assert all(len(line) <= width for line in lines)
    letters = "".join(sorted("".join(out.getvalue().split())))

    def needed(count: Callable[[str], bool]) -> int:
        """The least width of a table with these columns."""
        total = 0
        for n, (heading, kind) in enumerate(zip(headings, kinds, strict=True)):
            if not count(kind):
                continue
            cells = [row[n] for row in rows]
            words = heading.split() if kind == "number" and width < 120 else [heading]
            widest = max(map(len, [*words, *cells]))
            parts = [part for cell in cells for part in cell.split()]
            if kind != "number":
                widest = min(widest, max(12, *(len(part) for part in (*parts, *heading.split()))))
            total += widest + 3  # two spaces, and one between columns
        return total - 1

    def all_of(count: Callable[[str], bool], times: int = 1) -> str:
        text = "".join(row[n] for row in rows for n, kind in enumerate(kinds) if count(kind))
        names = "".join(h * times for h, kind in zip(headings, kinds, strict=True) if count(kind))
        return "".join(sorted("".join((text + names).split())))

    if needed(lambda kind: True) <= width:
        assert letters.replace("─", "") == all_of(lambda kind: True)
        assert width < 120 or all(heading in out.getvalue() for heading in of.get("number", ()))
    elif "spare" in kinds and needed(lambda kind: kind != "spare") <= width:
        assert letters.replace("─", "") == all_of(lambda kind: kind != "spare")
    else:
        assert "─" not in letters
        assert letters == all_of(lambda kind: kind != "spare", len(rows))
        assert sum(not line.strip() for line in lines) == len(rows) - 1


@pytest.mark.parametrize(("room", "expected"), [(4, ""), (3, "a"), (2, "ab"), (1, "ab"), (0, "ab")])
def test_as_few_columns_as_possible_are_left_out(room: int, expected: str) -> None:
    def build(without: Sequence[str]) -> int:
        return 4 - len(without)

    built, left = terminal.fitting(build, lambda size: size <= room, "ab")
    assert (built, "".join(left)) == (4 - len(expected), expected)
    assert terminal.left_out(["x", "y"], "--all").plain.endswith("lack of space: x, y; see --all")


def test_the_dashboard_marks_the_best_candidate_of_each_workload() -> None:
    def row(
        workload: str, name: str, peak: int | None, failures: int = 0, candidate: bool = True
    ) -> Any:
        blank = dict.fromkeys(terminal._WATCHED)
        return blank | {"workload": workload, "allocator": name, "peak_reserved": peak} | {
            "failures": failures, "candidate": candidate,
        }  # fmt: skip

    rows = [row("w", "a", 5), row("w", "b", 3), row("w", "c", 3), row("w", "d", 1, failures=1)]
    rows += [row("w", "bump", 1, candidate=False), row("v", "a", 9), row("w", "e", None)]
    green = [
        one
        for one in rows
        if terminal.leads(
            one, [r for r in rows if r["workload"] == one["workload"]], "peak_reserved"
        )
    ]
    assert [(one["workload"], one["allocator"]) for one in green] == [
        ("w", "b"),
        ("w", "c"),
        ("v", "a"),
    ]
    table = terminal._so_far(rows, 3)
    assert [str(cell) for cell in table.columns[1].cells] == ["bump", "a", "e"]
    styles = {str(cell): cell.style for cell in table.columns[3].cells}  # type: ignore[union-attr]
    assert [style for style in styles.values() if style] == ["green"]


def test_parts_have_a_line_between_them(capsys: pytest.CaptureFixture[str]) -> None:
    terminal.show([None, "a", None, "b", "c"])
    assert capsys.readouterr().out == "a\n\nb\n\nc\n"
    terminal.show([None])
    assert capsys.readouterr().out == ""


def test_a_bar_counts_stages_only_on_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with terminal.dashboard(2) as (begin, done):
        begin("one")
        done({})
    with terminal.progress_bar(None) as start:
        start("[x]")
    assert capsys.readouterr() == ("", "")


def test_a_dashboard_on_a_terminal_shows_the_latest_rows_and_disappears(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of ten lines, four are for rows."""
    out = io.StringIO()
    shown = Console(file=out, force_terminal=True, width=200, height=10)
    monkeypatch.setattr(terminal, "Console", lambda **_: shown)
    monkeypatch.setenv("COLUMNS", "200")
    blank = dict.fromkeys(terminal._WATCHED)
    with terminal.dashboard(8) as (begin, done):
        for n in range(8):
            begin(f"stage[{n}]")
            out.truncate(out.seek(0))
            done(blank | {"workload": f"w{n}", "allocator": "a", "failures": 0, "candidate": True})
        last = out.getvalue()
        out.truncate(out.seek(0))
    assert [n for n in range(8) if f"w{n}" in last] == [4, 5, 6, 7]
    assert "stage[7]" in last
    assert "\x1b[2K" in out.getvalue()


def test_an_error_that_cannot_be_told_is_not_another_error(monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken(io.StringIO):
        def write(self, _: str) -> int:
            raise OSError(errno.EIO, "broken")

        def fileno(self) -> int:
            return spare

    spare = os.open(os.devnull, os.O_RDONLY)
    monkeypatch.setattr(sys, "stderr", Broken())
    stdout.tell_error("error: x")
    assert os.write(spare, b"x") == 1  # it is another file now
    os.close(spare)


@pytest.mark.parametrize(
    ("outputs", "inputs", "told"),
    [
        (("a.json", None, "-"), (), ""),
        (("a.json", "./a.json"), (), "two outputs cannot both go to ./a.json"),
        (("-", "-"), (), "two outputs cannot both go to standard output"),
        (("in.csv",), ("in.csv",), "in.csv: is also the input, which would be lost"),
        (("in.csv",), ("in.csv:device=1",), "in.csv: is also the input"),
        (("link",), ("in.csv",), "link: is also the input"),
        (("in.csv",), ("-",), ""),
        (("-",), ("-",), ""),
        (("folder",), (), "folder: cannot write: Is a directory"),
        (("gone/a.json",), (), "gone/a.json: cannot write: No such file or directory"),
        (("loop",), (), "loop: cannot write: Its symbolic links form a loop"),
        (("/dev/null",), (), ""),
    ],
)
def test_outputs_are_checked_first(
    outputs: Sequence[str | None],
    inputs: Sequence[str],
    told: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("folder").mkdir()
    Path("in.csv").touch()
    Path("link").symlink_to("in.csv")
    Path("loop").symlink_to("loop")
    before = sorted(Path().iterdir())
    if not told:
        files.check_outputs(*outputs, inputs=inputs)
    else:
        with pytest.raises(UsageError) as caught:
            files.check_outputs(*outputs, inputs=inputs)
        assert str(caught.value).startswith(told)
    assert sorted(Path().iterdir()) == before


@pytest.mark.parametrize(
    ("path", "told"),
    [(None, ""), ("new/deep", ""), (".", ""), ("file", "Not a directory"), ("file/new", "denied")],
)
def test_folders_are_checked_first(
    path: str | None, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("file").touch()
    if not told:
        files.check_folder(path)
        wanted = os.W_OK | os.X_OK
        monkeypatch.setattr(os, "access", lambda _, mode: mode == wanted)
        files.check_folder(path)
        return
    with pytest.raises(UsageError, match=told):
        files.check_folder(path)
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(UsageError, match="new: cannot write: Permission denied"):
        files.check_folder("new")


def test_results_are_printed_and_kept_where_outputs_fail(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    printed: list[str] = []

    def fails(error: Exception) -> files.Write:
        def write(_: str) -> None:
            raise error

        return write

    def run(error: Exception | None) -> None:
        outputs: dict[str | None, files.Write] = {} if error is None else {"bad": fails(error)}
        outputs |= {None: fails(UsageError("not wanted")), "good": printed.append}
        with files.written(outputs, ".json", lambda path: Path(path).write_text("all")):
            printed.append("shown")

    run(None)
    assert (printed, list(tmp_path.iterdir())) == (["good", "shown"], [])
    with pytest.raises(UsageError, match="bad: no; the results are kept in") as caught:
        run(UsageError("bad: no"))
    (kept,) = tmp_path.iterdir()
    assert (kept.suffix, kept.read_text()) == (".json", "all")
    assert str(caught.value).endswith(str(kept))
    with pytest.raises(KeyError) as broken:
        run(KeyError("x"))
    assert broken.value.__notes__[0].startswith("the results are kept in")
    with pytest.raises(BrokenPipeError):
        run(BrokenPipeError())
    assert printed == ["good", "shown"] * 3
    left = set(tmp_path.iterdir())
    with (
        pytest.raises(
            UsageError, match=r"bad: no; the results could not be kept in .* either: full"
        ),
        files.written({"bad": fails(UsageError("bad: no"))}, ".zip", fails(UsageError("full"))),
    ):
        pass
    assert set(tmp_path.iterdir()) == left
    path = tmp_path / "rows.json"
    with files.records_written(pd.DataFrame({"a": [1.5, None], "b": [(1, 2), ()]}), str(path)):
        pass
    wanted = [{"a": 1.5, "b": [1, 2]}, {"a": None, "b": []}]
    assert json.loads(path.read_text()) == wanted
    with files.records_written(pd.DataFrame(), None):
        pass


@pytest.mark.parametrize(
    ("path", "kind", "found"),
    [
        ("a.parquet", None, "parquet"),
        ("a.csv", None, "csv"),
        ("+a.parquet", None, "parquet"),
        ("-", None, "csv"),
        ("-", "parquet", "parquet"),
        ("a.parquet", "lifetimes", "lifetimes"),
        ("a.csv", "xml", "--format xml: no such format; valid: "),
        ("a.xyz", None, "a.xyz"),
    ],
)
def test_the_format_of_a_trace(
    path: str, kind: str | None, found: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    if found in files_formats():
        assert files.check_trace_output(path, kind) == found
        return
    with pytest.raises(UsageError, match=found):
        files.check_trace_output(path, kind)


def files_formats() -> set[str]:
    from allocbench.workloads.files import WRITERS

    return {*WRITERS}


@pytest.mark.parametrize(
    ("name", "kind", "marks", "whole", "told"),
    [
        ("a.parquet", None, 1, False, ""),
        ("a.csv", None, 0, True, ""),
        ("a.csv", None, 2, True, "note: 2 marks and trims were left out: CSV cannot store them\n"),
        ("a.csv", "lifetimes", 0, True, ""),
        ("a.csv", "lifetimes", 0, False, "note: the trace is a part of its program; CSV of life"),
    ],
)
def test_what_a_format_cannot_store_is_said(
    name: str,
    kind: str | None,
    marks: int,
    whole: bool,
    told: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    events = [(ALLOC, 0, 8), (FREE, 0, 0), *([(MARK, 0, 0)] * marks)]
    trace = make(events, labels=("step",), coverage=Coverage(ends="exit" if whole else "open"))
    path = str(tmp_path / name)
    files.write_trace(trace, path, kind)
    assert capsys.readouterr().err.startswith(told)
    assert bool(told) or not capsys.readouterr().err
    if kind is None:
        assert read(path).allocs == 1
    assert files.beside("x/t.parquet", "rank0") == "x/t-rank0.parquet"
    assert files.beside("t.parquet", "") == "t.parquet"


def test_errors_of_a_writer_name_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise TraceError("no")

    monkeypatch.setattr("allocbench.workloads.files.WRITERS", {"csv": fails})
    with pytest.raises(TraceError, match=r"t\.csv: no"):
        files.write_trace(make([(ALLOC, 0, 8)]), str(tmp_path / "t.csv"), "csv")


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (OSError(errno.ENOSPC, "full"), "standard output: cannot write: full"),
        (OSError(errno.EBADF, "bad"), "standard output: cannot write: it is closed"),
        (OSError(errno.ENOSPC, "full", "file"), None),
        (OSError(errno.ENOENT, "none"), None),
    ],
)
def test_which_errors_are_those_of_standard_output(error: OSError, told: str | None) -> None:
    assert stdout.failure(error) == told


def test_letters_that_an_encoding_lacks_and_notes_of_one_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    written = {name: io.BytesIO() for name in ("stdout", "stderr")}
    sinks = {name: io.TextIOWrapper(sink, "ascii") for name, sink in written.items()}
    for name, sink in sinks.items():
        monkeypatch.setattr(sys, name, sink)
    stdout.accept_any_text()
    print("█·a▁▇─é")
    stdout.tell_notes(["a\nb", "c"])
    stdout.tell_error("error: x")
    told = {}
    for name, sink in sinks.items():
        sink.flush()
        told[name] = written[name].getvalue()
    assert told == {"stdout": b"#.a.*-?\n", "stderr": b"note: a b\nnote: c\nerror: x\n"}
    with pytest.raises(UnicodeDecodeError):
        stdout._spelled(UnicodeDecodeError("ascii", b"\xff", 0, 1, "no"))
