# SPDX-License-Identifier: Apache-2.0
"""The HTML report: a bundle of results in, one self-contained file out.

This module collects the parts; `tables`, `findings`, `charts` and the figures compute them;
`templates/` contains the layout and the scripts.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import math
import re
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from allocbench.base.cards import label
from allocbench.base.errors import needs_extra
from allocbench.base.files import write_text
from allocbench.reports.advice import findings
from allocbench.reports.advice.check import Answer
from allocbench.reports.charts.looks import Look, looks_of, looks_of_names
from allocbench.reports.page import changes, tables
from allocbench.reports.rows import ResultError
from allocbench.reports.rows.bundle import Bundle
from allocbench.reports.rows.details import TABLES, Details, of_run
from allocbench.reports.rows.ranking import Case, cases, ranked
from allocbench.reports.rows.results import COLUMNS, SCHEMA, Rows, frame

with needs_extra("report"):
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup, escape

_SCRIPTS = (
    *("data.js", "tables.js", "lines.js", "blocks.js", "flame.js", "layers.js"),
    *("stack.js", "program.js", "explorer.js", "map.js", "trade.js", "edits.js", "page.js"),
)
_UPLOT = "vendor", "uplot"
_MISSED = {
    "program": "view of what holds memory",
    "memory": "memory over time",
    "blocks": "the address map",
    "latency": "the distribution of latencies",
}
_FROM = "compare --html, or with report after compare --results"
_FIRST = 4  # allocators that an explorer shows at first
_LEAST = ("min_capacity", "peak_reserved")
_TRADED = ["peak_reserved", "alloc_p50_seconds", "alloc_p99_seconds"]


Section: TypeAlias = dict[str, Any]


def render(
    results: Bundle | Rows,
    *,
    command: str | None = None,
    reference: str | None = None,
    history: pd.DataFrame | None = None,
    answers: Mapping[tuple[str, str], Answer] = MappingProxyType({}),
) -> str:
    """The report as one HTML document; the same input gives the same text.

    `results` may be rows without details; the report then lacks the charts that need them, and says
    so. `command` is shown as the command line that made the report. Ratios are to the allocator
    `reference`, or to the first candidate. `history` is what `asv.history` reads, `answers` are
    those of `check` by workload and device. Raises ResultError for rows that break their schema,
    for no rows, and for an unknown reference.
    """
    bundle_given = results if isinstance(results, Bundle) else Bundle(frame(results))
    table = bundle_given.rows
    if table.empty:
        raise ResultError("no result rows to report")
    all_cases = cases(table)
    looks = looks_of(all_cases)
    sections = [
        _section(bundle_given, case, n, reference, answers) for n, case in enumerate(all_cases, 1)
    ]
    past = None if history is None else changes.series(history)
    return page(
        "report.html.j2",
        _embedded(bundle_given, sections, past, looks, reference),
        sections=sections,
        has_program=any("program" in section["has"] for section in sections),
        means=tables.geometric_means(table, reference=reference),
        heats=tables.heats(all_cases) if len(all_cases) > 1 else [],
        history=[] if past is None else changes.benchmarks(past),
        allocators=list(dict.fromkeys(table["allocator"])),
        workloads=list(dict.fromkeys(table["workload"])),
        devices=list(dict.fromkeys(table["device"])),
        definitions=[one for one in COLUMNS if one.unit and table[one.name].notna().any()],
        provenance=_provenance(table, command),
        absent=_absent(bundle_given.details, all_cases),
        spoken=_spoken_names(table),
    )


def page(
    template: str, data: str, spoken: Mapping[str, str] = MappingProxyType({}), **values: Any
) -> str:
    """A page of its own from a template: with its styles, its scripts and their packed data.

    spoken: specs of allocators and devices, and what people write in their place.
    """
    specs = "|".join(map(re.escape, sorted(spoken, key=len, reverse=True)))
    given = re.compile(rf"(?<![\w:])(?:{specs})(?!\w|[:,=]\w)")

    def say(value: Any) -> Any:
        if type(value) is not str:
            return value
        return given.sub(lambda spec: spoken.get(spec[0], spec[0]), value)

    environment = Environment(
        loader=PackageLoader("allocbench.reports.page"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=say,
    )
    environment.filters["words"] = lambda text: _words(say(text))
    own = "\n".join(_asset("templates", name) for name in _SCRIPTS)
    scripts = [_asset(*_UPLOT, "uPlot.iife.min.js"), own]
    return environment.get_template(template).render(
        data=Markup(data),
        scripts=[Markup(script) for script in scripts],
        policy=" ".join(f"'{_digest(script)}'" for script in scripts),
        styles=Markup(_asset(*_UPLOT, "uPlot.min.css")),
        **values,
    )


def of_difference(
    names: tuple[str, str], words: Sequence[str], parts: Sequence[Sequence[str]], details: Details
) -> str:
    """The page of a difference: its words, its parts (change, old, new, what), and both curves.

    details: the tables `memory`, `moments` and `free_blocks`, whose allocators are the names.
    """
    curves = details["memory"]
    shown = dict(zip(names, ("#0072b2", "#d55e00"), strict=True))
    of_all = {"dash": [], "first": True, "failures": 0}
    about = {
        **{name: str(curves[name].iloc[0]) for name in ("workload", "device")},
        **{"id": "diff", "card": "", "max_load": None, "reference": names[0]},
        "events": int(curves["event"].max()) + 1,
        "allocators": [
            {**of_all, "name": name, "label": spoken(name), "color": color}
            for name, color in shown.items()
        ],
    }
    data = pack({name: table for name, table in details.items() if len(table)}, cases=[about])
    names_spoken = {name: spoken(name) for name in names}
    return page("diff.html.j2", data, names_spoken, names=names, words=words, parts=parts)


def of_edits(
    title: str,
    words: Sequence[str],
    edits: Sequence[Mapping[str, str]],
    choices: Sequence[Mapping[str, Any]],
    *,
    events: int,
    capacity: int | None,
    card: str,
) -> str:
    """The page of a program's edits: boxes choose them, and the curve shows those that are chosen.

    words: the answer. edits: name, how, need, saves, load and cost of each, in words. choices: the
    program as it is, then each edit and some together: the names of its `edits`, its `words`, and
    its `curve`, the requested bytes of each kind in intervals of the `events`. capacity: bytes of
    the `card`, or None.
    """
    given = {"events": events, "capacity": capacity, "card": _card(card), "choices": choices}
    data, names = pack({}, cases=[], edits=given), {card: on_device(card)}
    return page("edits.html.j2", data, names, title=title, words=words, edits=edits)


def of_history(history: pd.DataFrame, title: str) -> str:
    """The page of `asv.history`: a chart and the changes of each benchmark; it needs no network.

    Raises ResultError for a history without numbers.
    """
    if history.empty:
        raise ResultError("no numbers in the history")
    past = changes.series(history)
    looks = {name: _drawn(look) for name, look in looks_of_names(list(past["series"])).items()}
    data = pack({"history": changes.embedded(past)}, cases=[], looks=looks)
    return page("history.html.j2", data, title=title, history=changes.benchmarks(past))


def write(results: Bundle | Rows, path: str | Path, **options: Any) -> None:
    """Write the report of `render`, with its options; "-" is standard output.

    The file appears whole or not at all. Raises UserError when it cannot be written.
    """
    write_text(render(results, **options), path)


def _section(
    given: Bundle,
    case: Case,
    number: int,
    reference: str | None,
    answers: Mapping[tuple[str, str], Answer],
) -> Section:
    """One workload on one device: its verdict and its tables.

    checked: the answer of `check`, if there is one. held: what holds memory, in a sentence.
    has: the charts that there is data for: names of tables, and "trade". blocks_left_out: how many
    blocks of the program the page does not have, because they are too many. failures: allocators,
    and the first request that each failed, in words.
    """
    run = {"workload": case.workload, "device": case.device}
    has = {name for name in TABLES if not of_run(given.details, name, **run).empty}
    if case.rows[_TRADED].notna().all(axis=1).any():
        has.add("trade")
    failures = of_run(given.details, "failures", **run)
    blocks = len(of_run(given.details, "program", **run))
    return {
        "key": f"workload-{number}",
        "case": case,
        "advice": findings.advice(case).lines,
        "answer": findings.answer(case),
        "claims": findings.verdict(case),
        "why": findings.verdict_why(case),
        "checked": answers.get((case.workload, case.device)),
        "held": findings.held(given.details, **run, allocator=case.reference(reference)),
        "summary": tables.case_table(case, tables.SUMMARY, reference),
        "everything": tables.case_table(case, tables.ALL, reference),
        "has": has,
        "blocks_left_out": int(case.rows["blocks"].max()) - blocks,
        "failures": [
            (row["allocator"], findings.failed_request(row)) for row in failures.to_dict("records")
        ],
    }


def _absent(details: Details, cases: Sequence[Case]) -> list[str]:
    remarks = []
    for case in cases:
        run = {"workload": case.workload, "device": case.device}
        missing = [table for table in _MISSED if of_run(details, table, **run).empty]
        if missing == ["latency"]:
            remarks.append(f"{case.title}: no {_MISSED['latency']}: no host time was measured.")
        elif missing:
            words = ", ".join(_MISSED[table] for table in missing)
            remarks.append(
                f"{case.title}: no {words}: the results contain only rows (these charts come with"
                f" {_FROM})."
            )
    return remarks


def _embedded(
    given: Bundle,
    sections: Sequence[Section],
    past: pd.DataFrame | None,
    looks: Mapping[str, Look],
    reference: str | None,
) -> str:
    """The tables that scripts read: those of the details, the rows, and the history."""
    kept = {name: given.details[name] for name in TABLES if not given.details[name].empty}
    if "blocks" in kept:
        kept |= _apart(kept["blocks"])
    if "program" in kept:
        program = kept["program"]  # what a block lives differs less than when it is freed
        kept["program"] = program.assign(last=program["last"] - program["first"])
    numbers = [column.name for column in COLUMNS if column.unit and given.rows[column.name].any()]
    kept["rows"] = given.rows[["workload", "device", "allocator", "candidate", *numbers]]
    all_looks = dict(looks)
    if past is not None:
        kept["history"] = changes.embedded(past)
        all_looks = looks_of_names(list(past["series"])) | all_looks
    return pack(
        kept,
        cases=[_about(section, looks, reference) for section in sections],
        looks={name: _drawn(look) | {"label": spoken(name)} for name, look in all_looks.items()},
    )


def _drawn(look: Look) -> dict[str, Any]:
    return {"color": look.color, "dash": list(look.dash)}


def _apart(blocks: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Packs the columns that the blocks of all allocators share once; the page joins them again.

    The size of a block is stored as the bytes that it has beyond the request, which differ less.
    """
    of_trace = ["requested", "first", "last", "label"]
    allocs = blocks[["workload", "block", *of_trace]].drop_duplicates(["workload", "block"])
    return {
        "blocks": blocks.assign(rounding=blocks["size"] - blocks["requested"]).drop(
            columns=["size", *of_trace]
        ),
        "allocs": allocs.sort_values(["workload", "block"], kind="stable"),
    }


