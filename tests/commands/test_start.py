# SPDX-License-Identifier: Apache-2.0
"""Few packages are imported before a command begins its work."""

import subprocess
import sys

import pytest

from allocbench.commands import COMMANDS

HEAVY = {"numpy", "pandas", "pyarrow", "torch", "seaborn", "matplotlib", "joblib"}
"""Each takes longer to import than all other packages that help and version need."""
RUN = """
import sys
from allocbench.__main__ import main
for line in sys.argv[1:]:
    sys.argv = ["allocbench", *line.split()]
    try:
        main()
    except SystemExit as end:
        assert not end.code, end.code
print(*sorted(name for name in sys.modules if "." not in name), file=sys.stderr)
"""
LISTS = ("", "allocators", "workloads", "devices", "planners", "formats")


def imported(*lines: str) -> set[str]:
    """The top-level packages that a process has imported at the end of these commands."""
    ended = subprocess.run(
        [sys.executable, "-c", RUN, *lines], capture_output=True, text=True, check=True
    )
    assert ended.stdout
    return set(ended.stderr.splitlines()[-1].split())


@pytest.mark.parametrize(
    ("lines", "never"),
    [
        (["--version"], HEAVY | {"pydantic", "rich"}),
        (["--help", "-h"], HEAVY | {"pydantic"}),  # and no command
        ([f"list {what}" for what in LISTS], HEAVY | {"pydantic"}),
        ([f"{command.name} --help" for command in COMMANDS], HEAVY),
    ],
    ids=["version", "help", "lists", "helps of commands"],
)
def test_what_is_never_imported(lines: list[str], never: set[str]) -> None:
    assert not imported(*lines) & never


def test_a_command_imports_what_it_needs() -> None:
    assert {"numpy", "pyarrow"} <= imported("convert random:allocs=1 -o -")
