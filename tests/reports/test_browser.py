# SPDX-License-Identifier: Apache-2.0
"""The report in a browser: it shows the numbers of the results, and loads nothing."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import matplotlib.image
import numpy as np
import pytest

pytest.importorskip("jinja2")

from allocbench.base import units
from allocbench.questions.holding import holders
from allocbench.replays import experiment
from allocbench.replays.experiment import Effort
from allocbench.replays.trace_blocks import TraceBlocks
from allocbench.reports.page import html
from allocbench.reports.rows import results
from allocbench.reports.rows.bundle import Bundle
from allocbench.reports.rows.details import join, of_run
from allocbench.workloads import ALLOC, FREE, MARK, Trace, catalog
from allocbench.workloads.block_origins import origins
from allocbench.workloads.vocabulary import Provenance
from docs.generate import screenshot
from docs.generate.browser import chromium, visit
from tests.browser import needs_chromium, trouble
from tests.traces import Event, make

MIB = 1 << 20
SPECS = ["caching", "bfc", "naive", "buddy", "bump"]
HOSTILE = "<img src=x onerror=\"document.title='run'\">"
ATTACKS = (HOSTILE, "</script><script>document.title='run'</script>", "'\"><svg onload=run()>")


def bundle(workload: str, trace: Trace, specs: list[str], device: str = "sim:80GiB") -> Bundle:
    prepared = TraceBlocks.of(workload, trace)
    rows, parts = [], [prepared.details()]
    for spec in specs:
        row, found = experiment.run(
            trace, spec, device, Effort(1, capacity=False), workload=workload, trace_blocks=prepared
        )
        rows.append(row)
        parts.append(found)
    return Bundle(results.frame(rows), join(parts))


@pytest.fixture(autouse=True, scope="module")
def _in_chromium() -> None:
    needs_chromium()


@pytest.fixture(scope="module")
def given() -> Bundle:
    return bundle("gpt2-train", catalog.load("gpt2-train"), SPECS)


@pytest.fixture(scope="module")
def page(given: Bundle, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("report") / "report.html"
    html.write(given, path, reference="caching")
    return path


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as driver:
        yield driver


@pytest.fixture
def open_program(browser: Any, page: Path) -> Iterator[Any]:
    visit(browser, page)
    yield browser
    assert trouble(browser) == []


@pytest.fixture
def open_page(open_program: Any) -> Any:
    """The report with the tab of the allocators open."""
    open_tab(open_program, "allocators")
    return open_program


def open_tab(driver: Any, name: str) -> None:
    driver.execute_script("report.open(arguments[0]); report.cases.forEach(explore)", name)


def texts(driver: Any, selector: str) -> list[str]:
    script = "return [...document.querySelectorAll(arguments[0])].map((one) => one.textContent)"
    found: list[str] = driver.execute_script(script, selector)
    return found


def click(driver: Any, selector: str) -> None:
    driver.execute_script("document.querySelector(arguments[0]).click()", selector)


def choose(driver: Any, selector: str, value: str) -> None:
    driver.execute_script(
        "const one = document.querySelector(arguments[0]); one.value = arguments[1];"
        "one.dispatchEvent(new Event(one.type === 'range' ? 'input' : 'change'))",
        selector,
        value,
    )


def chips(driver: Any) -> dict[str, str]:
    """The text next to each allocator's name."""
    names, values = (texts(driver, f".chip {part}") for part in (".name", "output"))
    return dict(zip(names, values, strict=True))


def held(driver: Any) -> dict[str, tuple[str, ...]]:
    """The rows of the table of holders: bytes, share, blocks, and the most at any time."""
    rows = ".holders tbody tr"
    names = texts(driver, f"{rows} .name")
    cells = texts(driver, f"{rows} td")
    return {name: tuple(cells[4 * n : 4 * n + 4]) for n, name in enumerate(names)}


