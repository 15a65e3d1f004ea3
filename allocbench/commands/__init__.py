# SPDX-License-Identifier: Apache-2.0
"""THE list of commands. Each is a module with `run` and `EXAMPLES`, imported when it is run.

The docstring of `run` is the help of the command: its first paragraph is the line in
`allocbench --help`, which imports none of them, and "Options:" says what each parameter means.
"""

import re
from dataclasses import dataclass
from importlib import import_module
from inspect import cleandoc
from pathlib import Path
from types import ModuleType
from typing import Any

_SUMMARY = re.compile(r'^def run\(.*?\n    """(.*?)(?:\n\n|""")', re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Command:
    """A command, and the group of the help that it is shown in."""

    name: str
    group: str

    @property
    def summary(self) -> str:
        """The first paragraph of its help, read without importing its module."""
        source = Path(__file__).with_name(f"{self.name}.py").read_text(encoding="utf-8")
        found = _SUMMARY.search(source)
        assert found is not None
        return " ".join(found[1].split())

    def load(self) -> ModuleType:
        """The module of the command."""
        return import_module(f"{__name__}.{self.name}")


_GROUPS = {
    "Questions": "check fit explain whatif diff tune recommend serving",
    "Allocators": "list compare replay sweep report league conform plan",
    "Traces": "inspect convert",
    "On a GPU, or on a null GPU": "record run verify",
}
COMMANDS = tuple(Command(name, group) for group, names in _GROUPS.items() for name in names.split())


def described(command: Any, docstring: str) -> Any:
    """A command of typer with its help from a docstring, in which the terminal wraps paragraphs.

    They may be followed by "Options:" and a line for each parameter, "    name: meaning", with
    lines that are indented further if it is long.
    """
    text, _, listed = cleandoc(docstring).partition("\n\nOptions:\n")
    command.help = "\n\n".join(part.replace("\n", " ") for part in text.split("\n\n"))
    meanings = dict(re.findall(r"^    (\w+): (.*(?:\n {8}.*)*)", listed, re.MULTILINE))
    for parameter in command.params:
        if parameter.name in meanings:
            parameter.help = " ".join(meanings[parameter.name].split())
    return command


EXAMPLES = (
    "allocbench check --device l4 -- python train.py",
    "allocbench list workloads",
    "allocbench compare gpt2-train",
    "allocbench compare gpt2-train llm-decode --html report.html --results results.zip",
    "allocbench compare trace.csv --allocators naive,bfc:allow_growth=false,buddy",
    "allocbench explain gpt2-train --allocator caching --device sim:8GiB",
)
"""Examples of the commands, for the help that lists them."""
