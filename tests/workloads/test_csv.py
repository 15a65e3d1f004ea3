# SPDX-License-Identifier: Apache-2.0
"""CSV as people and other programs write it, by the rule in docs/formats.md."""

import codecs
import gzip
import os
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from allocbench.workloads import ALLOC, FREE, Trace, read, write
from tests.commands import folder, output, python
from tests.traces import Event, assert_same, make, message_of
from tests.workloads.importers.snapshots import Recorder, pickled, snapshot

__all__ = ["folder"]  # the fixture, by its import

PLAIN = "op,id,size\na,0,1048576\na,1,7\nf,0,\na,0,50\nf,1,\n"
EVENTS: list[Event] = [
    (ALLOC, 0, 1 << 20),
    (ALLOC, 1, 7),
    (FREE, 0, 0),
    (ALLOC, 2, 50),
    (FREE, 1, 0),
]


def events(trace: Trace) -> list[Event]:
    """Kind, number of the alloc, and bytes, independent of the ids in the file."""
    found: list[Event] = []
    number: dict[int, int] = {}
    columns = (trace.op.tolist(), trace.block.tolist(), trace.size.tolist())
    for op, block, size in zip(*columns, strict=True):
        if op == ALLOC:
            number[block] = sum(kind == ALLOC for kind, _, _ in found)
        found.append((op, number[block], size))
    return found


def replaced(*pairs: tuple[str, str]) -> str:
    text = PLAIN
    for old, new in pairs:
        assert old in text
        text = text.replace(old, new)
    return text


SPELLINGS = {
    "as we write it": PLAIN,
    "no last comma": replaced(("f,0,", "f,0"), ("f,1,", "f,1")),
    "no last newline": PLAIN.removesuffix("\n"),
    "CRLF": replaced(("\n", "\r\n")),
    "leading zeros": replaced(("a,1,7", "a,0000000001,0000007"), ("f,1", "f,0000000001")),
    "size on a free": replaced(("f,0,", "f,0,1048576"), ("f,1,", "f,1,7")),
    "size 0 on a free": replaced(("f,0,", "f,0,0")),
    "sizes with a fraction": replaced(("1048576", "1048576.0"), ("1,7", "1,7.00"), ("50", "50.")),
    "sizes with an exponent": replaced(("1048576", "1.048576e+06"), (",50", ",5E1")),
    "hex addresses, reused": replaced(
        ("a,0", "a,0x7f3a00000000"), ("f,0", "f,0x7f3a00000000"), (",1,", ",0x7f3a00100000,")
    ),
    "hexadecimal sizes": replaced(("1048576", "0x100000"), ("1,7", "1,0X7")),
    "sparse ids beyond 32 bits": replaced(
        ("a,0", "a,99999999999"), ("f,0", "f,99999999999"), (",1,", ",5000,")
    ),
    "ids that are words": replaced(("a,0", "a,weight"), ("f,0", "f,weight"), (",1,", ",grad 1,")),
    "upper case": replaced(("op,id,size", "OP,Id,SIZE"), ("a,", "A,"), ("f,", "F,")),
    "whole words": replaced(("a,0", "alloc,0"), ("a,1", "malloc,1"), ("f,", "Free,")),
    "longer words": replaced(("a,", "allocate,"), ("f,", "Deallocate,")),
    "spaces": replaced(("op,id", " op, id"), ("a,", "a , "), (",7", ", 7 ")),
    "empty lines": replaced(("a,1", "\n\na,1"), ("f,1", ",,\n\nf,1")),
    "BOM": "\ufeff" + PLAIN,
    "empty lines before the header": "\ufeff\r\n\n" + PLAIN,
    "semicolons": replaced((",", ";")),
    "semicolons and decimal commas": replaced((",", ";"), ("1048576", "1048576,00")),
    "tabs": replaced((",", "\t")),
    "bars": replaced((",", "|")),
    "quotes": replaced(("op,id,size", '"op","id","size"'), ("a,1,7", '"a","1","7"')),
    "all at once": "\ufeffSize;time;ID;Op\r\n1048576,0;1;0x0;A\r\n7;2;0x1;a\r\n;3;0x0;f\r\n"
    '"50";4;0x0;a\r\n7;5;0x1;FREE\r\n',
}
SPELLINGS["other order and more columns"] = (
    "time,size,stream,id,op\n1,1048576,0,0,a\n2,7,0,1,a\n3,,0,0,f\n4,50,0,0,a\n5,,0,1,f\n"
)


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_every_spelling_is_the_same_trace(tmp_path: Path, spelling: str) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(SPELLINGS[spelling].encode())
    trace = read(path)
    trace.validate()
    assert events(trace) == EVENTS
    assert (trace.provenance.name, trace.provenance.source) == ("t", "t.csv")


