# SPDX-License-Identifier: Apache-2.0
"""The figures: their numbers, labels of modelled ones, and no overlapping texts."""

from collections.abc import Callable
from functools import partial
from itertools import combinations
from typing import Any

import pandas as pd
import pytest

pytest.importorskip("seaborn")

from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.transforms import Bbox

from allocbench.replays import experiment
from allocbench.replays.experiment import Effort
from allocbench.replays.trace_blocks import TraceBlocks
from allocbench.reports.charts import figures
from allocbench.reports.charts.looks import looks_of
from allocbench.reports.charts.panels import pareto_front, seconds_axis, style
from allocbench.reports.rows.bundle import Bundle
from allocbench.reports.rows.details import join, none
from allocbench.reports.rows.ranking import cases
from allocbench.reports.rows.results import frame
from allocbench.workloads import catalog
from tests import panel_texts
from tests.allocators.test_replay import program
from tests.result_rows import HOSTILE, floor, row, sized


def of_row(key: str) -> Callable[[pd.DataFrame], Figure]:
    """What draws a figure of result rows."""
    metrics, bound = figures.ROW_FIGURES[key]
    return partial(figures.of_metrics, metrics=metrics, bound=bound)


def of_first(table: pd.DataFrame) -> Figure:
    """Latency against memory of the first case."""
    case = cases(table)[0]
    return figures.latency_against_memory(case, looks_of([case]))


ACROSS = [
    *(of_row(key) for key in ("capacity", "overhead", "fragmentation", "host", "device")),
    of_first,
]


def matrix(workloads: int, allocators: int) -> pd.DataFrame:
    """Many rows with long names, a failure, a null and a floor."""
    rows: list[dict[str, Any]] = []
    for w in range(workloads):
        workload = f"a-workload-with-a-long-name-{w}"
        for a in range(allocators):
            name = f"strategy:first_option={a},second_option=true,third_option={a}GiB"
            rows.append(sized(name, 9 + a % 5, 20 + 3 * a, workload))
        rows.append(floor(workload=workload))
    rows[-2].update(failures=7, min_capacity=None)
    return frame(rows)


def drawn(figure: Figure) -> Figure:
    """The figure laid out as it is when saved."""
    FigureCanvasAgg(figure).draw()  # type: ignore[no-untyped-call]
    return figure


def panels(figure: Figure) -> list[Axes]:
    """The panels that show something."""
    return [axes for axes in figure.axes if axes.get_visible()]


def numbers(panel: Axes) -> list[str]:
    """The texts written next to the marks, top to bottom."""
    return [text.get_text() for text in panel.texts]


def box(text: Text) -> Bbox:
    """The pixels of a text, without the line that leads to it, a little less than its line."""
    extent = Text.get_window_extent(text)
    return Bbox.from_extents(extent.x0, extent.y0 + 2, extent.x1, extent.y1 - 2)


@pytest.mark.parametrize("draw", ACROSS)
@pytest.mark.parametrize(("workloads", "allocators"), [(1, 1), (1, 12), (10, 3)])
def test_no_text_lies_over_another(
    draw: Callable[[pd.DataFrame], Figure], workloads: int, allocators: int
) -> None:
    figure = drawn(draw(matrix(workloads, allocators)))
    assert len(panels(figure)) >= (1 if draw is of_first else workloads)
    for panel in panels(figure):
        boxes = [(text.get_text(), box(text)) for text in panel_texts.shown(panel)]
        for (one, first), (other, second) in combinations(boxes, 2):
            assert not first.overlaps(second), f"{one!r} lies over {other!r}"
    page = figure.bbox
    for panel in panels(figure):
        for text in panel.texts:
            assert box(text).x1 <= page.x1 + 1, f"{text.get_text()!r} leaves the page"


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


def test_every_figure_has_its_data_and_no_text_lies_over_another(given: Bundle) -> None:
    made = dict(figures.figures_of(given))
    every = {
        f"{name}-{key}" for name in ("gpt2", "small") for key in ("trade", "memory", "latency")
    }
    heats = {"heat-overhead", "heat-seconds_per_event_steady", "heat-alloc_p99_seconds"}
    assert made.keys() == every | heats | (figures.ROW_FIGURES.keys() - {"capacity"})
    rows_only = dict(figures.figures_of(Bundle(given.rows, none()))).keys()
    assert made.keys() - rows_only == {name for name in every if not name.endswith("trade")}
    for name in sorted(made.keys() - figures.ROW_FIGURES.keys()):
        with style():
            figure = drawn(made[name]())
        for panel in panels(figure):
            boxes = [(t.get_text(), t.get_window_extent()) for t in panel_texts.shown(panel)]
            for (one, first), (other, second) in combinations(boxes, 2):
                across = min(first.x1, second.x1) - max(first.x0, second.x0)
                high = min(first.y1, second.y1) - max(first.y0, second.y0)
                assert across < 2 or high < 3, f"{name}: {one!r} lies over {other!r}"


def test_a_pareto_front_holds_the_points_that_no_other_beats() -> None:
    points = {"a": (1.0, 9.0), "b": (2.0, 4.0), "c": (2.0, 5.0), "d": (3.0, 4.0), "e": (4.0, 1.0)}
    assert pareto_front(points) == ["a", "b", "e"]
    assert pareto_front({}) == []


def test_every_chart_is_written_as_svg_and_png_with_harmless_names(
    given: Bundle, tmp_path: Path
) -> None:
    few = Bundle(given.rows[given.rows["workload"] == "small"], given.details)
    written = figures.write(few, tmp_path / "figures")
    names = {path.name for path in written}
    assert {"small-memory.svg", "small-memory.png", "overhead.svg", "small-trade.png"} <= names
    assert {path.name for path in (tmp_path / "figures").iterdir()} == names
    for path in written:
        data = path.read_bytes()
        assert data.startswith(b"\x89PNG" if path.suffix == ".png" else b"<?xml")
        assert len(data) > 2000
    before = {path: path.read_bytes() for path in written if "overhead" in path.name}
    only = Bundle(few.rows, none())
    figures.write(only, tmp_path / "figures")
    assert {path: path.read_bytes() for path in before} == before


def test_file_names_consist_of_harmless_letters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(figures, "picture", lambda *_: b"")
    rows = [row("a", "../../etc/x", min_capacity=None, device_seconds=None)]
    rows += [row("a", HOSTILE), row("a", "..\\é")]
    written = figures.write(Bundle(frame(rows)), tmp_path)
    assert {path.parent for path in written} == {tmp_path}
    assert {"etc-x-trade.svg", "e-trade.svg"} <= {path.name for path in written}


def test_a_tick_of_seconds_has_a_unit() -> None:
    figure = Figure()
    panel = figure.subplots()
    panel.set(xscale="log", xlim=(2e-8, 3e-3))
    seconds_axis(panel, "latency")
    drawn(figure)
    ticks = [text.get_text() for text in panel.get_xticklabels()]
    assert ticks[1:-1] == ["100 ns", "1 us", "10 us", "100 us", "1 ms"]
    panel.set(xlim=(2e-8, 1.1e-7))
    seconds_axis(panel, "latency")
    drawn(figure)
    assert "50 ns" in [text.get_text() for text in panel.get_xticklabels()]
