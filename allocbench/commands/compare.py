# SPDX-License-Identifier: Apache-2.0
"""allocbench compare: workloads through many allocators, and who wins."""

from __future__ import annotations

from typing import Annotated

import typer

from allocbench.arguments import options
from allocbench.replays import PASSES

EXAMPLES = (
    "allocbench compare gpt2-train",
    "allocbench compare gpt2-train llm-decode --html report.html --results results.zip",
    "allocbench compare trace.csv --allocators naive,bfc:allow_growth=false,buddy",
    "allocbench compare gpt2-train --device sim:8GiB --reference bfc --json -",
    "allocbench compare serve-chat serve-chat:rate=8,seed=1 bomb-buddy",
    "allocbench compare requests.csv --model llama-3-8b --device sim:80GiB",
    "allocbench compare --device null:rtx4090 -- python train.py",
)


def run(
    context: typer.Context,
    workloads: options.Workloads,
    allocators: options.Allocators = options.ALL,
    device: options.Device = options.DEVICE,
    model: options.Model = None,
    reference: options.Reference = None,
    time: options.Passes = PASSES,
    min_capacity: options.Capacity = True,
    pin: options.Pin = None,
    json: options.Json = None,
    html: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Write a report as one HTML file; - is standard output."),
    ] = None,
    bundled: Annotated[
        str | None,
        typer.Option(
            "--results",
            metavar="FILE",
            help="Write rows and the data of charts, for `report`; - is standard output.",
        ),
    ] = None,
) -> None:
    """Replay workloads through allocators and compare memory, fragmentation and time.

    The first lines name the best setting and the best of the compared allocators, as `recommend`
    does. By default, all allocators of `list` are compared, and caching with expandable segments.
    The table marks the best and the worst of the allocators that can be recommended; the others are
    floors, shown for comparison. No table is printed if rows or the report go to standard output.
    On a terminal, a long comparison shows the results so far.
    """
    from allocbench.answers.comparison import Outputs, compare  # imported late: --help stays fast

    compare(
        workloads,
        allocators,
        device,
        model=model,
        reference=reference,
        passes=time,
        min_capacity=min_capacity,
        pin=pin,
        outputs=Outputs(json, html, bundled),
        command=context.obj,
    )