def test_a_spelling_may_change_far_down(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    pairs = [f"a,{block},1\nf,{block},\n" for block in range(100_000)]
    path.write_text("op,id,size\n" + "".join(pairs) + "a,0x7,4.0\n")
    trace = read(path)
    assert len(trace) == 200_001
    assert int(trace.size[-1]) == 4


@pytest.mark.parametrize("size", ["1.000", "512,000"])
def test_a_size_that_may_have_a_separator_of_thousands_is_refused(
    size: str, tmp_path: Path
) -> None:
    path = tmp_path / "t.csv"
    path.write_text(f"op;id;size\na;0;{size}\n")
    assert f"size '{size}' is not a whole number" in message_of(lambda: read(path))
    path.write_text(f"op;id;size\na;0;{size}0\n")
    assert read(path).size.tolist() == [int(size[:-4])]


@pytest.mark.parametrize("after", ["", "a,2,1\n"])
def test_a_wrong_row_is_shown_with_what_was_expected(
    tmp_path: Path, after: str, told: Callable[..., None]
) -> None:
    def refused(row: str) -> str:
        path = tmp_path / "t.csv"
        path.write_text(f"{PLAIN}{row}\n{after}", encoding="utf-8")
        message = message_of(lambda: read(path))
        begin = f"{path}: line 7: '{row}': "
        assert message.startswith(begin)
        return message.removeprefix(begin)

    told("rows_of_csv", refused)


# --- gzip, pipes, standard input


def as_snapshot(path: Path) -> None:
    recorder = Recorder()
    recorder.alloc(7)
    path.write_bytes(pickled(snapshot(recorder)))


FORMATS: dict[str, Callable[[Path], object]] = {
    "plain": lambda path: path.write_text(PLAIN),
    "written": lambda path: path.write_bytes(codecs.BOM_UTF8 + PLAIN.encode()),
    "Parquet": lambda path: write(make(EVENTS), path, "parquet"),
    "lifetimes": lambda path: path.write_text("id,lower,upper,size\nb,0,3,4096\n"),
    "snapshot": as_snapshot,
    "RMM log": lambda path: path.write_text(
        "Thread,Time,Action,Pointer,Size,Stream\n1,00:00:00:000001,allocate,0x1,64,0\n"
    ),
    "requests": lambda path: path.write_text(
        "TIMESTAMP,ContextTokens,GeneratedTokens\n2024-05-10 00:00:00.0,100,10\n"
    ),
    "profile": lambda path: path.write_text(
        '{"traceEvents": [{"ph": "i", "name": "[memory]", "ts": 1, "args": {"Addr": 1,'
        ' "Bytes": 64, "Device Type": 1, "Device Id": 0}}]}'
    ),
}


@pytest.mark.parametrize("format_", FORMATS)
def test_gzip_of_any_format_is_read(tmp_path: Path, format_: str) -> None:
    path, packed = tmp_path / "t.file", tmp_path / "t.file.gz"
    FORMATS[format_](path)
    packed.write_bytes(gzip.compress(path.read_bytes()))
    trace, again = read(path), read(packed)
    assert_same(trace, again)
    assert again.provenance == trace.provenance


@pytest.mark.parametrize("format_", FORMATS)
def test_a_pipe_of_any_format_is_read(tmp_path: Path, format_: str) -> None:
    path, pipe = tmp_path / "t.file", tmp_path / "pipe"
    FORMATS[format_](path)
    os.mkfifo(pipe)
    writer = threading.Thread(target=lambda: pipe.write_bytes(path.read_bytes()))
    writer.start()
    assert_same(read(path), read(pipe))
    writer.join()


@pytest.mark.parametrize("length", [3, 12, 30])
def test_damaged_gzip_is_refused(tmp_path: Path, length: int) -> None:
    path = tmp_path / "t.csv.gz"
    path.write_bytes(gzip.compress(PLAIN.encode())[:length])
    assert message_of(lambda: read(path)).startswith(f"{path}: is gzip, but damaged: ")


@pytest.mark.parametrize("name", ["-", "/dev/stdin"])
@pytest.mark.parametrize("packed", [False, True])
def test_standard_input_is_read(name: str, packed: bool) -> None:
    text = gzip.compress(PLAIN.encode()) if packed else PLAIN.encode()
    line = python("convert", name, "-o", "-")
    ended = subprocess.run(line, input=text, capture_output=True, check=True)
    Path("t.csv").write_text(PLAIN)
    assert ended.stdout.decode() == output("convert t.csv -o -")


def untimed(printed: str) -> list[str]:
    """The lines below the title and the heading, without the measured time of a planner."""
    return [line for line in printed.splitlines()[2:] if not line.startswith("time")]


def test_process_substitution_is_read() -> None:
    Path("t.csv").write_text(PLAIN)
    Path("blocks.csv").write_text("id,lower,upper,size\nb,0,3,4096\n")
    allocbench = " ".join(python())
    convert, plan = ("convert {} -o -", "t.csv"), ("plan {} --planner best_fit", "blocks.csv")
    for command, file in (convert, plan):
        piped = command.format(f"<(cat {file})")
        line = ["bash", "-c", f"{allocbench} {piped}"]
        ended = subprocess.run(line, capture_output=True, text=True, check=True)
        from_file = output(command.format(file))
        assert untimed(ended.stdout) == untimed(from_file)
    ended = subprocess.run(
        ["bash", "-c", f"{allocbench} inspect <(cat t.csv)"], capture_output=True, text=True
    )
    assert "pipe63" in ended.stdout


def test_errors_name_standard_input() -> None:
    ended = subprocess.run(
        python("convert", "-", "-o", "-"), input="hello\n", capture_output=True, text=True
    )
    assert ended.returncode == 2
    assert ended.stderr.startswith("error: standard input: its format is not recognized")
