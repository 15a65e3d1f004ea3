# SPDX-License-Identifier: Apache-2.0
"""Runs that are predicted before they are measured: their list, their schedule, the comparison."""

from __future__ import annotations

import json
import lzma
import re
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest

from benchmarks.workshop.gpu.provenance import ROOT
from benchmarks.workshop.measured import measure, plan, predict, report
from benchmarks.workshop.measured.__main__ import main
from benchmarks.workshop.measured.plan import Run
from docs.generate.tables import on_page_markdown

GIB = 1 << 30
PROGRAM = """
import json, os, sys
limit = next((int(word[8:]) for word in sys.argv if word.startswith("--limit=")), None)
ran_out = limit is not None and limit < 950
columns = {"action": ["alloc", "oom"], "size": [512, 1], "address": [1 << 20, 7], "stream": [0, 0]}
open(os.environ["MEASURED_EVENTS"], "w").write(json.dumps(columns))
if "--silent" not in sys.argv:
    print("measured: " + json.dumps({"oom": ran_out, "stages": [{"peak_reserved": 1000}]}))
sys.exit(ran_out)
"""


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with one program, which needs 1,000 bytes, or 950 under a limit."""
    folder = tmp_path / "programs"
    folder.mkdir()
    (folder / "made.py").write_text(PROGRAM)
    monkeypatch.setattr(plan, "PROGRAMS", folder)
    return folder


def run(name: str = "a", kind: str = "language", *flags: str, options: tuple[str, ...] = ()) -> Run:
    return Run(name, kind, "made", options, "alone" in flags, "limited" in flags)


def said(peak: int, capacity: int = 0, *, oom: bool = False) -> dict[str, Any]:
    told = {"peak_reserved": peak, "min_capacity": capacity or peak, "oom": oom}
    return told | {"date": "2026-01-01T00:00:00+00:00"}


def test_the_runs_have_names_of_their_own_and_programs_that_exist() -> None:
    found = plan.runs()
    assert len({one.name for one in found}) == len(found) > 60
    for table in (plan.SECOND, plan.THIRD):
        found += plan.runs(table)
    assert {one.kind for one in found} == set(plan.KINDS)
    for one in found:
        assert Path(one.command("python")[1]).exists(), one.name
        assert not {"alone", "limited"} & set(one.options)


def test_a_limit_is_an_option_of_the_program() -> None:
    told = run(options=("--batch=8",))
    assert told.command("py")[-1] == "--batch=8"
    assert told.command("py", 77)[-2:] == ["--batch=8", "--limit=77"]


def test_jobs_are_ordered_and_limits_follow_the_predicted_capacity() -> None:
    card, compiled = run("x-card", "cnn", "alone"), run("c", "compiled")
    limited, first = run("l", "language", "limited"), run("first", "language", "alone")
    predicted = {"l": {"0": said(2000, 1000)}, "x-card": {"0": {"error": "none"}}}
    found = measure.jobs([card, limited, compiled, first], predicted)
    assert [job.name for job in found] == ["first", "c", "l", "l@970", "l@1004", "x-card"]
    assert found[2].need == int(2000 * 1.15) + GIB


def test_a_run_of_the_second_round_has_limits_of_its_own_and_one_formula() -> None:
    found = next(run for run in plan.runs(plan.SECOND) if run.name == "resnet34-b128")
    assert (found.limited, found.limits) == (True, (0.97, 0.99, 1.005, 1.02))
    assert found.formulas == (plan.USUAL,)
    jobs = measure.jobs([found], {found.name: {plan.USUAL: said(2000, 1000)}})
    assert [job.limit for job in jobs] == [None, 970, 990, 1004, 1020]
    assert not {option for option in found.options if option.startswith("limits=")}


def test_a_job_that_has_a_result_is_not_repeated(programs: Path, tmp_path: Path) -> None:
    jobs = [measure.Job(run(name), None, 1) for name in ("a", "b")]
    assert measured(tmp_path, jobs[:1]) == 0
    assert measured(tmp_path, jobs) == 0
    _, rows = report.read(tmp_path / measure.RESULTS)
    assert [row["name"] for row in rows] == ["a", "b"]
    lines = (tmp_path / measure.RESULTS).read_text().splitlines()
    other = json.loads(lines[0]) | {"fingerprint": "other"}
    (tmp_path / measure.RESULTS).write_text("\n".join([json.dumps(other), *lines[1:]]))
    with pytest.raises(ValueError, match="measurements of other programs: name another folder"):
        measured(tmp_path, jobs)


def test_a_job_waits_for_memory_and_for_jobs_that_run_alone(tmp_path: Path) -> None:
    (tmp_path / "full").write_text("ready")
    (tmp_path / "empty").touch()

    def started(name: str, need: int, *flags: str, state: str) -> Any:
        job = measure.Job(run(name, "cnn", *flags), None, need)
        output = tmp_path / ("empty" if state == "importing" else "full")
        begun = 0.0 if state == "running" else None
        return measure._Started(job, None, output, Path(), begun)  # type: ignore[arg-type]

    one = started("running", 1, state="running")
    small, large = (started("ready", need, state="ready") for need in (1, 9))
    importing = started("importing", 1, state="importing")
    alone = started("alone", 1, "alone", state="ready")
    busy = started("alone", 1, "alone", state="running")
    following = measure._next
    assert following([one, large, small], 10) == large
    assert following([one, large, small], 9) == small
    assert following([large], 5) == large
    assert following([one, importing], 10) is None
    assert following([one, alone, small], 99) is None
    assert following([alone, small], 99) == alone
    assert following([busy, small], 99) is None
    assert following([one, large, alone, small], 5) is None


def measured(into: Path, jobs: list[measure.Job], budget: float = 60) -> int:
    settings = {"most_jobs": 2, "memory": 99, "python": sys.executable, "variables": {}}
    return measure.measure(jobs, into, budget=budget, **settings)  # type: ignore[arg-type]


def test_results_are_written_with_their_events(programs: Path, tmp_path: Path) -> None:
    silent = run("silent", options=("--silent",))
    jobs = [measure.Job(run(), None, 1), measure.Job(run(), 900, 1), measure.Job(silent, None, 1)]
    assert measured(tmp_path / "out", jobs) == 0
    provenance, rows = report.read(tmp_path / "out" / measure.RESULTS)
    assert provenance["fingerprint"] == predict.fingerprint()
    found = {row["name"]: row for row in rows}
    assert found["a"]["result"]["stages"][-1]["peak_reserved"] == 1000
    assert found["a@900"]["result"]["oom"]
    assert found["a@900"]["exit_code"] == 1
    assert found["silent"]["error"] == "ready\n"
    with tarfile.open(tmp_path / "out" / measure.EVENTS) as archive:
        assert len(archive.getnames()) == 3
        packed = archive.extractfile("a.json.xz")
        assert packed
        columns = json.loads(lzma.decompress(packed.read()))
    assert columns["address"] == [0, -1]
    assert columns["base"] == 1 << 20


def test_jobs_that_the_budget_leaves_are_named(programs: Path, tmp_path: Path) -> None:
    assert measured(tmp_path, [measure.Job(run(), None, 1)], budget=-1) == 1
    _, rows = report.read(tmp_path / measure.RESULTS)
    assert rows == [{"name": "a", "error": "not started"}]


def row(name: str, peak: int, *, limit: int | None = None, oom: bool = False) -> dict[str, Any]:
    result = {"oom": oom, "stages": [{"peak_reserved": peak}]}
    told = {"run": name, "name": name, "limit": limit, "result": result}
    return told | {"date": "2026-01-01T00:00:01+00:00"}


def compared(rows: list[dict[str, Any]], formula: str = "0") -> list[report.Compared]:
    runs = [run("l", "language", "limited"), run("c", "cnn"), run("none")]
    predictions = {
        "l": {"0": said(1100, 900)},
        "c": {"0": said(900), "spatial": said(1000)},
        "none": {"0": {"error": "no answer"}},
    }
    return report.compare(runs, {"runs": predictions}, rows, formula)


def test_errors_are_relative_to_the_measured_peak() -> None:
    rows = [row("l", 1000), row("c", 1000)]
    assert [one.error for one in compared(rows)] == [0.1, -0.1]
    assert [one.error for one in compared(rows, "spatial")] == [0.1, 0.0]


def test_a_limit_below_the_predicted_capacity_is_predicted_to_run_out() -> None:
    rows = [row("l", 800, limit=800, oom=True), row("l", 850, limit=850), row("l", 950, limit=950)]
    found = compared(rows)
    assert [one.said.oom for one in found if one.said] == [True, True, False]
    assert [one.error for one in found] == [None, None, None]
    text = "\n".join(report.lines({"0": found}))
    assert "| all | 3 | 0 | - | - | - | - | 66.67% |" in text
    assert "| with a limit | 3 | 0 | - | - | - | - | 66.67% |" in text
    assert "| l, limit 0 MiB | 0 | 0 |  | predicted only |" in text


def test_runs_without_a_prediction_or_measurement_are_named() -> None:
    failed = row("c", 1) | {"error": "line\nValueError: wrong\n"}
    del failed["result"]
    text = list(report.lines({"0": compared([row("none", 5), failed])}))
    assert text[-2:] == [
        "| none | not predicted: no answer | | | |",
        "| c | not measured: ValueError: wrong | | | |",
    ]


def test_a_prediction_after_the_measurement_does_not_count() -> None:
    (found,) = compared([row("l", 1000) | {"date": "2026-01-01T00:00:00+00:00"}])
    assert found.error is None
    assert found.said is None
    assert found.trouble.startswith("not predicted before the measurement, but at 2026-01-01")


def test_predictions_made_after_the_measurement_have_a_table_of_their_own() -> None:
    late = [row("l", 1000) | {"date": "2026-01-01T00:00:00+00:00"}]
    runs = [run("l", "language", "limited")]
    predictions = {"after": True, "runs": {"l": {"0": said(1100)}}}
    found = report.by_formula(runs, predictions, late)
    assert [one.error for one in found["0"]] == [0.1]
    text = "\n".join(report.lines({"0": compared(late)}, found))
    first, second = text.split("Predicted when the measurements were known:")
    assert "| all |" not in first
    assert "| all | 1 | 1 | 10.00% |" in second


def test_the_documentation_has_the_tables_of_the_committed_results(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["compare"]) == 0
    tables = capsys.readouterr().out.split("\n\n")
    text = on_page_markdown((ROOT / "docs" / "truth.md").read_text(encoding="utf-8"))
    assert tables[0].startswith("| kind | runs |")
    assert tables[2].startswith("| kind | runs |")
    assert tables[0] in text
    assert tables[2] in text
    named = re.findall(r"^\| `([\w-]+)` \| ([-+][\d.]+%) \|", text, re.MULTILINE)
    errors = re.findall(r"^\| ([\w-]+) \| [\d,]+ \| [\d,]+ \| ([-+][\d.]+%) \|", tables[3], re.M)
    worst = sorted(errors, key=lambda pair: -abs(float(pair[1].rstrip("%"))))
    assert named == worst[:5]


def test_results_of_other_programs_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "predictions.json").write_text(json.dumps({"fingerprint": "a", "runs": {}}))
    (tmp_path / measure.RESULTS).write_text(json.dumps({"fingerprint": "b"}) + "\n")
    assert main(["compare", f"--results={tmp_path}", f"--into={tmp_path}"]) == 2
    assert "differ" in capsys.readouterr().err
    assert main(["compare", f"--results={tmp_path / 'none'}"]) == 2
    assert capsys.readouterr().err.endswith("predictions.json: No such file or directory\n")


def test_every_result_of_a_program_is_read() -> None:
    text = 'x\nmeasured: {"oom": true}\nmeasured: {"oom": false}\ny\n'
    assert [found["oom"] for found in predict.results(text)] == [True, False]
