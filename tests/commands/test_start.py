# SPDX-License-Identifier: Apache-2.0
"""Few packages are imported before a command begins its work."""

from __future__ import annotations

import subprocess
import sys

import pytest

from allocbench.commands import COMMANDS

HEAVY = {"numpy", "pandas", "pyarrow", "torch", "seaborn", "matplotlib", "joblib"}
"""Each takes longer to import than all other packages that help and version need."""
RUN = """
import sys
from allocbench.__main__ import main
sys.argv = ["allocbench", *{arguments}]
try:
    main()
except SystemExit as end:
    assert not end.code, end.code
print(*sorted(name for name in sys.modules if "." not in name), file=sys.stderr)
"""


def imported(*arguments: str) -> set[str]:
    """The top-level packages that a process has imported at the end of a command."""
    line = [sys.executable, "-c", RUN.format(arguments=list(arguments))]
    ended = subprocess.run(line, capture_output=True, text=True, check=True)
    assert ended.stdout
    return set(ended.stderr.splitlines()[-1].split())


@pytest.mark.parametrize("option", ["--help", "-h"])
def test_the_help_imports_no_command(option: str) -> None:
    assert not imported(option) & (HEAVY | {"pydantic"})


def test_the_version_imports_no_more_than_the_parser() -> None:
    assert not imported("--version") & (HEAVY | {"pydantic", "rich"})


@pytest.mark.parametrize(
    "what", [[], ["allocators"], ["workloads"], ["devices"], ["planners"], ["formats"]]
)
def test_a_list_imports_no_arrays_and_reads_no_trace(what: list[str]) -> None:
    assert not imported("list", *what) & (HEAVY | {"pydantic"})


def test_a_command_imports_what_it_needs() -> None:
    assert {"numpy", "pyarrow"} <= imported("convert", "random:allocs=1", "-o", "-")


@pytest.mark.parametrize("command", [command.name for command in COMMANDS])
def test_the_help_of_a_command_imports_no_arrays(command: str) -> None:
    assert not imported(command, "--help") & HEAVY
