# SPDX-License-Identifier: Apache-2.0
"""The HTML report: self-contained, escaped, reproducible, and with every number."""

import base64
import gzip
import hashlib
import json
import math
import re
from html.parser import HTMLParser

import pandas as pd
import pytest

pytest.importorskip("jinja2")

from allocbench.reports.page import html, tables
from allocbench.reports.rows.results import SCHEMA, frame
from tests.result_rows import GIB, HOSTILE, floor, memory, row, sized, with_memory

VOID = {"meta", "link", "br", "wbr", "hr", "img", "input"}
ROWS = [
    sized("a", 9.5, 31.23),
    sized("b", 12, 40, external_fragmentation=None),
    sized("c", 11, 20, failures=3),
    floor(),
    sized("a", 9, 40, "serve"),
    sized("b", 14, 30, "serve"),
]
GIVEN = with_memory(ROWS, *(memory(name, 12 * GIB) for name in ("a", "b", "c", "ground")))


class Page(HTMLParser):
    """The content of a page: its elements with their attributes, and text by element."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.texts: list[tuple[tuple[str, ...], str]] = []
        self.open: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        assert self.open[-1:] == [tag], f"</{tag}> closes {self.open[-3:]}"
        self.open.pop()

    def handle_data(self, data: str) -> None:
        if data.strip():
            self.texts.append((tuple(self.open), data.strip()))

    def all(self, tag: str) -> list[dict[str, str]]:
        return [attributes for name, attributes in self.elements if name == tag]

    def text_in(self, tag: str) -> list[str]:
        return [text for path, text in self.texts if path and path[-1] == tag]


@pytest.fixture(scope="module")
def text() -> str:
    return html.render(GIVEN, command="allocbench compare train serve")


@pytest.fixture(scope="module")
def page(text: str) -> Page:
    return Page(text)


def test_the_page_is_whole(page: Page) -> None:
    assert page.open == []
    assert len(page.all("h1")) == 1
    ids = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    links = [attributes["href"] for attributes in page.all("a")]
    assert links
    assert all(link.removeprefix("#") in ids for link in links)


def test_nothing_is_fetched(text: str, page: Page) -> None:
    passive = re.sub(r"<script.*?</script>", "", text, flags=re.DOTALL)  # see test_browser
    assert "://" not in passive
    assert "@import" not in passive
    loading = {"src", "srcset", "href", "xlink:href", "data", "action", "poster", "background"}
    for tag, attributes in page.elements:
        for name in loading & attributes.keys():
            assert attributes[name].startswith(("#", "data:")), (tag, attributes)
    assert all(target.startswith("#") for target in re.findall(r"url\(([^)]*)\)", passive))


def test_the_policy_lets_no_script_run_but_those_of_the_report(text: str, page: Page) -> None:
    policy = next(meta["content"] for meta in page.all("meta") if "http-equiv" in meta)
    assert policy.startswith("default-src 'none'")
    allowed = re.search(r"script-src ([^;]*)", policy)
    assert allowed
    scripts = re.findall(r"<script>(.*?)</script>", text, flags=re.DOTALL)
    digests = [base64.b64encode(hashlib.sha256(one.encode()).digest()).decode() for one in scripts]
    assert allowed[1].split() == [f"'sha256-{digest}'" for digest in digests]


def test_every_canvas_has_words_for_those_who_cannot_see_it(page: Page) -> None:
    pictures = page.all("canvas")
    assert pictures
    assert all("aria-label" in one or one.get("aria-hidden") == "true" for one in pictures)


def test_every_number_of_every_row_is_on_the_page(page: Page) -> None:
    shown = {attributes.get("title", "").partition(";")[0] for attributes in page.all("td")}
    values = [
        attributes["data-value"] for attributes in page.all("td") if "data-value" in attributes
    ]
    for given in ROWS:
        for name, value in given.items():
            if SCHEMA[name].unit and value is not None:
                if name in ("device_seconds_low", "device_seconds_high"):
                    continue  # the ends are next to the number, rounded
                assert SCHEMA[name].exact(value) in shown, (given["allocator"], name)
                assert str(value) in values
    cells = page.text_in("span")
    table = tables.comparison(frame(ROWS), tables.SUMMARY)[0]
    for line in table.rows:
        for cell in line.cells:
            assert cell.text in cells
    assert "n/a" in cells


def test_hostile_names_are_text() -> None:
    rows = [
        row(HOSTILE, HOSTILE, device=HOSTILE, cpu=HOSTILE, **{"python": "</style></title>"}),
        row("b", HOSTILE, device=HOSTILE),
    ]
    given = with_memory(rows, memory("b", GIB, workload=HOSTILE, device=HOSTILE))
    text = html.render(given, command=f"{HOSTILE} \udcff")
    page = Page(text)
    assert page.open == []
    assert len(page.all("script")) == len(Page(html.render([row("a")])).all("script"))
    assert "<script>alert" not in text
    assert "{{" in " ".join(page.text_in("h2"))  # the template is not run over its own output
    assert HOSTILE in page.text_in("h2")
    assert HOSTILE in page.text_in("span")
    assert HOSTILE in page.text_in("dd")
    assert f"{HOSTILE} ?" in page.text_in("code")
    attributes = {name for _, found in page.elements for name in found}
    assert not {name for name in attributes if name.startswith("on")}


def test_numbers_of_every_kind_are_packed() -> None:
    given = {"a": [math.inf, math.nan, 1.23456], "b": [3, None, 6], "c": [True, False, True]}
    made = json.loads(gzip.decompress(base64.b64decode(html.pack({"t": pd.DataFrame(given)}))))
    assert made["tables"]["t"] == {
        "a": {"number": [None, None, 1.235]},
        "b": {"number": [3.0, None, 6.0]},
        "c": {"whole": [1, 0, 1], "flag": True},
    }
