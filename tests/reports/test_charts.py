# SPDX-License-Identifier: Apache-2.0
"""Charts of details and across workloads: they show the tables, and no text overlaps."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("seaborn")

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from allocbench.replays import experiment
from allocbench.replays.experiment import Effort
from allocbench.replays.trace_blocks import TraceBlocks
from allocbench.reports.charts import charts, export, figures, theme, workload_figures
from allocbench.reports.charts.charts import Chart
from allocbench.reports.charts.looks import looks_of
from allocbench.reports.rows.bundle import Bundle
from allocbench.reports.rows.details import join, none, of_run
from allocbench.reports.rows.ranking import cases
from allocbench.reports.rows.results import frame
from allocbench.workloads import catalog
from tests import panel_texts
from tests.allocators.test_replay import program
from tests.result_rows import HOSTILE, floor, row, sized

SPECS = ("bfc", "naive", "buddy", "bump")


@pytest.fixture(scope="module")
def given() -> Bundle:
    rows, parts = [], []
    for workload, trace in (("gpt2", catalog.load("gpt2-train")), ("small", program())):
        prepared = TraceBlocks.of(workload, trace)
        parts.append(prepared.details())
        for spec in SPECS:
            made, found = experiment.run(
                trace,
                spec,
                "sim:80GiB",
                Effort(1, capacity=False),
                workload=workload,
                trace_blocks=prepared,
            )
            rows.append(made)
            parts.append(found)
    return Bundle(frame(rows), join(parts))


def of_first(given: Bundle) -> dict[str, Chart]:
    found = cases(given.rows)
    made = charts.of_case(given.details, found[0], "k", looks_of(found))
    return {chart.key.removeprefix("k-"): chart for chart in made}


def drawn(figure: Figure) -> Figure:
    FigureCanvasAgg(figure).draw()  # type: ignore[no-untyped-call]
    return figure


def test_every_table_has_its_chart(given: Bundle) -> None:
    assert list(of_first(given)) == ["memory", "latency", "percentiles", "scaling", "free"]
    (case, _) = cases(given.rows)
    assert list(charts.of_case(none(), case, "k", looks_of([case]))) == []


def test_no_text_lies_over_another(given: Bundle) -> None:
    every = [*of_first(given).values(), *charts.across(given.rows)]
    assert len(every) > 8
    for chart in every:
        with theme.style():
            figure = drawn(chart.draw())
        for panel in (axes for axes in figure.axes if axes.get_visible()):
            boxes = [(t.get_text(), t.get_window_extent()) for t in panel_texts.shown(panel)]
            for (one, first), (other, second) in combinations(boxes, 2):
                across = min(first.x1, second.x1) - max(first.x0, second.x0)
                high = min(first.y1, second.y1) - max(first.y0, second.y0)
                assert across < 2 or high < 3, f"{chart.key}: {one!r} lies over {other!r}"


def test_the_distribution_is_drawn_from_its_table(given: Bundle) -> None:
    chart = of_first(given)["latency"]
    figure = chart.draw()
    panels = [panel for panel in figure.axes if panel.get_visible()]
    assert [panel.get_title("left") for panel in panels] == ["alloc", "free"]
    for panel in panels:
        assert len(panel.lines) == len(SPECS)
        for line in panel.lines:
            assert np.all(np.diff(np.asarray(line.get_ydata())) >= 0)
    table = of_run(given.details, "latency", workload="gpt2", allocator="bfc")
    mine = table[table["call"] == "alloc"]
    shown = np.asarray(panels[0].lines[0].get_xdata())
    assert shown.tolist() == mine.loc[mine["seconds"] > 0, "seconds"].tolist()


def test_free_blocks_become_a_grid() -> None:
    rows = pd.DataFrame(
        {"event": [1, 1, 5], "size_class": [4, 6, 5], "blocks": [1, 1, 2], "bytes": [16, 64, 70]}
    )
    events, classes, cells = workload_figures.free_grid(rows)
    assert (events.tolist(), classes.tolist()) == ([1, 5], [4, 5, 6])
    assert cells.tolist() == [[16, 0], [0, 70], [64, 0]]


def test_a_pareto_front_holds_the_points_that_no_other_beats() -> None:
    points = {"a": (1.0, 9.0), "b": (2.0, 4.0), "c": (2.0, 5.0), "d": (3.0, 4.0), "e": (4.0, 1.0)}
    assert figures.pareto_front(points) == ["a", "b", "e"]
    assert figures.pareto_front({}) == []


def test_ranks_leave_out_failed_allocators_and_floors() -> None:
    rows = [
        sized("a", 9, 40, "one"),
        sized("b", 12, 20, "one"),
        floor(workload="one"),
        sized("a", 12, 40, "two", failures=1),
        sized("b", 10, 20, "two"),
    ]
    table = workload_figures.ranks(cases(frame(rows)), "peak_reserved")
    assert table.index.tolist() == ["a", "b"]
    assert table.to_numpy()[1].tolist() == [2, 1]
    assert table.to_numpy()[0, 0] == 1
    assert np.isnan(table.to_numpy()[0, 1])


def test_a_heat_map_says_the_metric_and_colors_the_ratio() -> None:
    rows = [
        sized("a", 9, 40, "one"),
        sized("b", 18, 20, "one"),
        sized("a", 12, 40, "two", failures=1, overhead=None),
        sized("b", 10, 20, "two"),
    ]
    (panel, _) = workload_figures.heat_map(cases(frame(rows)), "overhead").axes
    assert [text.get_text() for text in panel.texts] == ["1.12x", "2.25x", "failed", "1.25x"]
    shown: Any = panel.collections[0].get_array()
    values = np.ma.filled(shown, np.nan).ravel()  # by row: a, then b
    assert values[[0, 2, 3]].tolist() == [1, 2, 1]
    assert np.isnan(values[1])


def test_simulated_and_measured_are_labeled_side_by_side() -> None:
    on_gpu: dict[str, Any] = {
        "device": "cuda:0",
        "device_kind": "cuda",
        "device_seconds_source": "measured",
    }
    rows = [row("a", "one"), row("a", "two"), row("a", "one", **on_gpu), row("a", "two", **on_gpu)]
    assert [case.title for case in cases(frame(rows))] == [
        "one on sim:80GiB (simulated)",
        "one on cuda:0 (measured)",
        "two on sim:80GiB (simulated)",
        "two on cuda:0 (measured)",
    ]


def test_every_chart_is_written_as_svg_and_png_with_harmless_names(
    given: Bundle, tmp_path: Path
) -> None:
    few = Bundle(given.rows[given.rows["workload"] == "small"], given.details)
    written = export.write(few, tmp_path / "figures")
    names = {path.name for path in written}
    assert {"small-memory.svg", "small-memory.png", "overhead.svg", "small-trade.png"} <= names
    assert {path.name for path in (tmp_path / "figures").iterdir()} == names
    for path in written:
        data = path.read_bytes()
        assert data.startswith(b"\x89PNG" if path.suffix == ".png" else b"<?xml")
        assert len(data) > 2000
    before = {path: path.read_bytes() for path in written if "overhead" in path.name}
    only = Bundle(few.rows, none())
    export.write(only, tmp_path / "figures")
    assert {path: path.read_bytes() for path in before} == before


def test_file_names_consist_of_harmless_letters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(export, "drawn", lambda *_: b"")
    rows = [row("a", "../../etc/x", min_capacity=None, device_seconds=None)]
    rows += [row("a", HOSTILE), row("a", "..\\é")]
    written = export.write(Bundle(frame(rows)), tmp_path)
    assert {path.parent for path in written} == {tmp_path}
    assert {"etc-x-trade.svg", "e-trade.svg"} <= {path.name for path in written}
