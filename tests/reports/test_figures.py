# SPDX-License-Identifier: Apache-2.0
"""The figures: their numbers, labels of modelled ones, and no overlapping texts."""

from collections.abc import Callable
from itertools import combinations, pairwise
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("seaborn")

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.transforms import Bbox

from allocbench.reports.charts import export, figures
from allocbench.reports.charts.looks import FLOOR, looks_of
from allocbench.reports.rows.ranking import cases
from allocbench.reports.rows.results import frame
from tests import panel_texts
from tests.result_rows import GIB, HOSTILE, floor, memory, row, sized

PER_ROW = [
    figures.min_capacity,
    figures.overhead,
    figures.fragmentation,
    figures.host_time,
    figures.device_time,
]
ACROSS = [*PER_ROW, figures.latency_against_memory]


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


def test_bars_are_as_long_as_the_numbers() -> None:
    table = frame([sized("a", 10, 40), sized("b", 16, 20), row("c", min_capacity=None)])
    (panel,) = panels(figures.min_capacity(table))
    assert [round(bar.get_width(), 6) for bar in panel.patches] == [10, 16, 0]  # type: ignore[attr-defined]
    assert numbers(panel) == ["10.0 GiB", "16.0 GiB", "n/a"]
    assert [label.get_text() for label in panel.get_yticklabels()] == ["a", "b", "c"]
    assert panel.get_xlabel() == "min capacity, GiB"
    assert any(list(line.get_xdata()) == [8, 8] for line in panel.lines)  # type: ignore[arg-type]


def test_a_floor_does_not_stretch_the_axis_and_keeps_its_number() -> None:
    far = {**floor(), "overhead": 40.0, "failures": 5}
    (panel,) = panels(figures.overhead(frame([sized("a", 10, 40), far])))
    assert panel.get_xlim()[1] < 3
    assert numbers(panel) == ["1.25x", "40.0x (cut, failed)"]
    far["peak_reserved"] = 80 * GIB
    (panel,) = panels(figures.latency_against_memory(frame([sized("a", 10, 40), far])))
    assert panel.get_xlim()[1] < 20
    assert "failed requests: ground" in panel.get_xlabel()


@pytest.mark.parametrize(
    ("source", "device", "words", "number"),
    [
        ("estimate", "sim:80GiB", "estimate", "2-10 ms"),
        ("measured", "cuda:0", "measured", "4.00 ms"),
    ],
)
def test_the_device_time_axis_says_what_it_is(
    source: str, device: str, words: str, number: str
) -> None:
    table = frame([row("a", device=device, device_seconds_source=source)])
    (panel,) = panels(figures.device_time(table))
    assert panel.get_xlabel() == f"device time, ms ({words})"
    assert numbers(panel) == [number]


def test_both_kinds_of_fragmentation_stand_side_by_side() -> None:
    table = frame([row("a"), row("b", fragmentation_ratio=None)])
    left, right = panels(figures.fragmentation(table))
    assert left.get_xlabel() == "fragmentation ratio, %"
    assert right.get_xlabel() == "internal fragmentation, %"
    assert numbers(left) == ["10.0%", "n/a"]
    assert numbers(right) == ["12.5%", "12.5%"]


def test_latency_is_drawn_against_memory() -> None:
    table = frame([sized("a", 9, 40), sized("b", 12, 20)])
    (panel,) = panels(figures.latency_against_memory(table))
    *marks, front, bound = panel.lines
    points = np.concatenate([np.asarray(line.get_xydata()) for line in marks]).round(6)
    assert {tuple(point) for point in points.tolist()} == {(9, 40), (9, 360), (12, 20), (12, 180)}
    assert np.asarray(front.get_xydata()).round(6).tolist() == [[9, 40], [12, 20]]
    assert list(bound.get_xdata()) == [8, 8]  # type: ignore[arg-type]
    assert numbers(panel) == ["a", "b"]


def over_time(table: pd.DataFrame, lines: pd.DataFrame) -> Figure:
    (case,) = cases(table)
    return figures.memory_over_time(lines, case, looks_of([case]))