def by_kind(trace: Trace, event: int) -> dict[str, tuple[str, str]]:
    """What `holders` finds after an event, by kind: bytes and blocks in words."""
    sums = holders(trace, event).groupby("kind")[["bytes", "blocks"]].sum()
    return {
        str(kind) or "not known": (units.size(row["bytes"]), f"{row['blocks']:,}")
        for kind, row in sums.iterrows()
    }


def at_event(driver: Any, event: int) -> None:
    driver.execute_script("report.cases[0].program.moveTo(arguments[0])", event)


def test_the_holders_are_those_of_the_trace_at_every_instant(open_program: Any) -> None:
    trace = catalog.load("gpt2-train")
    peak = int(trace.load.argmax())
    assert f"Event {peak:,}, step 11, the peak: {units.size(trace.max_load)} in" in "".join(
        texts(open_program, ".program .readout")
    )
    for event in (peak, 0, len(trace) // 2, len(trace) - 1):
        at_event(open_program, event)
        now = {name: (size, blocks) for name, (size, _, blocks, _) in held(open_program).items()}
        alive = {name: cells for name, cells in now.items() if cells[1] != "0"}
        assert alive == by_kind(trace, event)
    most = units.size(by_kind_at_most(trace)["gradients"])
    assert held(open_program)["gradients"][3] == most


def by_kind_at_most(trace: Trace) -> dict[str, int]:
    """The most bytes of each kind at any time, block by block."""
    found = origins(trace)
    now, most = dict.fromkeys(found.kind, 0), dict.fromkeys(found.kind, 0)
    begins, ends = dict[int, int](), dict[int, int]()
    for n, (first, last) in enumerate(zip(found.allocs.tolist(), found.ends.tolist(), strict=True)):
        begins[first], ends[last] = n, n
    for event in range(len(trace)):
        for blocks, sign in ((begins, 1), (ends, -1)):
            if event in blocks:
                block = blocks[event]
                kind = found.kind[block]
                now[kind] += sign * int(trace.size[found.allocs[block]])
                most[kind] = max(most[kind], now[kind])
    return most


def test_a_level_of_detail_has_every_peak(open_program: Any) -> None:
    load = catalog.load("gpt2-train").load
    for low, high, most in ((0, len(load), 500), (1000, 1900, 333), (20, 28, 500)):
        at = open_program.execute_script(
            "const { level } = { level: report.cases[0].program.blocks.level([arguments[0],"
            " arguments[1]], arguments[2]) }; return [[...level.at], [...level.begin]]",
            *(low, high, most),
        )
        assert len(at[0]) == min(most, high - low)
        for event, begin, end in zip(at[0], at[1], at[1][1:], strict=False):
            assert begin <= event < end
            assert load[event] == load[begin:end].max()
        assert (at[1][0], at[1][-1]) == (low, high)


def test_a_holder_can_be_looked_at_alone(open_program: Any) -> None:
    trace = catalog.load("gpt2-train")
    alone = int(holders(trace).groupby("kind")["bytes"].sum()["optimizer state"])
    names = list(held(open_program))
    click(open_program, f".holders tbody tr:nth-child({names.index('optimizer state') + 1}) button")
    assert list(held(open_program)) == ["optimizer state"]
    assert f": {units.size(alone)} in" in texts(open_program, ".program .readout")[0]
    choose(open_program, "select[name=dimension]", "module")
    found = held(open_program)
    assert "blocks.*" in found or any(name.startswith("blocks.*") for name in found)
    assert len(found) > 3
    click(open_program, ".program .only button")
    choose(open_program, "select[name=dimension]", "kind")
    assert list(held(open_program)) == names


def test_the_keyboard_goes_from_block_to_block(open_program: Any) -> None:
    from selenium.webdriver.common.keys import Keys

    canvas = open_program.find_element("css selector", ".program canvas[tabindex]")
    canvas.send_keys(Keys.ARROW_UP)
    said = texts(open_program, ".program .block")[0]
    number = open_program.execute_script("return report.cases[0].program.block")
    blocks = TraceBlocks.of("gpt2-train", catalog.load("gpt2-train"))
    assert said.startswith(f"{units.size(int(blocks.size[number]))}, parameters")
    assert f"Allocated at event {blocks.first[number]:,}" in said
    assert f"freed at event {blocks.last[number]:,}" in said
    canvas.send_keys("+")
    low, high = open_program.execute_script("return report.cases[0].program.range")
    assert 0 < low < high <= len(blocks.trace)
    assert high - low == pytest.approx(len(blocks.trace) / 2, abs=1)
    before = open_program.execute_script("return report.cases[0].program.event")
    canvas.send_keys(Keys.ARROW_LEFT)
    assert open_program.execute_script("return report.cases[0].program.event") < before
    canvas.send_keys("0")
    assert open_program.execute_script("return report.cases[0].program.range") == [
        0,
        len(blocks.trace),
    ]
    canvas.send_keys(Keys.ARROW_UP)
    canvas.send_keys(Keys.ENTER)
    assert texts(open_program, ".program .only button")
    canvas.send_keys(Keys.ESCAPE)
    assert texts(open_program, ".program .only button") == []


def test_pointing_and_dragging(open_program: Any) -> None:
    from selenium.webdriver.common.action_chains import ActionChains

    canvas = open_program.find_element("css selector", ".program canvas[tabindex]")
    open_program.execute_script(
        "arguments[0].scrollIntoView({ block: 'center', behavior: 'instant' })", canvas
    )
    low = open_program.execute_script(
        "const { place } = report.cases[0].program;"
        "return place.top + place.height - 4 - arguments[0].getBoundingClientRect().height / 2",
        canvas,
    )
    ActionChains(open_program).move_to_element_with_offset(canvas, 0, int(low)).perform()
    assert "parameters" in texts(open_program, ".program .block")[0]
    drag = ActionChains(open_program).move_to_element_with_offset(canvas, -100, 0).click_and_hold()
    drag.move_by_offset(200, 0).release().perform()
    begin, end = open_program.execute_script("return report.cases[0].program.range")
    events = len(catalog.load("gpt2-train"))
    width = open_program.execute_script("return report.cases[0].program.place.width")
    assert end - begin == pytest.approx(200 / width * events, rel=0.05)


def test_the_flame_graph_adds_up_and_is_searched(open_program: Any) -> None:
    at_event(open_program, int(catalog.load("gpt2-train").load.argmax()))
    choose(open_program, ".flame select", "module")
    trace = catalog.load("gpt2-train")
    of_module = holders(trace).groupby("module")["bytes"].sum()
    head = int(of_module[of_module.index.str.split(".").str[0] == "head"].sum())
    said = open_program.execute_script(
        "return [...document.querySelectorAll('.frame')].map((one) => one.title)"
    )
    assert any(one.startswith(f"all: {units.size(trace.max_load)} (100.0%)") for one in said)
    assert any(one.startswith(f"head: {units.size(head)} ") for one in said)
    open_program.execute_script(
        "const one = document.querySelector('.flame input'); one.value = 'HEAD';"
        "one.dispatchEvent(new Event('input'))"
    )
    assert texts(open_program, ".flame output")[0].startswith(units.size(head))
    click(open_program, ".frame.match")
    widths = "return [...document.querySelectorAll('.frame.match')].map((one) => one.style.width)"
    assert open_program.execute_script(widths)[0] == "100%"


def test_the_modules_are_a_tree_with_sums(open_program: Any) -> None:
    trace = catalog.load("gpt2-train")
    at_event(open_program, int(trace.load.argmax()))
    table = holders(trace)
    of_blocks = table[table["module"].str.startswith("blocks.") & (table["kind"] == "parameters")]
    rows = ".layers tbody tr"
    names = texts(open_program, f"{rows} th")
    cells = texts(open_program, f"{rows} td")
    at = names.index("blocks (12)")
    assert cells[5 * at] == units.size(int(of_blocks["bytes"].sum()))
    click(open_program, f"{rows}:nth-child({at + 1}) button")
    opened = texts(open_program, f"{rows} th")
    assert len(opened) == len(names) + 12
    assert opened[at + 1].startswith("0")


def test_a_long_list_of_modules_is_shown_on_demand(tmp_path: Path, browser: Any) -> None:
    names = tuple(map(str, range(24)))
    trace = make([(ALLOC, n, 100 * (n + 1)) for n in range(24)], labels=names)
    module = np.arange(24, dtype=np.uint32)
    shapes = Provenance(extra={"output_shapes": {name: f"[{name}, 16]" for name in names[:-1]}})
    for provenance in (shapes, Provenance()):
        column = [*provenance.extra.get("output_shapes", {}).values()]
        given = replace(trace, module=module, provenance=provenance)
        html.write(bundle("sequential", given, ["naive"]), tmp_path / "report.html")
        visit(browser, tmp_path / "report.html")
        rows = ".layers tbody th"
        assert texts(browser, rows) == list(names[:10])
        click(browser, ".layers button.more")
        assert texts(browser, rows) == list(names)
        assert texts(browser, ".layers td.shape")[:23] == column
        assert ("output shape" in texts(browser, ".layers thead th")) == bool(column)
        assert trouble(browser) == []


def test_a_long_name_covers_no_number(tmp_path: Path) -> None:
    path, kinds = tmp_path / "report.html", np.array([1, 2], np.uint32)
    trace = make([(ALLOC, 0, 5), (ALLOC, 1, 7)], labels=("", "x" * 9999, "short"), kind=kinds)
    html.write(bundle("long", trace, ["naive"]), path)
    right = "getBoundingClientRect().right"
    for width in (1280, 390):
        with chromium(width) as driver:
            visit(driver, path)
            names = "[...document.querySelectorAll('.holders tbody th .name')]"
            over = f"return {names}.map((one) => one.{right} - one.closest('th').{right})"
            assert [value <= 0 for value in driver.execute_script(over)] == [True, True]


def test_tabs_are_opened_by_keys_and_links(open_program: Any) -> None:
    from selenium.webdriver.common.keys import Keys

    shown = "return [...document.querySelectorAll('[role=tabpanel]')].map((one) => !one.hidden)"
    assert open_program.execute_script(shown) == [True, False, False]
    open_program.find_element("css selector", "#tab-program").send_keys(Keys.ARROW_RIGHT)
    assert open_program.execute_script(shown) == [False, True, False]
    open_program.execute_script("location.hash = 'definitions'")
    open_program.execute_async_script("setTimeout(arguments[0], 100)")
    assert open_program.execute_script(shown) == [False, False, True]


def test_the_table_sorts_by_numbers(open_page: Any, given: Bundle) -> None:
    names = "#workload-1 table.sortable tbody .name"
    click(open_page, "#workload-1 table.sortable th:nth-child(2) button")
    peaks = given.rows.set_index("allocator")["peak_reserved"]
    assert texts(open_page, names) == list(peaks.sort_values().index)
    click(open_page, "#workload-1 table.sortable th:nth-child(2) button")
    assert texts(open_page, names) == list(peaks.sort_values(ascending=False).index)


def test_toggled_allocators_come_and_go(open_page: Any, given: Bundle) -> None:
    shown = texts(open_page, ".panels h5 span:first-of-type")
    assert "caching" in shown
    assert 1 < len(shown) < len(SPECS)
    click(open_page, f".chip:nth-of-type({SPECS.index('caching') + 1})")
    assert texts(open_page, ".panels h5 span:first-of-type") == [n for n in shown if n != "caching"]
    assert open_page.execute_script("return document.querySelectorAll('.panels canvas').length")
    click(open_page, ".chips button.plain")  # all
    panels = dict(
        zip(
            texts(open_page, ".panels h5 span:first-of-type"),
            texts(open_page, ".panels h5 .quiet"),
            strict=True,
        )
    )
    peaks = given.rows.set_index("allocator")["peak_reserved"]
    assert panels == {name: f"peak {units.size(int(peak))}" for name, peak in peaks.items()}


@pytest.mark.parametrize("metric", ["reserved", "allocated", "device_calls"])
def test_the_cursor_shows_the_numbers_of_the_results(
    open_page: Any, given: Bundle, metric: str
) -> None:
    choose(open_page, ".explorer select", metric)
    column = {"device_calls": "moments"}.get(metric, "memory")
    last = int(given.rows["events"].max()) - 1
    for event in (0, last // 6, last * 5 // 6, last):
        open_page.execute_script("report.cases[0].explorer.moveTo(arguments[0])", event)
        for name, said in chips(open_page).items():
            table = of_run(given.details, column, allocator=name)
            before = table.loc[table["event"] <= event, metric].tolist()
            if not before:  # the first event is a mark
                assert said == "n/a"
                continue
            value = before[-1]
            assert said == (units.size(value) if column == "memory" else f"{value:,}")
    assert f"Event {last:,}" in texts(open_page, ".explorer .readout")[0]


def test_the_keyboard_moves_the_cursor_and_zooms(open_page: Any, given: Bundle) -> None:
    from selenium.webdriver.common.keys import Keys

    plot = open_page.find_element("css selector", ".compare .plot")
    plot.send_keys(Keys.HOME)
    plot.send_keys(Keys.ARROW_RIGHT)
    at = open_page.execute_script("return report.cases[0].explorer.cursor")
    assert 0 < at < 1000
    plot.send_keys("+")
    ranges = "return report.cases[0].explorer.charts.map((c) => [c.scales.x.min, c.scales.x.max])"
    zoomed = open_page.execute_script(ranges)
    assert len({tuple(one) for one in zoomed}) == 1  # every chart shows the same events
    last = int(given.rows["events"].max()) - 1
    assert zoomed[0][1] < last
    assert open_page.execute_script("return report.cases[0].explorer.cursor") == at
    plot.send_keys("0")
    assert open_page.execute_script(ranges)[0] == [0, last]


@pytest.mark.parametrize("name", ["caching", "naive"])
def test_the_slider_shows_the_memory_of_that_instant(
    open_page: Any, given: Bundle, name: str
) -> None:
    choose(open_page, ".map select", name)
    instants = of_run(given.details, "instants", allocator=name)["event"].tolist()
    tables = {part: of_run(given.details, part, allocator=name) for part in ("ranges", "blocks")}
    for at in (0, len(instants) // 3, len(instants) - 2):
        choose(open_page, ".map input", str(at))
        event = instants[at]
        held, blocks = (
            table[(table["first"] <= event) & (table["last"] > event)] for table in tables.values()
        )
        assert texts(open_page, ".map output") == [
            f"Event {event:,}: {units.size(int(held['size'].sum()))} held in {len(held):,}"
            f" segments; {units.size(int(blocks['size'].sum()))} in {len(blocks):,} blocks."
        ]


def test_a_block_tells_its_size_its_age_and_its_operator(open_page: Any, given: Bundle) -> None:
    from selenium.webdriver.common.keys import Keys

    choose(open_page, ".map select", "bfc")
    click(open_page, ".map button[name=peak]")
    canvas = open_page.find_element("css selector", ".map canvas")
    canvas.send_keys(Keys.ARROW_RIGHT)
    said = texts(open_page, ".map .block")[0]
    event = open_page.execute_script("return report.cases[0].map.event")
    blocks = of_run(given.details, "blocks", allocator="bfc")
    alive = blocks[(blocks["first"] <= event) & (blocks["last"] > event)]
    first = alive.sort_values("address").iloc[0]
    assert said.startswith(f"{units.size(int(first['size']))} at {hex(first['address'])}")
    assert f"by {first['label']}" in said
    assert f"{event - first['first']:,} events old" in said


def test_the_data_of_a_chart_is_a_table_and_a_file(open_page: Any, given: Bundle) -> None:
    from selenium.webdriver.support.wait import WebDriverWait

    chart = "document.querySelector('[data-table=\"scaling\"]')"
    open_page.execute_script(f"{chart}.open = true")
    table = given.details["scaling"]
    rows = f"return {chart}.querySelectorAll('tbody tr').length"
    WebDriverWait(open_page, 300).until(lambda page: page.execute_script(rows))
    assert open_page.execute_script(rows) == len(table)
    lines = open_page.execute_script(f"return csv(chartData({chart}.dataset))").split("\r\n")
    assert lines[0].split(",") == list(table)
    assert len(lines) == len(table) + 2
    assert lines[1].startswith("gpt2-train,sim:80GiB,caching,alloc,")
    own = open_page.execute_script("return report.tables.rows.columns.overhead")
    assert own == [float(f"{x:.4g}") if x == x else None for x in given.rows["overhead"].tolist()]


def test_an_allocator_that_failed_is_outside_of_the_scale_and_the_front(
    given: Bundle, tmp_path: Path, browser: Any
) -> None:
    path = tmp_path / "failed.html"
    best = given.rows["allocator"] == "bfc"
    rows = given.rows.assign(
        failures=given.rows["failures"].mask(best, 639),
        peak_reserved=given.rows["peak_reserved"].mask(best, 1),
    )
    html.write(Bundle(rows, given.details), path)
    visit(browser, path)
    open_tab(browser, "allocators")
    trade = "report.cases[0].trade"
    names = f"return [{trade}.shown, {trade}.front()].map((all) => all.map((one) => one.name))"
    shown, front = browser.execute_script(names)
    assert "bfc" not in shown
    assert "caching" in shown
    assert set(front) <= set(shown)
    assert "bfc (failed requests)" in texts(browser, ".trade p.quiet")[0]
    assert texts(browser, "#workload-1 tr.has-failed .name")[0] == "bfc"
    assert trouble(browser) == []


def test_the_look_can_be_chosen(open_page: Any) -> None:
    background = "return getComputedStyle(document.body).backgroundColor"
    light = open_page.execute_script(background)
    seen = set()
    for _ in range(3):
        click(open_page, "#look")
        seen.add((texts(open_page, "#look")[0], open_page.execute_script(background)))
    assert {look for look, _ in seen} == {"Look: light", "Look: dark", "Look: auto"}
    assert {color for look, color in seen if look != "Look: dark"} == {light}
    assert {color for look, color in seen if look == "Look: dark"} != {light}


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("dark", [False, True])
def test_nothing_is_wider_than_the_screen_and_no_picture_is_empty(
    page: Path, width: int, dark: bool
) -> None:
    with chromium(width, dark=dark) as driver:
        visit(driver, page)
        for tab in ("program", "allocators"):
            open_tab(driver, tab)
            assert driver.execute_script("return document.documentElement.scrollWidth") <= width
            sizes = driver.execute_script(
                "return [...document.querySelectorAll('canvas')]"
                ".filter((one) => one.checkVisibility())"
                ".map((one) => [one.getBoundingClientRect().width, one.width && one.height &&"
                " new Set(new Uint32Array(one.getContext('2d').getImageData(0, 0, one.width,"
                " one.height).data.buffer)).size])"
            )
            assert len(sizes) >= {"program": 2, "allocators": 5}[tab]
            assert all(100 < wide <= width and colors > 1 for wide, colors in sizes)
        table = "document.querySelector('#workload-1 .scroll')"
        if width == 1280:  # no column is cut
            assert driver.execute_script(f"return {table}.scrollWidth <= {table}.clientWidth")
        driver.execute_script(f"{table}.scrollLeft = 200")
        assert driver.execute_script(
            f"return {table}.querySelector('tbody th').getBoundingClientRect().left >="
            f" {table}.getBoundingClientRect().left"
        )
        assert trouble(driver) == []


def test_the_picture_of_a_report_shows_the_charts_that_its_scripts_draw(
    page: Path, tmp_path: Path
) -> None:
    width, height = 1280, 2000
    screenshot.take(page, tmp_path / "page.png", width, height)
    pixels = matplotlib.image.imread(tmp_path / "page.png")
    assert pixels.shape[:2] == (height, width)
    with chromium(width, height) as driver:
        visit(driver, page)
        place = driver.execute_script(
            "return document.querySelector('canvas').getBoundingClientRect()"
        )
    left, top, right, bottom = (round(place[side]) for side in ("left", "top", "right", "bottom"))
    assert bottom <= height
    assert len(np.unique(pixels[top:bottom, left:right].reshape(-1, pixels.shape[2]), axis=0)) > 20


def hostile() -> Bundle:
    events: list[Event] = [(MARK, n, 0) for n in range(len(ATTACKS))]
    events += [(ALLOC, n, (n + 1) * MIB) for n in range(4)]
    events += [(FREE, 1, 0), (ALLOC, 4, 60 * MIB)]
    trace = make(events, labels=ATTACKS)
    labeled = Trace(
        trace.op, trace.block, trace.size, trace.stream, ATTACKS, label=trace.block % len(ATTACKS)
    )
    shapes = Provenance(extra={"output_shapes": dict.fromkeys(ATTACKS, HOSTILE)})
    labeled = replace(labeled, module=labeled.label, provenance=shapes)
    made = bundle(HOSTILE, labeled, ["bfc", "naive"], "sim:64MiB")
    names = {"bfc": ATTACKS[1], "naive": ATTACKS[2]}
    tables = {
        name: frame.assign(allocator=frame["allocator"].map(names))
        if "allocator" in frame
        else frame
        for name, frame in made.details.items()
    }
    rows = made.rows.assign(allocator=made.rows["allocator"].map(names), cpu=HOSTILE)
    return Bundle(results.frame(rows), tables)


def test_hostile_names_run_nothing(tmp_path: Path, browser: Any) -> None:
    path = tmp_path / "hostile.html"
    html.write(hostile(), path, command=HOSTILE)
    visit(browser, path)
    for dimension in texts(browser, "select[name=dimension] option"):
        choose(browser, "select[name=dimension]", dimension)
    browser.execute_script(
        "const p = report.cases[0].program; p.large.flat().forEach((n) => p.select(n));"
        "document.querySelectorAll('.frame').forEach((one) => one.focus())"
    )
    assert any(attack in text for attack in ATTACKS for text in texts(browser, ".frame"))
    assert HOSTILE in texts(browser, ".layers td.shape")
    open_tab(browser, "allocators")
    click(browser, ".chips button.plain")
    for color in ("operator", "age", "state"):
        choose(browser, ".map select[name=color]", color)
    click(browser, "button.show-failure")
    browser.execute_script(
        "document.querySelectorAll('details').forEach((d) => { d.open = true; })"
    )
    browser.execute_script(
        "const m = report.cases[0].map; for (const { n } of m.spots) m.select(n)"
    )
    browser.execute_async_script("setTimeout(arguments[0], 300)")
    assert HOSTILE in browser.title
    assert HOSTILE in texts(browser, "#workload-1 h2")
    assert set(ATTACKS[1:]) <= set(texts(browser, ".chip .name"))
    assert any(attack in text for attack in ATTACKS for text in texts(browser, ".map .block"))
    assert texts(browser, "img") == []
    assert browser.execute_script("return document.querySelectorAll('script').length") == 3
    assert trouble(browser) == []


def test_rows_alone_make_a_page_without_an_explorer(
    given: Bundle, tmp_path: Path, browser: Any
) -> None:
    path = tmp_path / "rows.html"
    html.write(given.rows, path)
    visit(browser, path)
    assert texts(browser, ".explorer, .map, .program, [role=tab]") == []
    assert any("results contain only rows" in text for text in texts(browser, "#absent li"))
    assert trouble(browser) == []
