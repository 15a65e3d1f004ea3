# SPDX-License-Identifier: Apache-2.0
"""Arguments and options that several commands share."""

from collections.abc import Sequence
from functools import partial
from importlib import import_module
from typing import Annotated, Any

import typer

from allocbench.base.spec import split
from allocbench.errors import UsageError
from allocbench.inputs import DEVICE
from allocbench.inputs.devices import device_of, device_specs, null_device_of
from allocbench.workloads.serving.models import MODELS

DEVICE_GIVEN = "allocbench.device"
"""Key of a command's `context.meta`: the device as it was written."""
OR_COMMAND = "|-- COMMAND"
"""End of the placeholder of an argument that may also be a program."""
OF_PROGRAM = "Options for a program, -- COMMAND"
"""Heading of options in the help that matter only for a program."""
_COMMON = "caching"  # the allocator of most programs


Workload = Annotated[
    str,
    typer.Argument(
        metavar=f"WORKLOAD|FILE{OR_COMMAND}",
        help="A workload (see `list`), a file in any format of `list formats`, - for standard "
        "input, or a program to run after two dashes.",
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
        help="Workloads (see `list`), files in any format of `list formats`, - for standard "
        "input, or a program to run after two dashes.",
    ),
]
Model = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="The model that serves a log of requests or a serving workload: one of "
        f"{', '.join(MODELS)}. Further options follow the file, as in FILE:tensor_parallel=2.",
    ),
]
Allocator = Annotated[
    str, typer.Option(metavar="SPEC", help="The allocator; see `list allocators`.")
]
Allocators = Annotated[
    str,
    typer.Option(
        metavar="SPEC,SPEC|all",
        help="Allocators, such as caching,bfc:allow_growth=false; see `list allocators`.",
    ),
]


def _null_device_given(text: str | None) -> str | None:
    return None if text is None else null_device_of(text)


NullDevice = Annotated[
    str | None,
    typer.Option(
        "--device",
        metavar="CARD",
        help="Run without a GPU as if this card were present: h100, l4,memory=20GiB,"
        " a100-40gb,count=2. Needs a CUDA build of PyTorch.",
        callback=_null_device_given,
    ),
]
Steps = Annotated[
    int | None,
    typer.Option(
        metavar="N", min=1, help="On a null GPU: end the program after this many optimizer steps."
    ),
]
Values = Annotated[
    list[str] | None,
    typer.Option(
        "--value",
        metavar="NAME=NUMBER",
        help="On a null GPU: the number that a line of the program reads instead of a computed"
        " value; default: 0. loss=1.0 applies to lines that contain the name loss, train.py:88=1 to"
        " one line, *=1.0 to all lines. Can be given more than once.",
    ),
]


def _bytes(text: str | int) -> int:
    from allocbench.allocators import SpecError, parse_bytes

    try:
        return parse_bytes(text)
    except SpecError as error:
        raise typer.BadParameter(str(error)) from error


def bytes_option(about: str) -> Any:
    """An option that is a number of bytes, such as 512 or 16GiB."""
    return typer.Option(metavar="BYTES", parser=_bytes, help=about)


def _timeout_option(*names: str) -> Any:
    return typer.Option(
        *names,
        metavar="SECONDS",
        min=0.001,
        help="On a null GPU: end the program after this many seconds.",
    )


def _file_option(kind: str, what: str) -> Any:
    about = f"Write {what} as {kind}; - or no FILE is standard output."
    return typer.Option(f"--{kind.lower()}", metavar="FILE", help=about)


json_option = partial(_file_option, "JSON")
"""The option --json, which names a file; about what is written."""
markdown_option = partial(_file_option, "Markdown")
"""The option --markdown, which names a file."""


def output_option(about: str) -> Any:
    """The option --output of a command that makes one file."""
    return typer.Option("--output", "-o", metavar="FILE", help=about)


def _device_given(context: typer.Context, text: str) -> str:
    context.meta[DEVICE_GIVEN] = text
    source = context.get_parameter_source("device")
    return DEVICE if source is not None and source.name == "DEFAULT" else device_of(text)


Device = Annotated[
    str,
    typer.Option(
        metavar="SPEC",
        help="The GPU: l4 or the name of another card, sim:24GiB for one with that much memory;"
        " cuda:0 is this machine's. See `list devices`.",
        callback=_device_given,
    ),
]


def _devices_given(context: typer.Context, texts: list[str] | None) -> list[str]:
    given = [device for text in texts or () for device in split(text)]
    if given:
        context.meta[DEVICE_GIVEN] = given[0]
        device_specs(given)
    return given


Devices = Annotated[
    list[str] | None,
    typer.Option(
        "--device",
        metavar="SPEC,SPEC",
        help="The GPU, or several: l4 or the name of another card, sim:24GiB for one with that much"
        " memory; cuda:0 is this machine's. See `list devices`.",
        callback=_devices_given,
    ),
]
Passes = Annotated[
    int,
    typer.Option(
        "--time",
        metavar="N",
        min=0,
        help="Number of timed passes, cold and steady; 0 measures no host time.",
    ),
]
Capacity = Annotated[
    bool, typer.Option(help="Search for the smallest device that is large enough, by many replays.")
]
Pin = Annotated[
    int | None, typer.Option(metavar="CPU", help="Run on one processor, for steadier times.")
]
Seed = Annotated[int, typer.Option(metavar="N", min=0, help="Seed of all random choices.")]
Timeout = Annotated[float | None, _timeout_option("--timeout")]
TimeLimit = Annotated[float | None, _timeout_option("--timeout", "--time-limit")]
Context = Annotated[
    int | None,
    bytes_option(
        "Bytes of the CUDA context, the libraries and their kernels, such as 600MiB; default: an"
        " estimate for each card."
    ),
]
Nccl = Annotated[
    int | None,
    bytes_option("Bytes of NCCL's buffers; default: an estimate for programs with several ranks."),
]
Other = Annotated[int, bytes_option("Bytes of the card that other processes use.")]
Json = Annotated[str | None, json_option("result rows")]
Html = Annotated[
    str | None,
    typer.Option(metavar="FILE", help="Write a report as one HTML file; - is standard output."),
]
ExitCode = Annotated[
    bool,
    typer.Option(
        "--exit-code",
        help="Exit with the code of `check` for --device: 0 if it fits, 1 if not, 2 if that cannot"
        " be told.",
    ),
]
Everything = Annotated[
    bool, typer.Option("--all", help="Also show what is assumed about cards and allocators.")
]
Reference = Annotated[
    str | None,
    typer.Option(
        metavar="SPEC", help=f"The row that ratios refer to; default: {_COMMON}, or else the first."
    ),
]


def imported(name: str, option: str = "") -> Any:
    """A module of allocbench; raises UsageError, naming the option, if what it needs is missing."""
    try:
        return import_module(f"allocbench.{name}")
    except ModuleNotFoundError as error:
        raise UsageError(": ".join(filter(None, (option, str(error))))) from error


def html_module() -> Any:
    """The module that makes pages, for --html."""
    return imported("reports.page.html", "--html")


def reference_of(given: str | None, specs: Sequence[str]) -> str | None:
    """The row that ratios refer to, None for the first; raises UsageError if it is not compared."""
    if given is not None and given not in specs:
        raise UsageError(f"--reference {given}: not compared; compared are {', '.join(specs)}")
    return _COMMON if given is None and _COMMON in specs else given
