# SPDX-License-Identifier: Apache-2.0
"""allocbench report, Markdown, and the progress of a long comparison."""

import base64
import gzip
import json
import random
from itertools import accumulate
from pathlib import Path

import pandas as pd
import pytest

from allocbench.reports.page import html as island
from allocbench.reports.page.tables import to_markdown
from allocbench.reports.rows import results
from allocbench.reports.rows.results import frame
from tests import asv_results
from tests.commands import QUICK, error, folder, output
from tests.result_rows import HOSTILE, floor, row, sized

__all__ = ["folder"]  # the fixture, by its import
FEW = "--allocators bfc,naive"


@pytest.fixture
def files(folder: Path) -> None:
    """A bundle, and plain rows of another trace."""
    output(f"compare good.csv {QUICK} {FEW} --results results.zip")
    output(f"compare good.parquet {QUICK} {FEW} --json rows.json")


def test_a_report_is_made_from_files_and_names_missing_charts(files: None) -> None:
    assert output("report results.zip rows.json") == ""
    page = Path("report.html").read_text(encoding="utf-8")
    assert 'id="workload-1-explorer"' in page
    assert 'id="workload-2-explorer"' not in page
    assert "made: no view of what holds memory, memory over time" in page
    assert "allocbench report results.zip rows.json" in page
    assert output("report results.zip -o -").startswith("<!doctype html>")


def test_the_report_of_files_is_that_of_the_comparison(folder: Path) -> None:
    output(f"compare good.csv {QUICK} {FEW} --results results.zip --html one.html")
    output("report results.zip -o two.html")
    pages = [Path(name).read_text(encoding="utf-8") for name in ("one.html", "two.html")]
    first, second = (page[: page.index("<dt>command</dt>")] for page in pages)
    assert first == second
    data = [page.partition('id="data">')[2].partition("</script>")[0] for page in pages]
    assert data[0] == data[1] != ""


def test_only_markdown_goes_to_standard_output(files: None) -> None:
    shown = output("report rows.json --markdown - --reference bfc")
    assert not Path("report.html").exists()
    assert shown.startswith("### made\n\n")
    assert "| bfc (reference) |" in shown
    assert "fragm. ratio" in shown


def test_markdown_takes_names_literally() -> None:
    rows = [sized("a|b", 9, 40), row("@you `x` [l](http://e.x) www.x.y", workload="train"), floor()]
    shown = to_markdown(frame(rows))
    assert "a&#124;b" in shown
    assert "<" not in to_markdown(frame([row(HOSTILE, HOSTILE)]))
    (line,) = [line for line in shown.splitlines() if "you" in line and line.startswith("|")]
    heading = next(one for one in shown.splitlines() if one.startswith("| allocator"))
    assert line.count("|") == heading.count("|")
    for live in ("@you", "`", "](", "http://", "www."):
        assert live not in line
    assert "**9.00 GiB**" in shown


def test_an_island_stores_numbers_in_the_shorter_form() -> None:
    draw = random.Random(1)
    ascending = [12_000_000 + 512 * n for n in range(1000)]
    without_order = [512 * draw.randrange(1000) for _ in range(1000)]
    packed = island.pack({"t": pd.DataFrame({"a": ascending, "b": without_order})})
    columns = json.loads(gzip.decompress(base64.b64decode(packed)))["tables"]["t"]
    assert list(columns["a"]) == ["differences", "unit"]
    unit = columns["a"]["unit"]
    assert [n * unit for n in accumulate(columns["a"]["differences"])] == ascending
    assert columns["b"] == {"whole": [n // 512 for n in without_order], "unit": 512}


def test_an_island_holds_no_letter_of_its_tables_and_every_number() -> None:
    table = frame([row("</script>", HOSTILE), row("b", HOSTILE, overhead=None)])
    packed = island.pack({"rows": table}, cases=[HOSTILE])
    assert not set(packed) - set(
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/="
    )
    content = json.loads(gzip.decompress(base64.b64decode(packed)))
    columns = content["tables"]["rows"]
    assert columns["allocator"] == {"text": ["</script>", "b"], "codes": [0, 1]}
    assert columns["overhead"] == {"number": [1.25, None]}
    events = columns["peak_reserved"]
    assert [n * events["unit"] for n in events["differences"]] == [10 * 2**30, 0]
    assert content["cases"] == [HOSTILE]
    assert island.pack({"rows": table}, cases=[HOSTILE]) == packed
    assert results.records(table)[0]["allocator"] == "</script>"


def test_rows_without_a_load_have_a_report(files: None) -> None:
    """As of a trace whose requests all fail, and of one without allocs."""
    rows = json.loads(Path("rows.json").read_text())
    for changed in rows:
        changed["max_load"] = 0
    Path("rows.json").write_text(json.dumps(rows))
    assert output("report rows.json") == ""
    assert "n/a" in Path("report.html").read_text(encoding="utf-8")


def test_a_history_alone_is_a_page(folder: Path) -> None:
    asv_results.write(Path("asv"), "a" * 40)
    assert output("report --history asv -o history.html") == ""
    assert asv_results.PEAK in Path("history.html").read_text(encoding="utf-8")
    assert "name files of results" in error("report")
    assert "name files of results" in error("report --history asv --markdown -")
