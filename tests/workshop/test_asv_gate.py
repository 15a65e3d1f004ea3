# SPDX-License-Identifier: Apache-2.0
"""The gate: counts must be equal unless a change is stated; no results are not equality."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from allocbench.reports.rows import asv
from benchmarks.workshop.asv_results import gate
from benchmarks.workshop.asv_results.gate import Comparison, Statement
from tests import asv_results as made

BASE, HEAD = "a" * 40, "b" * 40


def compared(
    tmp_path: Path, head: dict[str, Any], *statements: Statement, **changes: Any
) -> Comparison:
    made.write(tmp_path, BASE)
    made.write(tmp_path, HEAD, made.NUMBERS | head, **changes)
    return both(tmp_path, statements)


def both(tmp_path: Path, statements: Sequence[Statement] = ()) -> Comparison:
    """The comparison of the results of BASE and HEAD."""
    found = asv.cells(tmp_path)
    base, new = ([cell for cell in found if cell.commit == commit] for commit in (BASE, HEAD))
    return gate.compare(base, new, statements)


def names(found: Comparison) -> list[tuple[str, str]]:
    return [(one.head.metric, one.head.allocator) for one in found.unstated]


def test_equal_counts_are_the_same(tmp_path: Path) -> None:
    found = compared(tmp_path, {})
    assert (found.outcome, found.compared, found.differences) == ("same", 3, ())


@pytest.mark.parametrize("value", [4097, 4095, made.NAN])
def test_any_other_number_is_a_change(tmp_path: Path, value: float) -> None:
    found = compared(tmp_path, {made.PEAK: [value, 8192]})
    assert (found.outcome, names(found)) == ("changed", [("peak_reserved", "bfc")])


def test_a_new_number_is_not_a_change(tmp_path: Path) -> None:
    assert compared(tmp_path, {made.EXTERNAL: [0.25, 0.5]}).outcome == "same"


def test_times_never_fail_the_gate_and_show_their_spread(tmp_path: Path) -> None:
    found = compared(tmp_path, {made.STEADY: [4e-8, 3e-8]})
    assert found.outcome == "same"
    text = gate.markdown(found, "base", "head")
    assert "| seconds_per_event_steady | 2 | 1.50x | 0.75x to 2.25x | 2.00x: bfc on train |" in text


def counted(
    tmp_path: Path, before: list[float | None], after: list[float | None], *stated: Statement
) -> Comparison:
    """The comparison of instructions of bfc and naive, and of nothing else."""
    made.write(tmp_path, BASE, {made.INSTRUCTIONS: before})
    made.write(tmp_path, HEAD, {made.INSTRUCTIONS: after})
    return both(tmp_path, stated)


def test_more_instructions_are_a_change(tmp_path: Path) -> None:
    found = counted(tmp_path, [200.0, 300.0], [205.0, 305.0])
    assert (found.outcome, found.compared) == ("changed", 2)
    assert names(found) == [("instructions_per_event", "bfc")]  # 2.5 %; naive has 1.7 % more
    text = gate.markdown(found, "base", "head")
    assert "| instructions_per_event | bfc | train | 200 | 205 | 1.025x | **no** |" in text
    assert "Instructions, which may grow by 2.0%; half are within the spread:" in text
    assert "| instructions_per_event | 2 | 1.02x | 1.01x to 1.03x | 1.02x: bfc on train |" in text


def test_instructions_may_vary_a_little_and_shrink(tmp_path: Path) -> None:
    found = counted(tmp_path, [200.0, 300.0], [203.9, 150.0])
    assert (found.outcome, found.compared, found.differences) == ("same", 2, ())


def test_more_instructions_may_be_stated(tmp_path: Path) -> None:
    statement = Statement("instructions_per_event", "bfc")
    found = counted(tmp_path, [200.0, 300.0], [400.0, 300.0], statement)
    assert (found.outcome, [one.stated for one in found.differences]) == ("same", [True])


@pytest.mark.parametrize(("before", "after"), [(made.NAN, 200.0), (200.0, made.NAN)])
def test_instructions_that_cannot_be_counted_are_no_change(
    tmp_path: Path, before: float, after: float
) -> None:
    found = counted(tmp_path, [before, 300.0], [after, 300.0])
    assert (found.outcome, found.compared, found.differences) == ("same", 1, ())
    alone = counted(tmp_path / "alone", [before, made.NAN], [after, made.NAN])
    assert alone.outcome == "nothing ran"


def test_a_count_of_instructions_that_fails_has_failed(tmp_path: Path) -> None:
    assert counted(tmp_path, [200.0, 300.0], [None, 300.0]).outcome == "failed"


def test_a_failure_is_no_change(tmp_path: Path) -> None:
    found = compared(tmp_path, {made.PEAK: [None, 1]})
    assert (found.outcome, names(found)) == ("failed", [("peak_reserved", "naive")])
    assert [(cell.benchmark, cell.allocator) for cell in found.failed] == [(made.PEAK, "bfc")]
    assert "| memory.FastMemory.track_peak_reserved | bfc | train |" in gate.markdown(
        found, "base", "head"
    )


def test_a_commit_whose_build_failed_has_failed(tmp_path: Path) -> None:
    found = compared(tmp_path, dict.fromkeys(made.NUMBERS))
    assert (found.outcome, found.compared) == ("failed", 0)


def test_a_benchmark_that_the_head_does_not_have_has_failed(tmp_path: Path) -> None:
    made.write(tmp_path, BASE)
    made.write(tmp_path, HEAD, {made.EXTERNAL: [0.25, made.NAN]})
    assert both(tmp_path).outcome == "failed"


@pytest.mark.parametrize(
    "elsewhere", [{"machine": "other"}, {"environment": "virtualenv-py3.14"}, {"version": "2"}]
)
def test_commits_that_cannot_be_compared_are_not_equal(
    tmp_path: Path, elsewhere: dict[str, str]
) -> None:
    assert compared(tmp_path, {}, **elsewhere).outcome == "nothing ran"


def test_without_cells_on_one_side_nothing_ran(tmp_path: Path) -> None:
    made.write(tmp_path, BASE)
    assert gate.compare(asv.cells(tmp_path), []).outcome == "nothing ran"
    assert gate.compare([], asv.cells(tmp_path)).outcome == "nothing ran"


@pytest.mark.parametrize(
    ("words", "outcome"),
    [
        (("peak_reserved",), "same"),
        (("*", "bfc", "train"), "same"),
        (("peak_*", "b?c"), "same"),
        (("peak_reserved", "naive"), "changed"),
        (("overhead", "bfc"), "changed"),
        (("peak_reserved", "bfc", "serve*"), "changed"),
    ],
)
def test_a_stated_change_is_shown_and_accepted(
    tmp_path: Path, words: tuple[str, ...], outcome: str
) -> None:
    found = compared(tmp_path, {made.PEAK: [8192, 8192]}, Statement(*words))
    assert found.outcome == outcome
    stated = "yes" if outcome == "same" else "**no**"
    assert (
        f"| peak_reserved | bfc | train | 4.00 KiB (4,096) | 8.00 KiB (8,192) | 2.000x | {stated} |"
        in gate.markdown(found, "base", "head")
    )


def git(*arguments: str) -> str:
    settings = ["-c", "user.name=x", "-c", "user.email=x@example.org", "-c", "commit.gpgsign=false"]
    line = ["git", *settings, *arguments]
    return subprocess.run(line, check=True, capture_output=True, text=True).stdout.strip()


def commit(message: str) -> str:
    git("commit", "--allow-empty", "--quiet", "--message", message)
    return git("rev-parse", "HEAD")


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A git repository as the working folder, with one commit that was measured."""
    monkeypatch.chdir(tmp_path)
    git("init", "--quiet", "--initial-branch", "main")
    made.write(tmp_path / "asv", commit("Begin"))
    return tmp_path / "asv"


