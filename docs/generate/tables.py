# SPDX-License-Identifier: Apache-2.0
"""The tables of the documentation that repeat what the code says, made from the code at each build.

A line such as `{{ metrics memory }}` in a page stands for the output of a function below. MkDocs
calls `on_page_markdown` for every page (`hooks` in mkdocs.yml).
"""

import importlib
import inspect
import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from typer import Context
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command
from typer.testing import CliRunner

from allocbench import allocators
from allocbench.allocators.devices import cost_model
from allocbench.base import units
from allocbench.base.cards import cards as all_cards
from allocbench.cli import app
from allocbench.commands.league import HEADINGS
from allocbench.null_gpu.device import Rule, workspace_rules
from allocbench.reports.rows.assumptions import CALLS
from allocbench.reports.rows.results import COLUMNS, Column
from allocbench.workloads import catalog
from allocbench.workloads.formats import FORMATS, OTHERS
from allocbench.workloads.snapshot_format import FORMS
from benchmarks.workshop.court.cases import rows as court_rows
from benchmarks.workshop.hidden_set import RESULTS as HIDDEN
from benchmarks.workshop.instances import table as published_instances
from benchmarks.workshop.papers import rows as compared_with_papers
from docs.generate import edits, league
from docs.generate.serving import PARTS as SERVED_PARTS
from docs.generate.serving import exact as served_exactly
from docs.generate.serving import example as served_example
from docs.generate.serving import rows as published_servers
from docs.generate.serving import starts as served_starts
from docs.generate.serving import summary as served_errors

ROOT = Path(__file__).parent.parent.parent
_TYPE = re.compile(r" <(?:str|list\[str\])>$")
_WIDEST = 70  # letters of a signature on one line
STRATEGIES = Path("allocators/native/strategies")
_PLACEHOLDER = re.compile(
    r"^\{\{ (?P<what>[a-z_]+)(?: (?P<of>[a-z0-9_-]+))? \}\}$", flags=re.MULTILINE
)


def on_page_markdown(markdown: str, **_: Any) -> str:
    """A page with its placeholders replaced; raises KeyError for an unknown one."""

    def section(found: re.Match[str]) -> str:
        return SECTIONS[found["what"]](*filter(None, [found["of"]]))

    return _PLACEHOLDER.sub(section, markdown)


def table(headings: Sequence[str], rows: Iterable[Iterable[str]]) -> str:
    """A Markdown table; a bar in a cell is escaped."""
    lines = [[*headings], ["---" for _ in headings], *rows]
    return "\n".join(f"| {' | '.join(map(_cell, line))} |" for line in lines)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def strategies() -> str:
    """All strategies, each linked to its page."""
    return table(
        ("strategy", "idea", "worst-case waste"),
        (
            (f"[`{info.name}`]({info.name}.md)", info.summary, info.worst_case)
            for info in allocators.strategies()
        ),
    )


CHECKS = {
    "setting": "check gpt2-train --device sim:8GiB",
    "too_big": "check gpt2-train --device sim:6GiB",
    "table": "check gpt2-train llm-decode llama3-8b-lora --device l4,rtx-4090,h100",
}


def check(name: str) -> str:
    """A command line of `CHECKS` with its output at 100 columns."""
    result = CliRunner().invoke(app, CHECKS[name].split(), env={"COLUMNS": "100"})
    shown = "\n".join(line.rstrip() for line in result.stdout.splitlines())
    return f"```console\n$ allocbench {CHECKS[name]}\n{shown.strip()}\n```"


def definitions(items: Iterable[tuple[str, str, str]]) -> str:
    """A definition list: terms as code, each with a note in italics and what it means."""
    return "\n\n".join(
        f"`{term}`\n:   {' '.join(filter(None, [note and f'*{note}.*', _plain(meaning)]))}"
        for term, note, meaning in items
    )


def _plain(text: str) -> str:
    """Text on one line; what Markdown would take for markup is escaped, except in code."""
    parts = re.split(r"(`[^`]*`)", " ".join(text.split()))
    parts[::2] = [re.sub(r"([*_<\[\]])", r"\\\1", part) for part in parts[::2]]
    return "".join(parts)


def strategy(name: str) -> str:
    """What a strategy says about itself: idea, worst case, source."""
    info = allocators.info(name)
    facts = [
        ("Idea", info.summary),
        ("Worst-case waste", info.worst_case),
        ("Reference", info.reference),
        ("Source", f"`{STRATEGIES}/{_source(name)}`"),
    ]
    return "\n".join(f"- **{key}**: {value}" for key, value in facts)


def options(name: str) -> str:
    """The options of a strategy."""
    found = allocators.info(name).options
    if not found:
        return f"`{name}` has no options."
    listed = definitions((option.name, _note(option), option.help) for option in found)
    return f"Written as `{name}:option=value,option=value`.\n\n{listed}"


def _note(option: allocators.Option) -> str:
    default = f", default {option.default}" if option.default else ""
    return f"{option.type}{default}"


