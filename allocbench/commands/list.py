# SPDX-License-Identifier: Apache-2.0
"""allocbench list: list the allocators, workloads, devices, workspaces, planners and formats."""

from collections.abc import Callable

import typer
from rich.table import Table
from rich.text import Text

from allocbench import allocators
from allocbench.base import units
from allocbench.base.cards import cards
from allocbench.null_gpu.device import workspace_rules
from allocbench.output.terminal import plain_table
from allocbench.output.terminal import show as show
from allocbench.workloads import catalog, serving
from allocbench.workloads.formats import FORMATS

EXAMPLES = ("allocbench list", "allocbench list allocators", "allocbench list workloads")

_FEW = 5  # formats with more options refer to `list workloads`


def run(context: typer.Context) -> None:
    """List allocators, workloads, devices, workspaces, planners and formats, and their options.

    Without a subcommand, list everything.
    """
    if context.invoked_subcommand is None:
        show([table for tables in PARTS.values() for table in tables()])


def _allocators() -> list[Table]:
    """Allocators with their options and worst cases, and the wrappers of any allocator."""
    strategies = plain_table("allocators", "name", "idea", "worst case", "private pools")
    options = plain_table(
        "options, written as name:option=value,option=value", "option", "default", "help"
    )
    for info in allocators.strategies():
        name = info.name if info.candidate else f"{info.name} (floor)"
        pools = "its own" if info.by_pool else "an instance each"
        strategies.add_row(Text(name), Text(info.summary), Text(info.worst_case), Text(pools))
        for option in info.options:
            named = Text(f"{info.name}:{option.name}")
            help_ = Text(f"{option.help} ({option.type})")
            options.add_row(named, Text(option.default or "-"), help_)
    wrappers = plain_table(
        "wrappers; the last option, of=NAME, is the allocator inside", "name", "what it does"
    )
    for wrapper in allocators.wrappers():
        required = "".join(f"{option.name}=...," for option in wrapper.options)
        wrappers.add_row(Text(f"{wrapper.name}:{required}of=NAME"), Text(wrapper.summary))
    return [strategies, options, wrappers]


def _workloads() -> list[Table]:
    """Workloads that come with allocbench, and the options of those that are generated."""
    right = ("events", "max load")
    table = plain_table("workloads", "name", "kind", *right, "what it is", "from", right=right)
    for name, size in catalog.sizes().items():
        info = catalog.info(name)
        source = info.source
        if isinstance(info, catalog.Workload):
            source = f"{info.source} {info.date} {info.purpose}"
        numbers = f"{size.events:,}", units.size(size.max_load)
        table.add_row(Text(name), info.kind, *numbers, Text(info.summary), Text(source))
    options = plain_table(
        "options of generated workloads, written name:option=value,option=value; a serving"
        f" workload without options of its own has those of {serving.GENERATORS[0].name}",
        "option",
        "default",
        "help",
    )
    first = serving.GENERATORS[0]
    for generator in catalog.generators():
        common = first.options if generator.kind == first.kind and generator != first else ()
        for option in (option for option in generator.options if option not in common):
            shown = f"{option.help} ({', '.join(option.choices) or option.kind})"
            named = f"{generator.name}:{option.name}"
            options.add_row(Text(named), option.written(option.default) or "-", Text(shown))
    return [table, options]


_CARDS = {
    "NAME, card:NAME": "a simulated GPU with the memory that a program can use on a card: l4",
    "null:NAME": "a GPU without hardware, on which PyTorch programs run and compute nothing:"
    " null:h100; for record, run and programs after --",
}
"""Devices that stand for a card of `cards.json`."""


def _devices() -> list[Table]:
    """Devices that allocators get their segments from, and the cards that they can stand for."""
    table = plain_table("devices", "spec", "what it is")
    for spec, summary in (allocators.DEVICE_SPECS | _CARDS).items():
        table.add_row(Text(spec), Text(summary))
    numbers = ("driver reports", "context (estimate)")
    known = plain_table("cards, for NAME, null:NAME and serving", "name", *numbers, right=numbers)
    for card in cards():
        known.add_row(card.slug, units.size(card.usable), units.size(card.context))
    return [table, known]


def _workspaces() -> list[Table]:
    """The model of the workspaces of NVIDIA's libraries on a null GPU: sources and options."""
    table = plain_table(
        "workspaces on a null GPU, a model; to change one, write null:h100,OPTION=VALUE",
        "option",
        "bytes",
        "requested for",
        "other values",
        "source",
    )
    for rule in workspace_rules().values():
        meaning = rule.assumptions.get(rule.default, "")
        others = [f"{name}: {text}" for name, text in rule.assumptions.items() if text != meaning]
        table.add_row(
            Text(rule.rule),
            Text(f"{rule.default}: {meaning}" if meaning else rule.default),
            Text(f"{rule.library}: {rule.of}"),
            Text("; ".join(["a number of bytes", *others])),
            Text(rule.source),
        )
    return [table]


def _planners() -> list[Table]:
    """Planners, for programs whose lifetimes are all known."""
    table = plain_table("planners", "name", "idea", "reference")
    for info in allocators.planner_infos():
        table.add_row(Text(info.name), Text(info.summary), Text(info.reference))
    return [table]


def _formats() -> list[Table]:
    """Formats of the files that are read, and their options."""
    table = plain_table(
        "formats of files, recognized by content; an option is written FILE:option=value",
        "format",
        "what it is",
        "options",
    )
    for file_format in FORMATS:
        options = "; ".join(f"{name}: {meaning}" for name, meaning in file_format.options.items())
        if len(file_format.options) > _FEW:
            options = f"{', '.join(file_format.options)}: see `list workloads`"
        table.add_row(Text(file_format.name), Text(file_format.summary), Text(options))
    return [table]


PARTS: dict[str, Callable[[], list[Table]]] = {
    "allocators": _allocators,
    "workloads": _workloads,
    "devices": _devices,
    "workspaces": _workspaces,
    "planners": _planners,
    "formats": _formats,
}
"""What can be listed on its own; each function has its help as docstring."""