def asv_compare(base: str, head: str, rest: str = "") -> made.Ended:
    return made.run(f"compare {base} {head} --results asv {rest}")


def test_the_exit_code_distinguishes_outcomes(repository: Path) -> None:
    same = commit("Nothing")
    made.write(repository, same)
    changed = commit("More memory")
    made.write(repository, changed, made.NUMBERS | {made.PEAK: [8192, 8192]})
    failed = commit("Crash")
    made.write(repository, failed, dict.fromkeys(made.NUMBERS))
    commit("Never measured")
    codes = {
        head: asv_compare("main~4", head).exit_code
        for head in ("main~4", "main~3", "main~2", "main~1", "main")
    }
    assert codes == {"main~4": 0, "main~3": 0, "main~2": 1, "main~1": 4, "main": 3}
    result = asv_compare("main~4", "main~2")
    assert result.stdout.startswith("## Benchmarks: changed\n")
    assert "3 counted values compared, 1 changed" in result.stdout


def test_a_trailer_states_a_change_from_its_commit_on(repository: Path) -> None:
    head = commit("Bigger regions\n\nFor a reason.\n\nMetric-change: peak_reserved bfc")
    made.write(repository, head, made.NUMBERS | {made.PEAK: [8192, 8192]})
    assert asv_compare("main~1", "main").exit_code == 0
    assert "1 changed as stated" in asv_compare("main~1", "main").stdout
    later = commit("And back, unsaid")
    made.write(repository, later)
    assert asv_compare("main~1", "main").exit_code == 1


def test_the_summary_goes_to_a_file(repository: Path) -> None:
    result = asv_compare("main", "main", "--markdown summary.md")
    assert (result.exit_code, result.stdout) == (0, "")
    assert Path("summary.md").read_text().startswith("## Benchmarks: same\n")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("main nowhere --results asv", "nowhere: no such commit"),
        ("main main --results missing", "missing/benchmarks.json: cannot read"),
        ("main main", "asv.conf.json: not found here"),
    ],
)
def test_wrong_usage_is_one_line(repository: Path, arguments: str, words: str) -> None:
    result = made.run(f"compare {arguments}")
    assert (result.exit_code, result.stdout) == (2, "")
    assert words in result.stderr
    assert result.stderr.count("\n") == 1


def test_a_trailer_that_cannot_be_read_is_wrong_usage(repository: Path) -> None:
    commit("x\n\nMetric-change: peak reserved of bfc")
    result = asv_compare("main~1", "main")
    assert (result.exit_code, "expected METRIC" in result.stderr) == (2, True)