def _about(section: Section, looks: Mapping[str, Look], reference: str | None) -> dict[str, Any]:
    """What scripts need to know about a case in addition to its tables."""
    case = section["case"]
    first = _shown_first(case, reference)
    return {
        "id": section["key"],
        "workload": case.workload,
        "device": case.device,
        "card": _card(label(case.device)),
        "events": int(case.rows["events"].max()),
        "max_load": case.max_load,
        "reference": case.reference(reference),
        "allocators": [
            {
                "name": name,
                "label": spoken(name),
                **_drawn(looks[name]),
                "first": name in first,
                "failures": case.failed.get(name, 0),
            }
            for name in case.allocators
            if name not in case.unavailable
        ],
    }


def _shown_first(case: Case, reference: str | None) -> set[str]:
    """The allocators shown at first: the reference, those of the verdict, the best by memory."""
    advice = findings.advice(case)
    least = [name for metric in _LEAST for name in ranked(case.rows, SCHEMA[metric])]
    wanted = [case.reference(reference), advice.setting, advice.allocator, *least]
    return set([name for name in dict.fromkeys([*wanted, *case.allocators]) if name][:_FIRST])


def _spoken_names(rows: pd.DataFrame) -> dict[str, str]:
    """The specs of rows for which people write something else."""
    devices = set(rows["device"]) | set(map(label, rows["device"]))
    names = {device: on_device(device) for device in devices}
    names |= {spec: spoken(spec) for spec in rows["allocator"]}
    return {spec: name for spec, name in names.items() if name != spec}


