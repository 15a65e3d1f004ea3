# SPDX-License-Identifier: Apache-2.0
"""allocbench asv-scrub: remove the paths of this machine from results of asv."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from allocbench.asv import files

EXAMPLES = ("allocbench asv-scrub benchmarks/results/asv",)


def run(
    results: Annotated[str, typer.Argument(metavar="DIR", help="The results folder of asv.")],
) -> None:
    """Remove interpreter paths from results before they are committed.

    Results of an existing environment contain the path of its interpreter, also in the file name.
    The command replaces it by `existing-py3.11`. Running it again changes nothing.
    """
    changed = files.scrub(Path(results))
    typer.echo(f"{len(changed)} of {files.count(Path(results))} files changed")