def test_memory_over_time_draws_the_table() -> None:
    table = frame([sized("a", 12, 40), sized("b", 10, 40), floor()])
    lines = pd.concat([memory("a", 12 * GIB, 1000), memory("ground", 90 * GIB)])
    first, second = panels(over_time(table, lines))
    assert [panel.get_title("left") for panel in (first, second)] == ["a", "ground"]
    events = np.asarray(first.lines[0].get_xdata())
    reserved = np.asarray(first.lines[0].get_ydata())
    assert len(events) == len(reserved) <= 240
    assert (events[0], events[-1]) == (0, 9990)
    assert reserved.max() == 12
    assert first.get_ylim() == second.get_ylim() == pytest.approx((0, 12 * 1.08))
    assert first.get_title(loc="right") == "peak 12.0 GiB"


def test_a_floor_beyond_the_scale_says_so() -> None:
    far = {**floor(), "peak_reserved": 90 * GIB}
    table = frame([sized("a", 12, 40), far])
    lines = pd.concat([memory("a", 12 * GIB), memory("ground", 90 * GIB)])
    _, panel = panels(over_time(table, lines))
    assert panel.get_title(loc="right") == "peak 90.0 GiB, off the scale"


def test_an_allocator_looks_the_same_everywhere() -> None:
    table = frame([row("a"), row("b", "serve"), row("a", "serve"), floor(workload="serve")])
    looks = looks_of(cases(table))
    assert [look.label for look in looks.values()] == ["a", "b", "ground"]
    assert len({look.color for look in looks.values()}) == 3
    assert looks["ground"].color == FLOOR
    assert looks["ground"].hatch
    many = looks_of(cases(matrix(1, 12)))
    assert len({(look.color, look.marker) for look in many.values()}) == 13


@pytest.mark.parametrize("draw", ACROSS)
@pytest.mark.parametrize(("workloads", "allocators"), [(1, 1), (1, 12), (10, 3)])
def test_no_text_lies_over_another(
    draw: Callable[[pd.DataFrame], Figure], workloads: int, allocators: int
) -> None:
    figure = drawn(draw(matrix(workloads, allocators)))
    assert len(panels(figure)) >= workloads
    for panel in panels(figure):
        boxes = [(text.get_text(), box(text)) for text in panel_texts.shown(panel)]
        for (one, first), (other, second) in combinations(boxes, 2):
            assert not first.overlaps(second), f"{one!r} lies over {other!r}"
    page = figure.bbox
    for panel in panels(figure):
        for text in panel.texts:
            assert box(text).x1 <= page.x1 + 1, f"{text.get_text()!r} leaves the page"


@pytest.mark.parametrize("draw", ACROSS)
def test_missing_measurements_are_named(draw: Callable[[pd.DataFrame], Figure]) -> None:
    missing: dict[str, Any] = {
        column: None
        for column in row("a")
        if column.endswith("_seconds")
        or column.startswith(("seconds_per", "internal", "fragmentation"))
        or column in ("min_capacity", "overhead", "peak_reserved")
    }
    figure = drawn(draw(frame([row("a", **missing), floor(workload="other")])))
    assert any("not measured" in text for text in numbers(figure.axes[0]))


@pytest.mark.parametrize("draw", ACROSS)
def test_names_are_drawn_as_they_are(draw: Callable[[pd.DataFrame], Figure]) -> None:
    picture = export.drawn(draw(frame([row("$x^2$"), row(HOSTILE)])), "svg", "key").decode()
    assert ">$x^2$</text>" in picture
    assert "&lt;script&gt;" in picture
    assert "<script" not in picture


@given(st.lists(st.floats(0, 1), min_size=1, max_size=14))
def test_labels_are_moved_apart(positions: list[float]) -> None:
    placed = figures.apart(positions, 0.05)
    ordered = sorted(placed)
    assert all(b - a >= 0.05 - 1e-9 for a, b in pairwise(ordered))
    assert max(placed) <= 1
    assert [placed[n] for n in sorted(range(len(positions)), key=positions.__getitem__)] == ordered
