# SPDX-License-Identifier: Apache-2.0
"""`fit --vary`: the largest batch that fits, as rows and in words."""

from collections.abc import Sequence
from functools import partial

import pandas as pd
from rich.text import Text

from allocbench.allocators import make_device
from allocbench.base import units
from allocbench.errors import UsageError
from allocbench.output.files import STDOUT, records_written
from allocbench.output.stdout import tell_notes
from allocbench.output.terminal import console, plain_table, say
from allocbench.programs import is_program, program
from allocbench.programs.program import ProgramWorkload
from allocbench.questions import vary
from allocbench.questions.vary import Between, Largest, Probe, Variation, WithSetting
from allocbench.replays.recorded_settings import conf
from allocbench.workloads import recording


def answer(workload: str, text: str, device: str, json: str | None) -> None:
    """Search, write the rows and print the answer.

    text: the variation, such as "batch=8..256". device: the spec of a simulated device of the
    requested card's size. Raises UsageError, and as `programs.program.load`.
    """
    varied = vary.variation(text)
    if not is_program(workload):
        raise UsageError("--vary is for a program: -- python train.py --batch {batch}")
    workload_program, _ = vary.placed(program.of_text(workload), varied.name)
    if workload_program.settings.device is None and not recording.has_cuda():

        def tell_need(probe: Probe) -> None:
            need = units.size(probe.need or 0)
            tell_notes([f"{varied.name}={probe.value} was run and needs {need}"])

        positions = vary.on_every_card(workload_program, varied, tell_need)
        with records_written(pd.DataFrame(positions), json):
            if json != STDOUT:
                _print_cards(varied, positions)
        return
    tell = partial(tell_fit, varied)
    largest = vary.on_card(workload_program, varied, device, tell)
    better = vary.with_setting(workload_program, varied, device, largest.largest, tell)
    with records_written(_rows(largest, better, workload_program), json):
        if json != STDOUT:
            _print_card(workload_program, varied, largest, device)
            if better is not None:
                out = console()
                out.print(Text(f"With a setting, {varied.name}={better.largest} fits:"))
                out.print(Text(better.how), soft_wrap=True)


def tell_fit(varied: Variation, probe: Probe) -> None:
    """Say how a run on one card went."""
    tell_notes([f"{varied.name}={probe.value} was run and {_outcome(probe)}"])


def _outcome(probe: Probe) -> str:
    if not probe.fits:
        return "ran out of memory"
    return "fits" if probe.need is None else f"fits, reserving {units.size(probe.need)}"


def _rows(result: Largest, better: WithSetting | None, asked: ProgramWorkload) -> pd.DataFrame:
    """The runs; that of `better` is the last one, and the only one with a setting."""
    rows: list[dict[str, object]] = [
        {
            "device": asked.settings.device,
            "value": probe.value,
            "fits": probe.fits,
            "peak_reserved": probe.need,
            "largest": probe.value == result.largest,
            "monotone": result.monotone,
            "setting": None,
        }
        for probe in result.probes
    ]
    if better is not None:
        found = {"value": better.largest, "fits": True, "peak_reserved": better.need}
        rows.append(rows[0] | found | {"largest": False, "setting": conf(better.spec)})
    return pd.DataFrame(rows).astype({"peak_reserved": "Int64"})


def _print_card(asked: ProgramWorkload, varied: Variation, result: Largest, device: str) -> None:
    out = console()
    where = asked.settings.device or "the GPU of this machine"
    table = plain_table(f"{varied.name} on {where}", varied.name, "", right=(varied.name,))
    for probe in result.probes:
        table.add_row(str(probe.value), _outcome(probe))
    out.print(table)
    capacity = units.size(make_device(device).capacity)
    room = f"; PyTorch can use {capacity}" if asked.settings.device else ""
    last, first = varied.values[-1], varied.values[0]
    if result.largest is None:
        words = f"{varied.name}={first}, the smallest, does not fit{room}."
    elif result.largest == last:
        words = f"{varied.name}={last}, the largest requested, fits{room}."
    else:
        after = varied.values[list(varied.values).index(result.largest) + 1]
        words = (
            f"The largest {varied.name} that fits is {result.largest}; {after} runs out of"
            f" memory{room}."
        )
    say([words])
    if not result.monotone:
        say(
            [
                "Memory use does not always grow with the value: some larger values may fit, and"
                " some smaller ones may not."
            ]
        )


def _print_cards(varied: Variation, positions: Sequence[Between]) -> None:
    out = console()
    columns = ("fits", "too large", "estimate", "with a setting")
    table = plain_table(f"{varied.name} on each card", "card", *columns, right=columns)
    for between in positions:
        cells = (between.fits, between.too_large, between.estimate, between.with_setting)
        table.add_row(between.card, *("" if cell is None else str(cell) for cell in cells))
    out.print(table)
    told = (
        "fits, too large: values that were run. estimate: the largest that should fit, from"
        " a straight line between the two; it was not run, and --device CARD finds it exactly."
        " with a setting: the largest that was run and fits with expandable_segments:True."
    )
    say([told], "dim")
