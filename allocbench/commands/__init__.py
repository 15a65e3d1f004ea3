# SPDX-License-Identifier: Apache-2.0
"""THE list of commands. Each is a module with `run` and `EXAMPLES`, imported when it is run.

The summary of a command is the first paragraph of the docstring of its `run`; it is repeated here
so that `allocbench --help` imports none of them.
"""

from dataclasses import dataclass
from importlib import import_module
from types import ModuleType


@dataclass(frozen=True)
class Command:
    """A command, its line in the help, and the group that it is shown in."""

    name: str
    summary: str
    group: str

    def load(self) -> ModuleType:
        """The module of the command."""
        return import_module(f"{__name__}.{self.name}")


SUMMARIES = {
    "Questions": {
        "check": "Say whether a program fits a card, what helps if not, and who holds the memory.",
        "fit": "Find the smallest device on which each allocator completes a trace.",
        "explain": "Explain the first request that fails: was the device full, or its free memory"
        " fragmented?",
        "whatif": "Show which change of a training program would save how much memory.",
        "diff": "Show what changed between two traces, two allocators, or two values of a program's"
        " option.",
        "tune": "Search the settings of an allocator for the smallest device that is enough, then"
        " for time.",
        "recommend": "Recommend a setting or an allocator, with the reason, how sure that is, and"
        " how to switch.",
        "serving": "Show what fills a card when vLLM or SGLang serves a model on it, and the share"
        " to give it.",
    },
    "Allocators": {
        "list": "List allocators, workloads, devices, workspaces, planners and formats, and their"
        " options.",
        "compare": "Replay workloads through allocators and compare memory, fragmentation and"
        " time.",
        "replay": "Replay a trace through one allocator and show every metric.",
        "sweep": "Run every workload through every allocator on every device, in many processes.",
        "report": "Make a report from saved results.",
        "league": "Rank allocators and planners on a frozen set of workloads.",
        "conform": "Try which promises of an allocator hold: one from the list, or one of your"
        " own.",
        "plan": "Assign an offset to every block of a trace, with all lifetimes known.",
    },
    "Traces": {
        "inspect": "Show the origin, events, features and sizes of a trace, and its load over"
        " time.",
        "convert": "Convert a trace in any format to Parquet, or to plain CSV op,id,size.",
    },
    "On a GPU, or on a null GPU": {
        "record": "Run a command and record what its PyTorch programs request from the GPU"
        " allocator.",
        "run": "Run an unmodified PyTorch program on any allocator and show what it did to the"
        " GPU.",
        "verify": "Verify `caching` against recordings of real GPUs.",
    },
}
"""By group: each command with its line in the help."""
COMMANDS = tuple(
    Command(name, summary, group)
    for group, summaries in SUMMARIES.items()
    for name, summary in summaries.items()
)

EXAMPLES = (
    "allocbench check --device l4 -- python train.py",
    "allocbench list workloads",
    "allocbench compare gpt2-train",
    "allocbench compare gpt2-train llm-decode --html report.html --results results.zip",
    "allocbench compare trace.csv --allocators naive,bfc:allow_growth=false,buddy",
    "allocbench explain gpt2-train --allocator caching --device sim:8GiB",
)
"""Examples of the commands, for the help that lists them."""
