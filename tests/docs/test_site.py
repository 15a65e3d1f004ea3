# SPDX-License-Identifier: Apache-2.0
"""The documentation site: it builds without a warning, describes everything, and loads nothing."""

from __future__ import annotations

import re
from html import unescape
from pathlib import Path

import pytest
from mkdocs.commands.build import build
from mkdocs.config import load_config

from allocbench import allocators
from allocbench.reports.rows.results import COLUMNS
from docs.generate import claims, tables

ROOT = Path(__file__).parents[2]
PAGES = ROOT / "docs"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site as `make docs` builds it; a broken link or an unlisted page fails."""
    target = tmp_path_factory.mktemp("site")
    config = load_config(str(ROOT / "mkdocs.yml"), site_dir=str(target))
    assert config.strict
    build(config)
    return target


def text(page: Path) -> str:
    """The text of a page, without its markup."""
    return re.sub(r"<[^>]+>", "", page.read_text(encoding="utf-8"))


def test_no_page_loads_anything_from_elsewhere(site: Path) -> None:
    loads = r"<(?:script|img|link|iframe|source)\b[^>]*?\b(?:src|href)=[\"'](?:https?:)?//[^>]*>"
    for page in site.rglob("*.html"):
        assert re.findall(loads, page.read_text(encoding="utf-8")) == [], page.name
    for style in site.rglob("*.css"):
        assert not re.search(r"(?:url\(|@import)\s*[\"']?(?:https?:)?//", style.read_text("utf-8"))


def test_every_placeholder_is_replaced(site: Path) -> None:
    left = re.compile(r"^\s*\{\{.*\}\}\s*$", flags=re.MULTILINE)
    assert [page for page in site.rglob("*.html") if left.search(text(page))] == []


def test_an_unknown_placeholder_is_an_error() -> None:
    with pytest.raises(KeyError, match="nosuch"):
        tables.on_page_markdown("{{ nosuch }}")
    with pytest.raises(KeyError, match="nosuch"):
        tables.on_page_markdown("{{ metrics nosuch }}")


def test_every_metric_is_defined(site: Path) -> None:
    page = text(site / "metrics.html")
    assert [c.name for c in COLUMNS if c.name not in page] == []


def test_every_command_is_described(site: Path) -> None:
    headings = re.findall(r"<h2 id=\"([^\"]+)\"", (site / "commands.html").read_text("utf-8"))
    names = [context.command_path for context, _, _ in tables.all_commands()]
    assert len(headings) == len(names) > 10
    page = unescape(text(site / "commands.html"))
    for context, name, command in tables.all_commands():
        assert name in headings
        options = [max(parameter.opts, key=len) for parameter in command.get_params(context)]
        missing = [option for option in options if option[0] == "-" and option not in page]
        assert missing == ["--help"], name


def test_every_strategy_has_a_page(site: Path) -> None:
    listed = text(site / "strategies" / "index.html")
    names = [info.name for info in allocators.strategies()]
    pages = [page.stem for page in (PAGES / "strategies").glob("*.md") if page.stem != "index"]
    assert sorted(pages) == sorted(names)
    for info in allocators.strategies():
        page = text(site / "strategies" / f"{info.name}.html")
        for told in (
            info.summary,
            info.worst_case,
            info.reference,
            *(o.name for o in info.options),
        ):
            assert unescape(told) in unescape(page), info.name
        assert info.summary in unescape(listed)


@pytest.mark.parametrize("page", ["python", "quickstart", "wrappers"])
def test_examples_in_python_run(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "trace.csv").write_text("op,id,size\na,0,1048576\na,1,4096\nf,0,\n")
    written = (PAGES / f"{page}.md").read_text(encoding="utf-8")
    examples = re.findall(r"^```python\n(.*?)^```$", written, flags=re.MULTILINE | re.DOTALL)
    assert examples
    for example in examples:
        exec(example, {})
    assert capsys.readouterr().out


def test_the_claims_of_the_readme_are_those_of_the_measurements() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    table = text.partition(claims.BEGIN)[2].partition(claims.END)[0]
    assert table == claims.table()
    assert len(claims.published()) == 69
