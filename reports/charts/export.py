# SPDX-License-Identifier: Apache-2.0
"""Every chart of a report as files of their own, for papers and slides."""

import io
import re
import unicodedata
import warnings
from collections.abc import Iterator
from pathlib import Path

import matplotlib
import pandas as pd
from matplotlib.figure import Figure

from allocbench.reports.charts import charts, theme
from allocbench.reports.charts.charts import Chart
from allocbench.reports.charts.looks import looks_of
from allocbench.reports.output import ResultError, write_bytes
from allocbench.reports.rows.bundle import Bundle
from allocbench.reports.rows.ranking import cases

DOTS_PER_INCH = 200


def write(results: Bundle, folder: str | Path, history: pd.DataFrame | None = None) -> list[Path]:
    """Draw every chart into `folder` as SVG and as PNG; the files written, in order.

    `history` is what `asv.history` reads. The folder is created if it does not exist. The same
    results give the same bytes. Raises ResultError naming the path that cannot be written.
    """
    place = Path(folder)
    try:
        place.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ResultError(f"{folder}: cannot make the folder: {error.strerror or error}") from error
    written = []
    for name, chart in _named(results, history):
        figure = chart.draw()
        for kind in ("svg", "png"):
            path = place / f"{name}.{kind}"
            write_bytes(drawn(figure, kind, name), path)
            written.append(path)
    return written


def _named(results: Bundle, history: pd.DataFrame | None) -> Iterator[tuple[str, Chart]]:
    """The charts with file names: what is drawn, after the workload where there is one."""
    table = results.rows
    all_cases = cases(table)
    looks = looks_of(all_cases)
    past = [] if history is None else charts.of_history(history, looks)
    for chart in (*charts.across(table), *charts.of_rows(table), *past):
        yield chart.key, chart
    taken: dict[str, int] = {}
    for n, case in enumerate(all_cases, 1):
        key = f"workload-{n}"
        name = _file_name(case.title) or key
        taken[name] = taken.get(name, 0) + 1
        if taken[name] > 1:
            name = f"{name}-{taken[name]}"
        first = charts.trade(table, case, key)
        detailed = charts.of_case(results.details, case, key, looks)
        for chart in (*([first] if first else []), *detailed):
            yield f"{name}-{chart.key.removeprefix(f'{key}-')}", chart


def _file_name(title: str) -> str:
    """Letters, digits and single hyphens of a title, at most 60."""
    plain = unicodedata.normalize("NFKD", title).encode("ascii", "ignore").decode()
    return re.sub(r"[^A-Za-z0-9]+", "-", plain).strip("-")[:60]


def drawn(figure: Figure, kind: str, salt: str) -> bytes:
    """The bytes of a picture of this kind, svg or png, the same for the same figure and salt."""
    buffer = io.BytesIO()
    date = {"Date": None} if kind == "svg" else {}
    with theme.style(), matplotlib.rc_context({"svg.hashsalt": salt}), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing")
        figure.savefig(buffer, format=kind, dpi=DOTS_PER_INCH, facecolor="white", metadata=date)
    return buffer.getvalue()