def on_device(device: str) -> str:
    """A device as people write it: the card's name, or "a device of 96.0 MiB"."""
    name = re.sub(r"^sim:([\d.]+) ?(\w+)", r"a device of \1 \2", label(device))
    return name.replace(",", " with ", 1) if name.startswith("a device") else name


def _card(name: str) -> str:
    """A card in a picture that states its capacity."""
    return re.sub("^sim:.*", "the device", name)


def _words(text: str) -> Markup:
    """A sentence with its commands as code; long names may break after a file."""
    safe = re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(text)))
    return Markup(re.sub(r"(?<=\.py:)(?=\d)", "<wbr>", safe))


def spoken(spec: str) -> str:
    """An allocator with its settings as people write it: "caching (expandable_segments:True)"."""
    return re.sub(r"^(\w+):(?:conf=)?(\w.*)$", r"\1 (\2)", spec)


@cache
def _asset(*path: str) -> str:
    return files("allocbench.reports.page").joinpath(*path).read_text(encoding="utf-8").strip()


def _digest(script: str) -> str:
    """The hash with which the page's content security policy allows a script."""
    return f"sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}"


def _provenance(table: pd.DataFrame, command: str | None) -> list[tuple[str, list[str]]]:
    """Where the numbers come from: each fact with its distinct values."""
    kinds = table[["device", "device_kind"]].drop_duplicates().itertuples(index=False)
    sources = table[["device", "device_seconds_source"]].dropna().drop_duplicates()
    costs = [f"{label(device)}: {source}" for device, source in sources.itertuples(index=False)]
    facts = [
        ("device", [f"{label(device)} ({kind})" for device, kind in kinds]),
        ("device time", costs),
        *(
            (column.heading, [str(value) for value in table[column.name].dropna().unique()])
            for column in COLUMNS
            if column.group == "origin"
        ),
        ("command", [command.encode("utf-8", "replace").decode()] if command else []),
    ]
    return [(label, values) for label, values in facts if values]


