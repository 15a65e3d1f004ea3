# SPDX-License-Identifier: Apache-2.0
"""Tables, findings, advice, figures and pages of small inputs are as they were frozen."""

import base64
import gzip
import itertools
import json
import math
import re
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_hex

from allocbench import api
from allocbench.questions.error_text import verdict
from allocbench.replays import experiment
from allocbench.replays.experiment import Effort
from allocbench.reports.advice import (
    check,
    confidence,
    coverage,
    diff,
    error_text,
    findings,
    fitting,
    recommending,
)
from allocbench.reports.advice.choosing import Weights
from allocbench.reports.charts import figures
from allocbench.reports.page import changes, html, tables
from allocbench.reports.rows import asv, bundle, details, ranking, results
from allocbench.reports.rows.bundle import Bundle
from allocbench.reports.rows.columns import COLUMNS
from allocbench.workloads.error_texts import parse
from tests import drawn_calls
from tests.answer_inputs import CASES, TEXTS
from tests.commands import run
from tests.fuzz.damage import damaged
from tests.gold import Gold, facts, outcome
from tests.questions import test_error_text as known
from tests.reports.test_recommending import rows as advised_rows
from tests.result_rows import GIB, floor, memory, row, sized, with_memory

_PACKED = re.compile(r"[A-Za-z0-9+/=]{400,}")
_TAG = re.compile(r"<(script|style|svg)\b.*?</\1>|<[^>]*>", re.DOTALL)
_PAGES = [
    *(f"check {name} --device {device} --all" for name, device in CASES[1:30:3]),
    "check leak.parquet --device sim:1GiB",
    "compare training.parquet leak.parquet --device sim:1GiB --allocators caching,bfc,naive",
    "compare failed.pickle --device sim:1GiB --allocators caching,rmm_pool --time 2",
    "diff training.parquet other.parquet",
    "diff leak.parquet --allocators caching,bfc",
    "whatif gpt2-train.parquet --device sim:4GiB",
]
_SPECS = (
    *("caching", "bfc", "naive", "planned", "caching:conf=expandable_segments:True", "tlsf"),
    *(f"slab:slab={n}KiB,of_a_long_name=true" for n in (64, 128, 1024)),
)
_FLOOR = "ground:of_a_name=that_is_too_long_for_a_label"
_ODD: dict[str, Sequence[Any]] = {
    "min_capacity": (None,),
    "seconds_per_event_steady": (None, 0.0, 4e-8),
    "seconds_per_event_steady_median": (None, 9e-8),
    "seconds_per_event_steady_max": (9e-7,),
    "alloc_p50_seconds": (None, 1e-9),
    "alloc_p99_seconds": (None, 3e-5),
    "device_seconds": (None, 0.0, 1e-6, 0.004, 0.2),
    "device_calls_steady": (0, 9000),
    "external_fragmentation": (None, 0.0, 1.0),
    "fragmentation_ratio": (None, 0.0),
    "stable_address_share": (None, 0.0, 1.0),
    "overhead": (None, 1.0, 12.5),
    "max_load": (None, 12 * GIB),
    "failures": (1, 3),
    "passes": (1, 3),
    "candidate": (False,),
    "unavailable": ("needs a GPU",),
}


def _drawn_rows(seed: int) -> list[dict[str, Any]]:
    """Rows whose numbers are often equal, absent, or far from the others."""
    rng, rows = Random(seed), []
    many = [f"train {n}" for n in range(4 + seed % 2)]
    workloads = (["train"], ["train", "serve"], many)[seed % 3]
    devices = ["sim:80GiB", "sim:24GiB"][: 2 if len(workloads) == 1 else 1]
    most = 3 if len(workloads) > 2 else len(_SPECS)
    specs = [*rng.sample(_SPECS, rng.randrange(1, most)), *rng.choice([[], [_FLOOR]])]
    source, odd = rng.choice(["estimate", "measured"]), rng.choice([0, 0.1, 0.3])
    for workload, device in itertools.product(workloads, devices):
        load = rng.choice([8, 8, 0]) * GIB
        for name in specs:
            made = floor(name, workload) if name == _FLOOR else {}
            size = rng.choice([8, 200] if made else [8, 9, 9.5, 9.95, 10, 10.4, 12, 90])
            time = rng.choice([1, 20, 39.9, 40, 40, 40.5, 400])
            changes = {one: rng.choice(_ODD[one]) for one in _ODD if rng.random() < odd}
            changes = {"device_seconds_source": source, "max_load": load} | changes
            rows.append(made | sized(name, size, time, workload, device=device, **changes))
            if name == _FLOOR:
                rows[-1]["candidate"] = False
    return rows


