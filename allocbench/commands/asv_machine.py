# SPDX-License-Identifier: Apache-2.0
"""allocbench asv-machine: what asv is to know of the machine that its results come from."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from allocbench import asv_files
from allocbench.asv_files import MACHINES

EXAMPLES = ("allocbench asv-machine", "allocbench asv-machine --machine gpu-h200")


def run(
    machine: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Its name in results; default: that of the host."),
    ] = None,
    file: Annotated[
        str | None, typer.Option(metavar="FILE", help=f"asv's machine file; default: {MACHINES}.")
    ] = None,
) -> None:
    """Write GPU, driver, CUDA, torch, and whether the device is simulated, for asv.

    They become part of each result and an axis of the published site. What asv or a user wrote
    of the machine stays; to write it again changes nothing.
    """
    name = machine or asv_files.host()
    record = asv_files.update_machine(Path(file or MACHINES).expanduser(), name)
    typer.echo(", ".join(f"{key} {value}" for key, value in record.items()))