def pack(tables: Mapping[str, pd.DataFrame], **others: Any) -> str:
    """The tables, and any other JSON values, as base64 of gzip of JSON.

    The same input gives the same text. Missing numbers are null.
    """
    packed = {
        name: {str(column): _column(frame[column]) for column in frame}
        for name, frame in tables.items()
    }
    content = {**others, "tables": packed}
    text = json.dumps(content, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return base64.b64encode(gzip.compress(text.encode(), 4, mtime=0)).decode()


def _column(values: pd.Series[Any]) -> dict[str, Any]:
    if values.dtype == bool:
        return {"whole": values.astype(int).tolist(), "flag": True}
    if pd.api.types.is_integer_dtype(values.dtype) and not values.isna().any():
        return _whole(values.to_numpy(np.int64))
    if pd.api.types.is_numeric_dtype(values.dtype):
        numbers = values.astype("float64").tolist()
        return {"number": [float(f"{one:.4g}") if math.isfinite(one) else None for one in numbers]}
    codes, names = pd.factorize(values)
    return {"text": [str(name) for name in names], "codes": codes.tolist()}


def _whole(values: Any) -> dict[str, Any]:
    """Numbers in units of their common divisor, or their differences, the first to 0.

    The form that takes less space is chosen: numbers without order have longer differences.
    """
    differences = np.diff(values, prepend=0)
    unit = int(np.gcd.reduce(differences)) or 1 if len(differences) else 1
    forms = {"differences": differences // unit, "whole": values // unit}
    shortest = min(forms, key=lambda name: _length(forms[name]))
    return {shortest: forms[shortest].tolist(), "unit": unit}


def _length(numbers: NDArray[np.int64]) -> float:
    """About how many bits numbers have, with one for the sign if some are negative."""
    signs = len(numbers) if np.any(numbers < 0) else 0
    return float(np.log2(np.abs(numbers) + 1.0).sum()) + signs
