# SPDX-License-Identifier: Apache-2.0
"""The promises of the README hold: the table of strategies, the commands, the targets."""

import json
import re
import tomllib
from pathlib import Path

from typer.testing import CliRunner

from allocbench import allocators
from allocbench.base import units
from allocbench.cli import app
from docs.generate.comparisons import agreement_caching
from tests.commands import output

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def row(info: allocators.StrategyInfo) -> str:
    """The README's expected line for a strategy."""
    return f"| [`{info.name}`](docs/strategies/{info.name}.md) | {info.summary} |"


def test_the_table_of_strategies_is_that_of_the_registry() -> None:
    listed = re.findall(r"^\| \[`.*$", README, flags=re.MULTILINE)
    expected = [row(info) for info in allocators.strategies()]
    assert listed == expected, "the README's table should be:\n" + "\n".join(expected)


def test_the_documentation_explains_every_word_of_the_native_vocabulary() -> None:
    header = (ROOT / "allocators/native/core/types.hpp").read_text(encoding="utf-8")
    words = re.findall(r"^// ([a-z]+) {2,}\S", header, flags=re.MULTILINE)
    assert len(words) > 12
    page = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    assert {*words} <= {*re.findall(r"^\| \*\*(\w+)\*\* \|", page, flags=re.MULTILINE)}


def test_the_functions_that_the_architecture_names_are_in_their_files() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    places = re.findall(r"((?:`\w+`(?:,| and)? )+)in `([\w/]+\.py)`", page)
    assert len(places) >= 7
    for names, path in places:
        text = (ROOT / path).read_text(encoding="utf-8")
        for name in re.findall(r"`(\w+)`", names):
            assert re.search(rf"^\s*(def {name}\(|{name}(: .*)? = )", text, re.MULTILINE), name


def test_every_command_in_the_readme_exists_and_explains_itself() -> None:
    code = "\n".join(re.findall(r"^```\w*\n(.*?)^```$", README, flags=re.MULTILINE | re.DOTALL))
    commands = set(re.findall(r"^\$? ?allocbench ([a-z][a-z-]*)", code, flags=re.MULTILINE))
    assert len(commands) >= 6
    for command in commands:
        result = CliRunner().invoke(app, [command, "--help"])
        assert result.exit_code == 0, command
        assert f"allocbench {command}" in result.output, f"{command} --help shows no example"


def test_the_table_of_the_readme_is_what_its_command_prints() -> None:
    command = re.search(r"^\$ allocbench (compare .*)$", README, flags=re.MULTILINE)
    assert command
    rows = json.loads(output(f"{command[1]} --time 0 --json -"))
    assert len(rows) == 4
    for found in rows:
        shown = next(line for line in README.splitlines() if line.startswith(found["allocator"]))
        for metric in ("min_capacity", "peak_reserved"):
            assert units.size(found[metric]) in shown, f"{found['allocator']}: {metric}"
    assert units.size(rows[0]["max_load"]) in README


def test_every_extra_is_explained() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    for_users = extras["optional-dependencies"].keys() - {
        "bench",
        "docs",
        "fuzz",
        "lint",
        "mutants",
        "test",
    }
    quickstart = (ROOT / "docs" / "quickstart.md").read_text(encoding="utf-8")
    for extra in for_users:
        assert f"| `{extra}` |" in quickstart
        assert f"`{extra}`" in README


def test_files_that_documents_point_to_exist() -> None:
    for document in ("README.md", "CONTRIBUTING.md", "allocators/native/README.md"):
        base = (ROOT / document).parent
        text = (ROOT / document).read_text(encoding="utf-8")
        for target in re.findall(r"\]\((?!https?://|#)([^)#]+)", text):
            assert (base / target).exists(), f"{document} points to {target}"


def test_make_demo_installs_what_the_first_page_needs() -> None:
    """Or the page says which other package a command needs."""
    needs = {"compare": "report", "record": "null", "tune": "tune", "recommend": "tune"}
    needs["sweep"] = "sweep"
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    recipe = makefile.partition("$(VENV)/.demo: ")[2].partition("touch")[0]
    installed = re.findall(r"\w+", recipe.partition("$(NEEDED)")[2].partition(")")[0])
    used = set(re.findall(r"^\$? ?allocbench ([a-z-]+)", README, flags=re.MULTILINE))
    assert {needs[command] for command in used & needs.keys()} <= set(installed)


def test_the_readme_counts_the_allocs_of_the_recordings_of_the_h100() -> None:
    rows = [line.split("|")[1:-1] for line in agreement_caching().splitlines()[2:]]
    allocs = [int(row[2].replace(",", "")) for row in rows]
    assert [int(row[4].replace(",", "")) for row in rows] == allocs
    equal = f"{sum(allocs):,} of {sum(allocs):,} allocs"
    assert f"| {len(rows)} recordings of these programs on an H100 | {equal}" in README