def _source(name: str) -> str:
    """The header of a strategy, from the folder of the strategies."""
    root = ROOT / STRATEGIES
    (found,) = root.rglob(f"{name}.hpp")
    return found.relative_to(root).as_posix()


def metrics(group: str) -> str:
    """The columns of the result row of one group; raises KeyError when there is none."""
    columns = [column for column in COLUMNS if column.group == group]
    if not columns:
        raise KeyError(group)
    return definitions((c.name, _unit(c), c.definition) for c in columns)


def _unit(column: Column) -> str:
    better = {True: ", lower is better", False: ", higher is better", None: ""}
    return f"{column.unit or 'text'}{better[column.lower_is_better]}"


def commands() -> str:
    """Every command: what it does, examples, arguments and options."""
    return "\n\n".join(
        _command(context, name, command) for context, name, command in all_commands()
    )


def all_commands() -> Iterator[tuple[Context, str, TyperCommand | TyperGroup]]:
    """Every command, with its name and the context that it is called in."""
    group = get_command(app)
    assert isinstance(group, TyperGroup)
    context = Context(group, info_name="allocbench")
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert isinstance(command, TyperCommand | TyperGroup)
        yield context, name, command


def _command(parent: Context, name: str, command: TyperCommand | TyperGroup) -> str:
    context = Context(command, info_name=name, parent=parent)
    usage = " ".join([context.command_path, *command.collect_usage_pieces(context)])
    examples = inspect.cleandoc(command.epilog or "").splitlines()[1:]
    told = (command.help or "").replace("\\[", "[")
    rows = []
    for parameter in command.get_params(context):
        if parameter.name == "help":
            continue
        record = parameter.get_help_record(context)
        if record:
            rows.append((_TYPE.sub("", record[0].strip()), "", record[1]))
    heading = context.command_path.removeprefix("allocbench ")
    parts = [f"## {heading}", told, f"```\n{usage}\n```"]
    parts.append(
        "Examples:\n\n```\n"
        + "\n".join(line.strip().removeprefix("$ ") for line in examples)
        + "\n```"
    )
    if isinstance(command, TyperGroup):
        within = {
            part: command.get_command(context, part) for part in command.list_commands(context)
        }
        rows += [(part, "", found.help or "") for part, found in within.items() if found]
    if rows:
        parts.append(definitions(rows))
    return "\n\n".join(parts)


def wrappers() -> str:
    """All wrappers."""
    rows = []
    for wrapper in allocators.wrappers():
        required = "".join(f"{option.name}=...," for option in wrapper.options)
        rows.append((f"`{wrapper.name}:{required}of=NAME`", wrapper.summary))
    return table(("wrapper", "what it does"), rows)


def planners() -> str:
    """All planners."""
    rows = ((f"`{p.name}`", p.summary, p.reference) for p in allocators.planner_infos())
    return table(("planner", "idea", "reference"), rows)


def formats() -> str:
    """All formats of files that are read."""
    rows = (
        (
            file_format.name,
            file_format.summary,
            ", ".join(f"`{name}`" for name in file_format.options),
        )
        for file_format in FORMATS
    )
    return table(("format", "what it is", "options"), rows)


def snapshot_fields() -> str:
    """What is read from PyTorch's memory snapshots."""
    return table(
        ("of", "field", "what it is"),
        (
            (form.name, " or ".join(f"`{key}`" for key in field.keys), field.about)
            for form in FORMS
            for field in form.fields
        ),
    )


def other_files() -> str:
    """All kinds of files that are recognized, and not read as traces."""
    rows = ((one.name, one.answers, one.instead) for one in OTHERS)
    return table(("what it is", "what it answers", "what to do"), rows)


def cards() -> str:
    """The cards for which there are simulated devices."""
    rows = (
        (card.name, f"{card.usable:,}{' (estimate)' if card.estimated else ''}", f"{card.free:,}")
        for card in all_cards()
    )
    return table(("card", "bytes reported by the driver", "bytes left to a program"), rows)


def device_costs(model: str = "estimate") -> str:
    """A model of the time of device calls, the ranges of its costs, and where they come from."""
    costs = cost_model(model)
    sources = {name: f"[{n}]" for n, name in enumerate(costs["sources"], 1)}
    rows = (
        (
            CALLS[call],
            units.size(point["bytes"]),
            units.seconds(point["seconds"]),
            units.seconds_range(point["low"], point["high"]),
            " ".join(sources[name] for name in point["measured"]) or "none",
        )
        for call, points in costs["calls"].items()
        for point in points
    )
    headings = ("call", "bytes", "estimate", "range", "measured by")
    listed = [f"- {n} {costs['sources'][name]}" for name, n in sources.items()]
    shown = table(headings, rows)
    return "\n\n".join([shown, costs["provenance"] + " " + costs["rule"], "\n".join(listed)])


def workspaces() -> str:
    """What NVIDIA's libraries ask for on a null GPU."""

    def cells(rule: Rule) -> Iterator[str]:
        yield f"`{rule.rule}`"
        yield f"{rule.library}: {rule.of}"
        named = [f"`{name}`: {meaning}" for name, meaning in rule.assumptions.items()]
        yield "; ".join([f"`{rule.default}`", *named])
        yield rule.source

    headings = ("option", "requested for", "default; formulas", "source")
    return table(headings, map(cells, workspace_rules().values()))