def test_columns_of_results(gold: Gold) -> None:
    """What results files hold, by name: their readers depend on it."""
    rows = {one.name: vars(one) | {"definition": ""} for one in COLUMNS}
    tables_of = {name: list(one.all.items()) for name, one in details.TABLES.items()}
    gold("report_columns", {"rows": rows, "details": tables_of})


def test_files_of_results(gold: Gold, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows, sweeps and bundles as they are written, and damaged: what is read, or what is wrong."""
    monkeypatch.chdir(tmp_path)

    def read(content: bytes) -> Any:
        Path("file").write_bytes(content)
        found = bundle.read("file")
        rows = found.rows[["workload", "device", "allocator", "peak_reserved", "overhead"]]
        return rows, {name: len(one) for name, one in found.details.items()}, found.notes

    contents = {"nothing": b""}
    for seed in range(40):
        rng = Random(seed)
        rows: Any = [row("bfc"), sized("naive", 9, 40, "serve"), row("slab", device="sim:8GiB")]
        rows = rows[: rng.randrange(1, 4)]
        runs = [
            {
                "key": {
                    **{name: one[name] for name in ("workload", "allocator", "device")},
                    **{"trace": rng.choice("ab"), "code": rng.choice("cd")},
                },
                "row": one,
                "error": rng.choice([None, "it ended"]),
            }
            for one in rows * 2
        ]
        if seed % 2:
            rows, runs = (damaged(one, rng.randbytes(4)) for one in (rows, runs))
        contents[f"rows {seed}"] = json.dumps(rows).encode()
        lines = "".join(f"{json.dumps(one)}\n" for one in runs)
        contents[f"sweep {seed}"] = lines[: rng.choice([-1, None, None])].encode()
        whole = with_memory(
            [row("bfc"), row("naive")], *(memory("bfc", n) for n in range(seed % 3))
        )
        bundle.write(whole, "bundle")
        contents[f"bundle {seed}"] = Path("bundle").read_bytes()
    gold("report_files", {name: facts(outcome(read, one)) for name, one in contents.items()})


def _of_rows(rows: Sequence[dict[str, Any]]) -> Any:
    """The tables, rankings and sentences of result rows."""
    table = results.frame(rows)
    found: dict[str, Any] = {
        "tables": tables.comparison(table),
        "means": tables.geometric_means(table),
        "markdown": facts(tables.to_markdown(table)),
        "json": facts(json.loads(results.to_json(rows))),
    }
    for case in ranking.cases(table):
        key = f"{case.workload} {case.device}"
        found[key] = {
            "verdict": findings.verdict(case),
            "advice": findings.advice(case),
            "answer": findings.answer(case),
            "why": findings.verdict_why(case),
            "ranks": {
                column.name: [
                    ranking.ranked(case.rows, column),
                    ranking.best(case.rows, column),
                    {name: str(mark) for name, mark in ranking.marks(case.rows, column).items()},
                ]
                for column in COLUMNS
                if column.unit and column.lower_is_better is not None
            },
        }
    found["fits"] = [fitting.answer("it", one, None) for one in results.records(table)]
    found["heats"] = tables.heats(ranking.cases(table))
    return facts(found)


@pytest.mark.parametrize("first", range(0, 12, 4))
def test_drawn_rows(first: int, gold: Gold) -> None:
    found = {str(seed): _of_rows(_drawn_rows(seed)) for seed in range(first, first + 4)}
    gold(f"report_rows_{first}", found)


@pytest.mark.parametrize("n", range(4))
def test_rows_of_replays(n: int, gold: Gold, in_inputs: Path) -> None:
    name, device = CASES[(1, 11, 15, 24)[n]]
    trace, where = api._case(name, device)
    specs = ("caching", "bfc", "rmm_pool", "naive")
    rows = [experiment.run(trace, spec, where, Effort(2), workload="it")[0] for spec in specs]
    gold(f"report_replay_{n}", {name: _of_rows(rows)})


@pytest.mark.parametrize("seed", range(8))
def test_figures(seed: int, gold: Gold) -> None:
    """What each figure draws: the texts, the ends of lines and bars, the limits of its axes."""
    rows, rng, parts = _drawn_rows(seed), Random(seed), list[dict[str, pd.DataFrame]]()
    for one in rows:
        run = {name: one[name] for name in ("workload", "device", "allocator")}
        points = rng.choice([1, 50, 240, 241, 600])
        times = [0.0, *sorted(rng.choice([1e-8, 2e-8, 5e-8, 1e-6, 1e-4]) for _ in range(4))]
        calls = {"call": ["alloc"] * 3 + ["free"] * 2, "quantile": [0, 0.5, 0.999, 0.999, 1]}
        if rng.random() < 0.8:
            parts.append({"latency": details.table("latency", calls | {"seconds": times}, **run)})
            peak = one["peak_reserved"] * rng.choice([1, 1, 2])
            made = memory(one["allocator"], peak, points, one["workload"], one["device"])
            parts.append({"memory": made})
    _freeze_figures(str(seed), Bundle(results.frame(rows), details.join(parts)), gold)


@pytest.mark.parametrize(
    ("n", "device"), [(11, "sim:900MiB"), (14, "sim:600MiB"), (25, "sim:96MiB")]
)
def test_figures_of_replays(n: int, device: str, gold: Gold, in_inputs: Path) -> None:
    traces = {name: api._case(name, device)[0] for name in (CASES[n][0], "leak.parquet")}
    specs = ("caching", "bfc", "naive", "bump")
    rows, details = experiment.run_matrix(traces, specs, device, Effort(0), detailed=True)
    _freeze_figures(f"replay_{n}", Bundle(results.frame(rows), details), gold)


def _freeze_figures(name: str, whole: Bundle, gold: Gold) -> None:
    found = {}
    for title, draw in figures.figures_of(whole):
        figure = draw()
        found[title] = [
            [*figure.get_size_inches(), *(facts(one.get_text()) for one in _texts(figure))],
            *(_drawn(axes) for axes in figure.axes),
        ]
        plt.close(figure)
    gold(f"report_figures_{name}", found)


def _drawn(axes: Any) -> Any:
    return {
        "limits": [*axes.get_xlim(), *axes.get_ylim()],
        "texts": [
            [text.get_text(), to_hex(text.get_color()), text.get_ha(), *_place(text)]
            for text in axes.texts
        ],
        "titles": [axes.get_title(side) for side in ("left", "right")],
        "labels": [axes.get_xlabel(), axes.get_ylabel(), axes.get_title()],
        "turned": [text.get_rotation() for text in axes.get_xticklabels()[:1]],
        "frames": [one.get_frame_on() for one in [axes.get_legend()] if one],
        "ticks": [text.get_text() for text in axes.get_yticklabels()],
        "bars": [
            [bar.get_x(), bar.get_width(), bar.get_height(), _color(bar)]
            for bar in axes.patches[:40]
        ],
        "lines": [
            [*line.get_xdata()[:20], *line.get_ydata()[:20], line.get_linestyle(), _color(line)]
            for line in axes.lines
        ],
        "points": [
            [[float(n) for point in np.ma.filled(points.get_offsets(), -1.0) for n in point][:80]]
            + [to_hex(color) for color in points.get_facecolor()[:20]]
            for points in axes.collections
        ],
        "scales": [axes.get_xscale(), axes.get_yscale(), len(axes.get_xticks()), axes.axison],
    }


def _place(text: Any) -> Any:
    return getattr(text, "xy", text.get_position())


def _color(artist: Any) -> str:
    color = artist.get_facecolor() if hasattr(artist, "get_facecolor") else artist.get_color()
    return to_hex(color, keep_alpha=True)


def _texts(figure: Any) -> list[Any]:
    legends = [*figure.legends, *(axes.get_legend() for axes in figure.axes)]
    return [*figure.texts, *(text for one in legends if one for text in one.get_texts())]


@pytest.mark.parametrize("line", _PAGES)
def test_pages(line: str, gold: Gold, in_inputs: Path, tmp_path: Path) -> None:
    """The data of the charts, and the numbers of the text of a page."""
    assert run(f"{line} --html {tmp_path / 'page.html'}").exit_code in (0, 1, 2)
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    shown, _, _ = page.partition('<section id="provenance">')  # the day, the machine
    packed = [
        json.loads(gzip.decompress(base64.b64decode(one)))
        for one in _PACKED.findall(page)
        if one.startswith("H4sI")
    ]
    assert packed
    name = re.sub(r"\W+", "_", line)
    gold(f"page_{name}", {"data": _digests(packed), "text": facts(_TAG.sub(" ", shown))})


@pytest.mark.parametrize("seed", range(6))
def test_pages_of_drawn_rows(seed: int, gold: Gold) -> None:
    """Also where the numbers come from: the machine and the day are those of the rows."""
    rows = _drawn_rows(seed)
    page = html.render(rows, command="allocbench it", history=_history(seed) if seed % 2 else None)
    packed = [json.loads(gzip.decompress(base64.b64decode(one))) for one in _PACKED.findall(page)]
    gold(f"page_{seed}", {"data": _digests(packed), "text": facts(_TAG.sub(" ", page))})


def _history(seed: int) -> pd.DataFrame:
    """Series of benchmarks that rise, fall, stay, begin late, end early, or have no metric."""
    rng, rows = Random(seed), list[dict[str, Any]]()
    for name, metric, unit in (
        ("memory.Memory.track_peak_reserved", "peak_reserved", "bytes"),
        ("latency.Latency.latency_alloc", "alloc", "seconds"),
        ("memory.Memory.track_overhead", "overhead", "ratio"),
        ("track_utilization", "utilization", "ratio"),
        ("peaks.Peaks.track_held", "held", "count"),
    )[: rng.randrange(1, 6)]:
        for allocator in ("bfc", "caching", "")[: rng.randrange(1, 4)]:
            parameter = rng.choice(["", "streams=2", "holder=a", "a=1 b=2"])
            value = rng.choice([0.25, 40.0, 1234.5, 4096.0, -2000.0, 3e9])
            first, last = rng.choice([(0, 5), (0, 5), (0, 4), (3, 5), (4, 5)])
            for commit in range(first, last):
                rows.append(
                    dict.fromkeys(asv.COLUMNS, "")
                    | {
                        "benchmark": name,
                        "metric": metric,
                        "unit": unit,
                        "allocator": allocator,
                        "parameters": parameter,
                        "workload": "train",
                        "value": value,
                        "commit": str(commit) * 40,
                        "machine": rng.choice(["a", "null-l4-24gb"][: 1 + seed % 2]),
                        "date": pd.Timestamp(1_700_000_000 + commit, unit="s", tz="UTC"),
                        "low": math.nan,
                        "high": math.nan,
                    }
                )
                value *= rng.choice([1, 1, 1.0005, 1.5, 0.5, 12])
    return pd.DataFrame(rows).astype(asv.COLUMNS)


def test_changes_of_a_history(gold: Gold) -> None:
    found = {}
    for seed in range(60):
        told = changes.benchmarks(changes.series(_history(seed)))
        found[str(seed)] = [[one.title, one.newest, one.others, *one.changes] for one in told]
    gold("report_changes", found)


def test_error_texts(gold: Gold) -> None:
    """The facts of the sentences about each text, and how many sentences there are."""
    words = (known.TORCH_1_0, known.TORCH_1_11, known.TORCH_2_1, known.TORCH_2_13, known.NPU)
    texts = [*TEXTS.values(), *(text for text, *_ in known.KNOWN.values())]
    for wording in words:
        for x, f, r, a, p, *_ in known.NUMBERS.values():
            texts.append(wording.format(x=x, f=f, r=r, a=a, p=p, total=a))
    found = {}
    for n, text in enumerate(texts):
        if error := parse(text):
            told = error_text.sentences(error, verdict(error), "")
            found[str(n)] = [*map(facts, told), len(" ".join(told).split())]
    plans = {f"plan {own}": error_text.xla_plan(1000, own).split() for own in (900, 1000, 3000)}
    gold("report_error_texts", found | plans)


_SENTENCES = (check, confidence, coverage, diff, error_text, findings, recommending)


@pytest.mark.parametrize("module", _SENTENCES, ids=lambda module: module.__name__.split(".")[-1])
def test_sentences(module: Any, gold: Gold) -> None:
    """Of numbers that are often equal, at each boundary of what a sentence compares."""
    gold(f"sentences_{module.__name__.split('.')[-1]}", drawn_calls.results(module, 240))


def _advice(seed: int) -> Any:
    """Advice over allocators whose needs and times are close, and how sure it is."""
    random = Random(seed)
    given = {
        name: (
            random.choice([9.9, 10, 10.04, 11, 12]),
            random.choice([0, 0.3, 0.5, 1, 3]),
            random.random() < 0.7,
        )
        for name in ("default", "setting", "expandable", "other", "naive", "bump")
        if name == "default" or random.random() < 0.7
    }
    table = advised_rows(random.choice([9, 10.5, 12.5, 20]), **given)
    shaky = {spec for spec in table["allocator"] if random.random() < 0.15}
    held = random.choice([0, 0, 8 << 30])
    advice = recommending.advise(
        table, shaky=shaky, held=held, weights=random.choice([Weights(), Weights(2, 3, 5, 7, 11)])
    )
    counted = table.assign(failed_orders=[random.choice([0, 0, 1, 3]) for _ in given])
    orders = confidence.OtherOrders(*(random.choice([0, 1, 2, 3, 12]) for _ in range(4)))
    missing = random.choice(["", "", "the end is missing"])
    grows = random.random() < 0.2
    sure = confidence.confidence(counted, advice, orders=orders, coverage=missing, grows=grows)
    words = [len(line.split()) for line in (*advice.lines, *sure.grounds)]
    return [facts(advice), facts(sure), words]


def test_advice(gold: Gold) -> None:
    gold("report_advice", {str(seed): outcome(_advice, seed) for seed in range(250)})


def _digests(value: Any) -> Any:
    """The same, where long lists of numbers are arrays, of which a digest is frozen."""
    match value:
        case dict():
            return {key: _digests(one) for key, one in value.items()}
        case list() if len(value) > 24 and all(type(one) in (int, float) for one in value):
            return np.array(value)
        case list():
            return [_digests(one) for one in value]
    return value
