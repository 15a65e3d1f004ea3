# SPDX-License-Identifier: Apache-2.0
"""The documentation site: it builds without a warning, describes everything, and loads nothing."""

import re
import subprocess
from html import unescape
from pathlib import Path

import pytest
from mkdocs.commands.build import build
from mkdocs.config import load_config

from allocbench import allocators
from allocbench.reports.rows.results import COLUMNS
from docs.generate import agreement, claims, tables

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


RESULT = re.compile(r"\d[\d.,]* ?%|\d{1,3}(?:,\d{3}){2,}|\b\d[\d,]* of (?:the |these )?\d[\d,]*\b")
"""A share, a number of bytes, or a count of a total: what a measurement gives."""
LIMITS = {"1,048,576"}
"""Of values that the null GPU follows."""


@pytest.mark.parametrize("page", claims.PAGES, ids=lambda page: page.stem)
def test_the_numbers_of_a_page_are_those_of_the_committed_results(page: Path) -> None:
    written = page.read_text(encoding="utf-8")
    assert claims.written(written) == written  # else: make claims
    own = claims.PART.sub("", written)
    own = re.sub(r"^```.*?^```|`[^`\n]*`", "", own, flags=re.MULTILINE | re.DOTALL)
    assert set(RESULT.findall(own)) <= LIMITS


def test_a_part_that_nothing_makes_is_an_error() -> None:
    with pytest.raises(KeyError, match="nosuch"):
        claims.written("<!-- nosuch -->\nold\n<!-- end of nosuch -->\n")


def test_commits_that_results_name_are_in_the_history() -> None:
    if not (ROOT / ".git").exists():
        pytest.skip("no history: not a clone")
    folders = "h100", "second", "third", "published"
    kept = ROOT / "benchmarks" / "results"
    results = [*(path for name in folders for path in (kept / name).glob("*.json")), agreement.FILE]
    named = {
        commit
        for path in results
        for commit in re.findall(r'"commit": "([0-9a-f]+)', path.read_text(encoding="utf-8"))
    }
    command = ["git", "rev-list", "--abbrev-commit", "--abbrev=12", "HEAD"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert named
    assert named - {commit[:12] for commit in done.stdout.split()} == set()
