# SPDX-License-Identifier: Apache-2.0
"""Tables, findings, advice, figures and pages of small inputs are as they were frozen."""

import base64
import gzip
import json
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
from allocbench.reports.page import tables
from allocbench.reports.rows import ranking, results
from allocbench.reports.rows.bundle import Bundle
from allocbench.reports.rows.columns import COLUMNS
from allocbench.workloads.error_texts import parse
from tests import drawn_calls
from tests.answer_inputs import CASES, TEXTS
from tests.commands import run
from tests.gold import Gold, facts, outcome
from tests.questions import test_error_text as known
from tests.reports.test_recommending import rows as advised_rows
from tests.result_rows import floor, memory, row, sized

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
_ROWS: dict[str, list[dict[str, Any]]] = {
    "equal": [row("caching"), row("bfc"), row("naive")],
    "ranked": [sized("caching", 10, 40), sized("bfc", 9.5, 60), sized("naive", 12, 20), floor()],
    "close": [sized("caching", 10, 40), sized("bfc", 9.95, 40.5), sized("slab", 10.4, 39.9)],
    "far": [sized("caching", 10, 40), sized("bfc", 9, 60), sized("slab", 90, 20), floor()],
    "many": [*(sized(f"slab:slab={n}KiB", 8 + n % 5, 20 + n) for n in range(1, 14)), floor()],
    "beyond": [sized("caching", 12, 40), {**floor(), "peak_reserved": 90 << 30, "overhead": 40.0}],
    "failed": [
        sized("caching", 10, 40),
        sized("bfc", 9, 30, failures=3, min_capacity=None),
        sized("buddy", 16, 20, failures=1),
    ],
    "absent": [
        sized("caching", 10, 40, min_capacity=None, seconds_per_event_steady=None),
        sized("bfc", 9, 30, device_seconds=None),
        sized("tlsf", 9, 30, external_fragmentation=None, candidate=False),
    ],
    "devices": [
        sized(name, size, time, workload, device=device)
        for name, size, time in (("caching", 10, 40), ("bfc", 9, 50), ("planned", 8, 30))
        for workload in ("train", "serve")
        for device in ("sim:80GiB", "sim:24GiB")
    ],
    "measured": [
        sized("caching", 10, 40, device_seconds=0.002, device_seconds_source="measured"),
        sized("bfc", 10, 40, device_seconds=0.001, device_seconds_source="measured"),
    ],
    "estimates": [
        sized("caching", 10, 40, device_seconds=0.02),
        sized("bfc", 9, 41, device_seconds=0.004),
        sized("naive", 11, 90, device_seconds=0.2, device_calls_steady=9000),
    ],
}


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


@pytest.mark.parametrize("name", _ROWS)
def test_made_up_rows(name: str, gold: Gold) -> None:
    gold(f"report_rows_{name}", {name: _of_rows(_ROWS[name])})


@pytest.mark.parametrize("n", range(4))
def test_rows_of_replays(n: int, gold: Gold, in_inputs: Path) -> None:
    name, device = CASES[(1, 11, 15, 24)[n]]
    trace, where = api._case(name, device)
    specs = ("caching", "bfc", "rmm_pool", "naive")
    rows = [experiment.run(trace, spec, where, Effort(2), workload="it")[0] for spec in specs]
    gold(f"report_replay_{n}", {name: _of_rows(rows)})


@pytest.mark.parametrize("name", _ROWS)
def test_figures(name: str, gold: Gold) -> None:
    """What each figure draws: the texts, the ends of lines and bars, the limits of its axes."""
    table = results.frame(_ROWS[name])
    lines = {
        one["allocator"]: memory(one["allocator"], one["peak_reserved"]) for one in _ROWS[name]
    }
    details = {**Bundle(table).details, "memory": pd.concat(lines.values())}
    _freeze_figures(name, Bundle(table, details), gold)


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
            [text.get_text(), to_hex(text.get_color()), text.get_ha()] for text in axes.texts
        ],
        "titles": [axes.get_title(side) for side in ("left", "right")],
        "labels": [facts(axes.get_xlabel()), facts(axes.get_ylabel()), facts(axes.get_title())],
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
