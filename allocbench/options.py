# SPDX-License-Identifier: Apache-2.0
"""Arguments and options that several commands share."""

from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated

import typer

from allocbench.cards import cards, find
from allocbench.errors import UsageError, errors_naming
from allocbench.null_gpu.device import read
from allocbench.workloads.serving.models import MODELS

DEVICE = "sim:80GiB"
DEVICE_GIVEN = "allocbench.device"
"""Key of a command's `context.meta`: the device as it was written."""
OR_COMMAND = "|-- COMMAND"
"""What the placeholder of an argument ends with that may also be a program."""
_COMMON = "caching"  # what most programs run on


class Gpu(StrEnum):
    """GPUs whose kernels' scratch is modelled, by compute capability."""

    SM80 = "sm80"
    SM90 = "sm90"


Workload = Annotated[
    str,
    typer.Argument(
        metavar=f"WORKLOAD|FILE{OR_COMMAND}",
        help="A workload, see `list`; a file in any format of `list formats`, - for standard "
        "input; or a program to run, after two dashes.",
    ),
]
WorkloadFile = Annotated[
    str,
    typer.Argument(
        metavar="WORKLOAD|FILE",
        help="A workload, see `list`, or a file in any format of `list formats`; - is standard "
        "input.",
    ),
]
Workloads = Annotated[
    list[str],
    typer.Argument(
        metavar=f"WORKLOAD|FILE...{OR_COMMAND}",
        help="Workloads, see `list`; files in any format of `list formats`, - for standard "
        "input; or a program to run, after two dashes.",
    ),
]
Model = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="The model that serves a log of requests, or a serving workload: one of "
        f"{', '.join(MODELS)}; its numbers are options of the file, as in FILE:tensor_parallel=2.",
    ),
]
Allocators = Annotated[
    str, typer.Option(metavar="SPEC,SPEC|all", help="Allocators with options; see `list`.")
]

NullDevice = Annotated[
    str | None,
    typer.Option(
        "--device",
        metavar="null:CARD",
        help="Run where there is no GPU, as if there was this card: null:h100, "
        "null:rtx4090,memory=23.5GiB, null:a100-40gb,count=2. Needs a CUDA build of PyTorch.",
    ),
]
Steps = Annotated[
    int | None,
    typer.Option(metavar="N", min=1, help="On a null GPU: end after N steps of an optimizer."),
]
TimeLimit = Annotated[
    float | None,
    typer.Option(metavar="SECONDS", min=0.001, help="On a null GPU: end after so many seconds."),
]
Values = Annotated[
    list[str] | None,
    typer.Option(
        "--value",
        metavar="NAME=NUMBER",
        help="On a null GPU: what a line of the program with this name reads, as in loss=1.0 or "
        "train.py:88=1; *=1.0 for all lines. 0 without it. Can be given more than once.",
    ),
]


def device_of(text: str) -> str:
    """The spec of a device; that of a simulated one of its size for `card:NAME` or `null:NAME`.

    Raises UsageError when no card, or more than one, has such a name.
    """
    kind, _, name = text.partition(":")
    if kind == "null":
        with errors_naming("--device"):
            null = read(text)
        return f"sim:{null.memory},context={null.context}"
    if kind != "card":
        return text
    found = find(name)
    if len(found) == 1:
        return found[0].device
    names = ", ".join(card.name for card in found or cards())
    wrong = "more than one card has that name" if found else "no such card"
    raise UsageError(f"--device {text}: {wrong}; {'they' if found else 'the cards'} are {names}")


def recorded_on(text: str | None) -> str | None:
    """The null GPU that a program is recorded on for a device; None where none follows from it."""
    kind, _, name = (text or "").partition(":")
    if kind == "card" and any(card.compute for card in find(name)):
        return f"null:{name}"
    return text if kind == "null" else None


def _device_given(context: typer.Context, text: str) -> str:
    context.meta[DEVICE_GIVEN] = text
    return device_of(text)


Device = Annotated[
    str,
    typer.Option(
        metavar="SPEC",
        help="Where segments come from; see `list devices`. card:NAME is a simulated card, less"
        " what its CUDA context takes. For a program, null:NAME also says which card it runs on.",
        callback=_device_given,
    ),
]
Passes = Annotated[
    int,
    typer.Option(
        "--time",
        metavar="N",
        min=0,
        help="Passes that time the trace, cold and steady; 0 measures no host time.",
    ),
]
Capacity = Annotated[
    bool,
    typer.Option(help="Search for the smallest device that is enough, by many replays."),
]
Pin = Annotated[
    int | None,
    typer.Option(metavar="CPU", help="Stay on one processor, for steadier times."),
]
Json = Annotated[
    str | None,
    typer.Option("--json", metavar="FILE", help="Write result rows as JSON; - is standard output."),
]
Scratch = Annotated[
    Gpu | None,
    typer.Option(
        help="Add a model of what kernels take for themselves on such a GPU, labelled as such."
    ),
]
ConvolutionScratch = Annotated[
    int, typer.Option(metavar="BYTES", min=0, help="With --scratch: what each convolution takes.")
]
Reference = Annotated[
    str | None,
    typer.Option(
        metavar="SPEC", help=f"The row that ratios are to; default: {_COMMON}, else the first."
    ),
]


def reference_of(asked: str | None, specs: Sequence[str]) -> str | None:
    """The row that ratios are to, None for the first; raises UsageError for one not compared."""
    if asked is not None and asked not in specs:
        raise UsageError(f"--reference {asked}: not compared; compared are {', '.join(specs)}")
    return _COMMON if asked is None and _COMMON in specs else asked
