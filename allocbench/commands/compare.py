# SPDX-License-Identifier: Apache-2.0
"""allocbench compare: workloads through many allocators, and who wins."""

from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from allocbench.base.cards import label
from allocbench.commands import options
from allocbench.inputs import ALL, DEVICE
from allocbench.output.files import STDOUT, written
from allocbench.output.stdout import tell_notes
from allocbench.output.terminal import dashboard
from allocbench.questions import BUDGET
from allocbench.replays import LONG, PASSES, PASSES_OF_LONG
from allocbench.reports.advice.choosing import KEEP

if TYPE_CHECKING:
    from allocbench.output.files import Write

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
    allocators: options.Allocators = ALL,
    device: options.Device = DEVICE,
    model: options.Model = None,
    reference: options.Reference = None,
    time: Annotated[
        int | None,
        typer.Option(
            "--time",
            metavar="N",
            min=0,
            help="Number of timed passes, cold and steady; 0 measures no host time. Default:"
            f" {PASSES}, or {PASSES_OF_LONG} for a trace of more than {LONG:,} events.",
            show_default=False,
        ),
    ] = None,
    min_capacity: options.Capacity = True,
    pin: options.Pin = None,
    everything: options.Everything = False,
    json: options.Json = None,
    html: options.Html = None,
    bundled: Annotated[str | None, typer.Option("--results", metavar="FILE")] = None,
) -> None:
    """Replay workloads through allocators and compare memory, fragmentation and time.

    By default, all allocators of `list` are compared, and caching with expandable segments and with
    the best setting. The first lines then name the best setting and the best allocator, which are
    those of `recommend`; they are left out where --allocators chooses or --no-min-capacity. The
    table marks the best and the worst of the allocators that can be recommended; the others are
    floors, shown for comparison. No table is printed if rows or the report go to standard output.
    On a terminal, a long comparison shows the results so far.

    Options:
        bundled: Write rows and the data of charts, for `report`; - is standard output.
    """
    from allocbench.commands.comparison import show  # imported late: --help stays fast
    from allocbench.inputs.question import allocator_specs, check_largest_request, read
    from allocbench.questions.best import best, stages
    from allocbench.questions.tune import EXPANDABLE
    from allocbench.replays.experiment import Effort, run_matrix
    from allocbench.replays.recorded_settings import with_conf
    from allocbench.replays.runner import Runner, beside
    from allocbench.reports.rows import bundle, results

    specs = allocator_specs(allocators)
    if allocators == ALL:
        specs.insert(specs.index(KEEP) + 1, with_conf(EXPANDABLE))
    reference = options.reference_of(reference, specs)
    write_html = options.html_module().write if html else None
    question = read(workloads, specs, device, model=model, outputs=[json, html, bundled], pin=pin)
    check_largest_request(question)
    tell_notes(question.notes)
    if time is None:
        time = PASSES_OF_LONG if max(map(len, question.traces.values())) > LONG else PASSES
    effort = Effort(time, min_capacity)
    advising = allocators == ALL and min_capacity
    of_each = len(specs) * len(effort.stages) + (stages(BUDGET) if advising else 0)
    with dashboard(len(question.traces) * of_each) as (begin, done):
        found = {
            name: best(
                Runner(trace, beside(question.device, trace), name),
                label=label(question.device),
                begin=begin,
            )
            for name, trace in question.traces.items()
            if advising
        }
        rows, details = run_matrix(
            question.traces,
            specs,
            question.device,
            effort,
            detailed=bool(html or bundled),
            known={name: one.known for name, one in found.items()},
            stage=lambda workload, spec, stage: begin(f"{workload} {spec}: {stage}"),
            done=done,
        )
    rows = [row | (found[row["workload"]].columns if advising else {}) for row in rows]
    tell_notes(question.notes_on_failures(sum(row["failures"] or 0 for row in rows)))
    compared = bundle.Bundle(results.frame(rows), details)
    keep = partial(bundle.write, compared)
    writers: dict[str | None, Write] = {json: partial(results.write, rows), bundled: keep}
    if write_html:
        writers[html] = partial(write_html, compared, command=context.obj, reference=reference)
    with written(writers, ".zip", keep):
        if STDOUT not in writers:
            show(compared.rows, reference, everything)
