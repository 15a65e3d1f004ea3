# SPDX-License-Identifier: Apache-2.0
"""allocbench asv-machine: describe this machine to asv."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from allocbench.asv import files

EXAMPLES = ("allocbench asv-machine", "allocbench asv-machine --machine gpu-h200")


def run(
    machine: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Its name in results; default: the host name."),
    ] = None,
    file: Annotated[
        str | None,
        typer.Option(metavar="FILE", help=f"File of asv; default: {files.MACHINES}."),
    ] = None,
) -> None:
    """Record the GPU, driver, CUDA and torch of this machine, for asv.

    The record also says whether the device is simulated. It becomes part of each result and an axis
    of the published site. Everything else in the machine's record stays. Running the command again
    changes nothing.
    """
    name = machine or files.host()
    record = files.update_machine(Path(file or files.MACHINES).expanduser(), name)
    typer.echo(", ".join(f"{key} {value}" for key, value in record.items()))
