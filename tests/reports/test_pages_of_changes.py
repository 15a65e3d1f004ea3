# SPDX-License-Identifier: Apache-2.0
"""The pages of differences and of histories, opened in Chromium."""

from pathlib import Path

import pytest

pytest.importorskip("jinja2")

from allocbench.questions import diff
from allocbench.reports.page import html
from allocbench.reports.rows import asv
from allocbench.workloads import ALLOC, FREE
from docs.generate.browser import chromium, visit
from tests import asv_results
from tests.browser import needs_chromium, trouble
from tests.reports.test_browser import ATTACKS, texts
from tests.result_rows import HOSTILE
from tests.traces import make

MIB = 1 << 20


@pytest.fixture(autouse=True, scope="module")
def _in_chromium() -> None:
    needs_chromium()


@pytest.mark.parametrize(("width", "dark"), [(1280, True), (390, False)])
def test_the_page_of_a_difference_shows_both_curves(tmp_path: Path, width: int, dark: bool) -> None:
    trace = make([(ALLOC, 0, 40 * MIB), (FREE, 0, 0), (ALLOC, 1, 60 * MIB)])
    names = (ATTACKS[1], ATTACKS[2])
    old, new = diff.Side(names[0], trace, "bfc"), diff.Side(names[1], trace, "naive")
    found = diff.diff(old, new, "sim:1GiB")
    parts = [("+1.00 MiB", "0 B", "1.00 MiB", HOSTILE)]
    path = tmp_path / "diff.html"
    path.write_text(html.of_difference(names, [HOSTILE], parts, diff.curves(found)))
    with chromium(width, dark=dark) as driver:
        visit(driver, path)
        wait = "const done = arguments[0]; report.ready.then(() => setTimeout(done, 300))"
        driver.execute_async_script(f"report.cases.forEach(explore); {wait}")
        lines = driver.execute_script("return report.cases[0].explorer.charts[0].data")
        highest = [max(value for value in line if value is not None) for line in lines[1:]]
        peaks = (found.old_peak.reserved, found.new_peak.reserved)
        assert tuple(highest) == peaks
        assert texts(driver, ".chip .name") == list(names)
        assert texts(driver, ".headline") == [HOSTILE]
        assert driver.execute_script("return document.documentElement.scrollWidth") <= width
        assert trouble(driver) == []


@pytest.mark.parametrize(("width", "dark"), [(1280, True), (390, False)])
def test_the_page_of_edits_draws_those_that_are_chosen(
    tmp_path: Path, width: int, dark: bool
) -> None:
    curves = {(): [4, 8, 6], ("a",): [4, 5, 6], ("b",): [3, 7, 5], (ATTACKS[1],): [1, 1, 1]}
    curves[("a", "b")] = [3, 4, 5]
    choices = [
        {"edits": names, "words": f"with {' and '.join(names)}", "curve": {HOSTILE: curve}}
        for names, curve in curves.items()
    ]
    texts_of = dict.fromkeys(("how", "need", "saves", "load", "cost"), HOSTILE)
    edits = [{"name": names[0], **texts_of} for names in curves if len(names) == 1]
    path = tmp_path / "edits.html"
    page = html.of_edits(HOSTILE, [HOSTILE], edits, choices, events=30, capacity=7, card="L4 24GB")
    path.write_text(page)
    with chromium(width, dark=dark) as driver:
        visit(driver, path)
        driver.execute_async_script("report.ready.then(arguments[0])")
        boxes = driver.find_elements("css selector", "#edits input")

        def shown() -> tuple[tuple[str, ...], str]:
            said = driver.execute_script(
                "return [report.edits.choice.edits, document.querySelector('.readout').textContent]"
            )
            assert [box.is_selected() for box in boxes] == [
                box.get_attribute("value") in said[0] for box in boxes
            ]
            return tuple(said[0]), said[1]

        assert shown() == ((), "with ")
        boxes[0].send_keys(" ")  # by the keyboard
        assert shown() == (("a",), "with a")
        boxes[1].send_keys(" ")
        assert shown() == (("a", "b"), "with a and b")
        boxes[2].send_keys(" ")  # not computed with the others
        assert shown() == ((ATTACKS[1],), f"with {ATTACKS[1]}")
        boxes[2].send_keys(" ")
        assert shown()[0] == ()
        assert texts(driver, ".edits label .name") == ["a", "b", ATTACKS[1]]
        assert driver.execute_script("return document.documentElement.scrollWidth") <= width
        assert trouble(driver) == []


@pytest.mark.parametrize(("width", "dark"), [(1280, False), (390, True)])
def test_a_history_is_a_page_that_needs_no_network(tmp_path: Path, width: int, dark: bool) -> None:
    for n in range(3):
        numbers = asv_results.NUMBERS | {asv_results.PEAK: [4096.0 * 2**n, 8192.0]}
        asv_results.write(tmp_path / "asv", str(n) * 40, numbers, date=n * 86_400_000)
    path = tmp_path / "history.html"
    path.write_text(html.of_history(asv.history(tmp_path / "asv"), HOSTILE))
    with chromium(width, dark=dark) as driver:
        visit(driver, path)
        charts = driver.execute_script("return document.querySelectorAll('.lines canvas').length")
        assert charts == len(asv_results.NUMBERS)
        assert HOSTILE in driver.title
        rows = texts(driver, ".changes tbody tr")
        assert rows == ["bfc, train16.0 KiB+8.00 KiB (+100.0%)+8.00 KiB (+100.0%) in 2222222"]
        boxes = driver.execute_script(
            "return [...document.querySelectorAll('.lines .panel')].map((one) =>"
            " [one.clientWidth, one.querySelector('canvas').clientWidth])"
        )
        assert all(canvas <= panel for panel, canvas in boxes)
        assert driver.execute_script("return document.documentElement.scrollWidth") <= width
        assert trouble(driver) == []
