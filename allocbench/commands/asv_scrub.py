# SPDX-License-Identifier: Apache-2.0
"""allocbench asv-scrub: results of asv without the paths of the machine that they come from."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from allocbench import asv_files

EXAMPLES = ("allocbench asv-scrub benchmarks/results/asv",)


def run(
    results: Annotated[str, typer.Argument(metavar="DIR", help="The results folder of asv.")],
) -> None:
    """Remove interpreter paths from results before they are committed.

    The results of an existing environment carry the path of its interpreter, in the file's name
    too; `existing-py3.11` takes its place. To do it again changes nothing.
    """
    changed = asv_files.scrub(Path(results))
    typer.echo(f"{len(changed)} of {asv_files.count(Path(results))} files changed")