def workloads() -> str:
    """The bundled traces and the generated workloads."""
    rows = (
        (f"`{name}`", catalog.info(name).kind, catalog.info(name).summary)
        for name in catalog.names()
    )
    return table(("workload", "kind", "what it is"), rows)


def functions(module: str) -> str:
    """The public functions of a module of the package: signature and docstring."""
    found = importlib.import_module(f"allocbench.{module}")
    named = getattr(found, "__all__", [name for name in vars(found) if not name.startswith("_")])
    return "\n\n".join(
        _function(name, getattr(found, name))
        for name in named
        if inspect.isfunction(getattr(found, name))
        and (module != "api" or getattr(found, name).__module__ == found.__name__)
    )


def _function(name: str, function: Callable[..., object]) -> str:
    signature = re.sub(r"(: |-> )'([^']*)'", r"\1\2", str(inspect.signature(function)))
    if len(signature) > _WIDEST:
        inner, _, returned = signature.removeprefix("(").rpartition(") -> ")
        listed = re.sub(r", (?=\w+:|\*)", ",\n    ", inner)
        signature = f"(\n    {listed},\n) -> {returned}"
    told = "\n\n".join(map(_paragraph, (inspect.getdoc(function) or "").split("\n\n")))
    return f"### {name}\n\n```python\n{name}{signature}\n```\n\n{told}"


def _paragraph(text: str) -> str:
    """A paragraph of a docstring; one that begins with `name: ` explains arguments, as a list."""
    parts = re.split(r"^(\w+(?:, \w+)*): ", text, flags=re.MULTILINE)
    if len(parts) == 1:
        return _plain(text)
    pairs = zip(parts[1::2], parts[2::2], strict=True)
    listed = "\n".join(f"- `{name}`: {_plain(told)}" for name, told in pairs)
    return f"{_plain(parts[0])}\n\n{listed}"


def serving() -> str:
    """Published numbers of servers, beside those of `allocbench serving`."""
    headings = (
        "published in",
        "server",
        "model",
        *SERVED_PARTS,
        "tokens of the published KV cache",
    )
    return table(headings, published_servers())


def serving_errors() -> str:
    """The median and worst errors of `allocbench serving` against published numbers."""
    return table(("part", "GPUs", "numbers", "median error", "worst"), served_errors())


def serving_starts() -> str:
    """What engines printed when they started on null GPUs."""
    parts = ("weights", "activations", "KV cache", "graphs")
    sizes = (f"{part}, GiB" for part in parts)
    return table(("command", "engine", "card", *sizes, "tokens", "computed"), served_starts())


def serving_exact() -> str:
    """How many published KV caches hold as many tokens as published."""
    return served_exactly()


def serving_example() -> str:
    """What `allocbench serving` shows, for the beginning of a log of drawn requests."""
    return f"```text\n{served_example()}```"


def edit_errors(by: str) -> str:
    """Errors of estimates of `whatif`, by change or by program."""
    return table(edits.HEADINGS[by], edits.rows(by))


def edit_runs() -> str:
    """How many estimates of `whatif` have a run."""
    return edits.summary()


def league_table(division: str) -> str:
    """A division of the league."""
    return table(league.HEADINGS_OF_THE_PAGE, league.rows(division))


def originals(kind: str) -> str:
    """The originals that are `allocators` or `planners`, or that are `missing`."""
    return table(league.HEADINGS_OF_ORIGINALS[kind], league.originals(kind))


def hidden_league() -> str:
    """The scores on the hidden set."""
    return table(HEADINGS, json.loads(HIDDEN.read_text(encoding="utf-8")))


def court() -> str:
    """The reports on allocators, and what became of them."""
    headings = ("report", "it says", "verdict", "measured", "cause", "versions", "what ends it")
    return table(headings, court_rows())


def papers() -> str:
    """What strategies save against `caching` in training programs."""
    headings = ("strategy", "memory saved", "fragmentation, in points", "relative to caching")
    return table(headings, compared_with_papers())


def instances() -> str:
    """Planners on the published instances of others."""
    headings = ("planner", "MiniMalloc A to F", "idealloc", "optimal", "failed")
    return table(headings, published_instances())


def originals_without() -> str:
    """The workloads that originals were not run on."""
    return "\n".join(league.left_out())


SECTIONS: dict[str, Callable[..., str]] = {
    function.__name__: function
    for function in (
        strategies,
        check,
        strategy,
        options,
        metrics,
        commands,
        wrappers,
        planners,
        formats,
        snapshot_fields,
        other_files,
        cards,
        device_costs,
        workloads,
        functions,
        workspaces,
        serving,
        serving_starts,
        serving_errors,
        serving_exact,
        serving_example,
        edit_errors,
        edit_runs,
        league_table,
        originals,
        originals_without,
        instances,
        papers,
        court,
        hidden_league,
    )
}
