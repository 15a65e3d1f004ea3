# SPDX-License-Identifier: Apache-2.0
"""Paths and traces that would end a command with a traceback, or destroy its input."""

import shlex
from pathlib import Path

import pytest

from allocbench.base.text import one_line
from allocbench.inputs import traces
from tests.commands import QUICK, error, folder, output, run

__all__ = ["folder"]  # the fixture, by its import

COMPARE = f"compare good.csv --allocators naive {QUICK}"


def test_a_name_that_is_too_long_is_no_file() -> None:
    name = "x" * 5000
    shown = error(f"inspect {name}")
    assert shown.startswith(one_line(f"error: {name}: neither a file nor a workload"))


def test_files_in_long_folders_keep_their_own_names() -> None:
    files = [Path("a" * 120, run, "b" * 120, "trace.csv") for run in ("old", "new")]
    for file in files:
        file.parent.mkdir(parents=True)
        file.write_text("op,id,size\na,0,512\n")
    assert list(traces.load_all([str(file) for file in files])) == [str(file) for file in files]


@pytest.mark.parametrize("option", ["--html", "--json", "--results"])
def test_symbolic_links_in_a_loop_are_no_output(option: str) -> None:
    Path("loop.html").symlink_to("loop.html")
    assert "loop.html: cannot write: Its symbolic links form a loop" in error(
        f"{COMPARE} {option} loop.html"
    )


@pytest.mark.parametrize(
    "line",
    [
        f"{COMPARE} --html good.csv",
        f"{COMPARE} --json ./good.csv",
        f"compare good.csv:kv=paged --allocators naive {QUICK} --results link",
        "plan good.csv -o good.csv",
        f"replay good.csv --allocator naive {QUICK} --perfetto link",
    ],
)
def test_an_output_is_never_the_input(line: str) -> None:
    Path("link").symlink_to("good.csv")
    before = Path("good.csv").read_bytes()
    assert "is also the input, which would be lost" in error(line)
    assert Path("good.csv").read_bytes() == before


def test_a_trace_can_be_converted_in_its_place() -> None:
    before = Path("good.csv").read_bytes()
    assert output("convert good.csv -o good.csv") == ""
    assert Path("good.csv").read_bytes() == before


@pytest.mark.parametrize(
    "line", ["inspect", f"replay --allocator bfc {QUICK}", f"compare --allocators naive {QUICK}"]
)
def test_sizes_whose_sum_needs_more_than_63_bits(line: str) -> None:
    Path("sum.csv").write_text(f"op,id,size\na,0,{2**63 - 1}\na,1,1\n")
    assert error(f"{line} sum.csv") == (
        "error: sum.csv: its allocs add up to 9,223,372,036,854,775,808 bytes, more than "
        "9,223,372,036,854,775,807\n"
    )


def test_a_file_name_is_one_line_of_a_table() -> None:
    name = "a\x1b[2J\n[red]b.csv"
    Path(name).write_bytes(Path("good.csv").read_bytes())
    result = run(f"plan {shlex.quote(name)} --planner greedy_by_size")
    assert result.exit_code == 0
    assert result.stdout.startswith("a?[2J [red]b.csv planned by greedy_by_size")
    assert "\x1b" not in result.stdout
