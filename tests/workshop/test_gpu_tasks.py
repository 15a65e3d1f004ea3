# SPDX-License-Identifier: Apache-2.0
"""`make gpu` without a GPU: its plan, and dry runs of its tasks."""

from __future__ import annotations

import argparse
import json
import platform
import re
import subprocess
import sys
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from allocbench import allocators
from allocbench.workloads import ALLOC, FREE, catalog
from benchmarks.workshop.gpu import contestants, running, sharing, stages
from benchmarks.workshop.gpu.__main__ import seconds
from benchmarks.workshop.gpu.tables import summary
from benchmarks.workshop.measured import plan
from tests.null_driver import NAME, environment
from tests.traces import make
from tests.waiting import is_running, wait_until

ROOT = Path(__file__).parents[2]


def gpu(
    *arguments: str, settings: Mapping[str, object] | None = None, **variables: str
) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "benchmarks.workshop.gpu", *arguments]
    env = environment(settings, **variables)
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=600)


def test_contestants_are_every_candidate_and_three_of_pytorch() -> None:
    names = [who.name for who in contestants.everyone()]
    assert names[:3] == ["torch", "torch-expandable", "torch-async"]
    candidates = [info.name for info in allocators.strategies() if info.candidate]
    assert set(candidates) <= set(names)
    assert "cuda_async" in names
    assert len(names) == len(set(names))
    for who in contestants.ours():
        assert contestants.find(who.name) == who
        assert who.spec is not None


def test_the_plan_has_one_command_and_one_file_per_task() -> None:
    done = gpu("--plan", LD_LIBRARY_PATH="/nowhere")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == sum(len(list(stages.STAGES[name]())) for name in stages.ALWAYS)
    outputs = [line.split("--output ")[1].split()[0] for line in lines]
    assert len(set(outputs)) == len(outputs)
    assert all("/benchmarks/results/gpu/GPU/" in output for output in outputs)
    expandable = next(line for line in lines if "gpt2-train--torch-expandable" in line)
    assert expandable.startswith("PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True")


def test_the_most_valuable_tasks_of_all_stages_come_first() -> None:
    plan = stages.in_order(stages.ALWAYS)
    later = [task.later for task in plan]
    assert later == sorted(later)
    first = [task for task in plan if not task.later]
    order = list(dict.fromkeys(task.stage for task in first))
    assert order[:6] == ["blind", "published", "workspaces", "context", "driver", "programs"]
    assert {task.stage for task in first} == set(stages.ALWAYS)
    for stage in ("programs", "hunt", "drift"):
        names = [task.name.rpartition("--")[2] for task in first if task.stage == stage]
        assert set(names) - {"caching-poisoned"} == set(contestants.FIRST)
    assert {task.name for task in plan} == {
        task.name for name in stages.ALWAYS for task in stages.STAGES[name]()
    }


def test_make_runs_the_right_command() -> None:
    for arguments, needed, wanted in (
        (["gpu"], "cmake --build", "-m benchmarks.workshop.gpu"),
        (["gpu", "DRY=1", "ONLY=hunt"], "", "--dry --into build/gpu-dry --only hunt"),
        (["gpu", "NULL=null:h100", "BUDGET=60"], "torch/2.13.0/lib", "--null null:h100 --into"),
        (["gpu", "INTO=there", "BUDGET=25m"], "", "--budget 25m --into there"),
    ):
        done = subprocess.run(
            ["make", "--dry-run", *arguments], cwd=ROOT, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        assert wanted in done.stdout
        assert needed in done.stdout


def test_a_budget_is_minutes_hours_or_seconds() -> None:
    found = [seconds(text) for text in ("540", "540s", "25m", "0.5h")]
    assert found == [540, 540, 1500, 1800]
    done = gpu("--budget", "soon")
    assert done.returncode == 2
    assert "argument --budget: invalid seconds value: 'soon'" in done.stderr


def test_a_rehearsal_of_the_first_stages_leaves_one_archive(tmp_path: Path) -> None:
    options = ("--dry", "--into", str(tmp_path), "--only", "blind,published")
    done = gpu(*options, "--match", "second", "--budget", "25m")
    assert done.returncode == 0, done.stdout
    done = gpu(*options, "--match", "MnasNet-240")
    assert done.returncode == 0, done.stdout
    (folder,) = (path for path in tmp_path.iterdir() if path.is_dir())
    told = json.loads((folder / "blind/second.json").read_text())["measured"]
    known = {run.name: run for run in plan.runs(plan.SECOND)}
    limited = [run for run in known.values() if run.limited]
    assert len(known) == 60
    assert len(limited) >= 5
    jobs = [name for name in told["jobs"] if "@" not in name]
    assert sorted(jobs) == sorted(known)
    assert set(told["not_predicted"]) < set(known)
    command = json.loads((folder / "published/MnasNet-240.json").read_text())["measured"]["command"]
    assert command[1:] == [
        *("--model=MnasNet", "--optimizer=Adam", "--batch=240", "--zero-grad-mode=0")
    ]
    with tarfile.open(tmp_path / f"{folder.name}.tar.gz") as packed:
        names = {Path(member.name).name for member in packed}
    assert {"second.json", "MnasNet-240.json"} <= names


def test_without_a_gpu_it_prints_one_line_and_exits_with_2() -> None:
    done = gpu("--only", "hunt", LD_LIBRARY_PATH="/nowhere")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: no CUDA driver found")
    assert done.stderr.count("\n") == 1
    done = gpu("--only", "hunting")
    assert done.returncode == 2
    assert "no stage is called hunting; stages: " in done.stderr


def test_dry_runs_write_results_and_are_not_repeated(tmp_path: Path) -> None:
    options = ("--dry", "--into", str(tmp_path), "--only", "calibration,programs")
    done = gpu(*options, "--match", "device_costs")
    assert done.returncode == 0, done.stdout
    done = gpu(*options, "--match", "gpt2-train--tlsf")
    assert done.returncode == 0, done.stdout
    (folder,) = (path for path in tmp_path.iterdir() if path.is_dir())
    assert re.fullmatch("null-gpu-[0-9a-f]{8}", folder.name)
    costs = json.loads((folder / "calibration" / "device_costs.json").read_text())
    for call in ("malloc", "free", "map", "unmap"):
        assert all(seconds > 0 for _, seconds in costs["measured"]["calls"][call])
    assert {size for size, _ in costs["measured"]["calls"]["map"]} == {2 << 20}
    assert all(one["seconds_predicted"] > 0 for one in costs["measured"]["predictions"])
    found = json.loads((folder / "programs" / "gpt2-train--tlsf.json").read_text())
    assert found["provenance"]["gpu"] == NAME
    uuid = found["provenance"]["gpu_uuid"]
    assert re.fullmatch("GPU-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", uuid)
    assert folder.name.endswith(uuid[4:12])
    assert found["provenance"]["kernel"] == platform.release()
    assert found["provenance"]["dry"]
    assert found["provenance"]["null"] is None
    assert found["provenance"]["torch"]
    measured = found["measured"]
    assert len(measured["runs"][0]["seconds"]) == len(measured["outcomes"]) == 3
    assert measured["row"]["peak_reserved"] >= measured["row"]["peak_requested"] > 0
    again = gpu(*options, "--match", "gpt2-train--tlsf")
    assert not list(folder.rglob("*.log"))  # they are empty
    archive = tmp_path / f"{folder.name}.tar.gz"
    assert again.stdout.splitlines() == [
        "[1/1] programs gpt2-train--tlsf: has a result",
        f"all results: {archive}",
    ]
    with tarfile.open(archive) as packed:
        files = {Path(member.name) for member in packed if member.isfile()}
    assert files == {path.relative_to(tmp_path) for path in folder.rglob("*.*") if path.is_file()}
    told = (folder / "README.md").read_text()
    assert "**Dry runs of tiny programs on the CPU. No number here was measured on a GPU.**" in told
    assert "## Programs of the catalog: gpt2-train" in told
    assert "| tlsf | " in told
    assert "| gpt2-train | naive | " in told


def test_a_failing_task_is_reported_and_writes_no_result(tmp_path: Path) -> None:
    options = ("--dry", "--into", str(tmp_path), "--only", "calibration")
    done = gpu(*options, settings={"fail": "cuMemAlloc_v2:0:700"})
    assert done.returncode == 1, done.stdout
    assert "CUDA_ERROR_ILLEGAL_ADDRESS" in done.stdout
    log = next(tmp_path.rglob("device_costs.log"))
    assert len(log.read_text().splitlines()) > 1  # all of it, not only the line that is shown
    names = {path.name for path in log.parent.iterdir()}
    assert names == {"device_costs.failed", "device_costs.log"}
    done = gpu(*options, "--budget", "0")
    assert done.stdout.startswith("[1/1] calibration device_costs: no time left\nall results: ")
    assert done.returncode == 3
    done = gpu(*options, settings={"fail": "cuDevicePrimaryCtxRetain:0:2"})
    assert (done.returncode, done.stdout) == (2, "")
    assert "cuDevicePrimaryCtxRetain: CUDA_ERROR_OUT_OF_MEMORY" in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_task_that_the_budget_cuts_off_is_unfinished(tmp_path: Path) -> None:
    options = ("--dry", "--into", str(tmp_path), "--only", "calibration")
    done = gpu(*options, "--budget", "0.01")
    assert done.returncode == 3
    assert "cut off by the budget" in done.stdout
    assert [path.suffix for path in next(tmp_path.rglob("calibration")).iterdir()] == [".log"]


def test_a_timeout_ends_the_children_of_a_task(tmp_path: Path) -> None:
    log, limit = tmp_path / "log", 0.5
    while True:  # until the limit lets the shell start
        process = running.Process(["sh", "-c", "sleep 1000 & echo $!; wait"], {}, limit, log)
        wait_until(lambda: process.is_over)  # noqa: B023
        assert process.stop()[1] is None
        if child := log.read_text():
            break
        limit *= 2
    wait_until(lambda: not is_running(int(child)))


def test_computed_values_are_compared_with_pytorch(tmp_path: Path) -> None:
    assert summary.unlike([1.0, 2.0], [1.0, 2.0]) == 0
    assert summary.unlike([1.0, 2.2], [1.0, 2.0]) == 1
    assert summary.unlike([1.0, None], [1.0, 2.0]) == 1
    assert summary.unlike([1.0], [1.0, 2.0]) == 2
    assert summary.unlike([1.0], []) is None
    computed = {
        "torch": [2.0, 1.0, 1.0],
        "torch-async": [2.0, 3.0, 1.0],
        "bfc": [2.001, 1.0, 5.0],
        "slab": [3.0, 4.0, 1.0],
        "buddy": [None, None, 1.0],
    }
    for who, outcomes in computed.items():
        result = {"row": {}, "outcomes": outcomes, "step_seconds_median": 1.0}
        path = tmp_path / "programs" / f"gpt2-train--{who}.json"
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps({"measured": result | {"tokens_per_second": None}}))
    (tmp_path / "programs" / "gpt2-train--tlsf.failed").write_text('{"failure": "too slow"}')
    rows = {
        row.split(" | ")[0][2:]: row.split(" | ")[-1].rstrip(" |")
        for row in summary.markdown(tmp_path).splitlines()
        if row.startswith("| ")
    }
    assert rows["torch"] == "0 of 3"
    assert rows["torch-async"] == rows["bfc"] == "1 of 3"
    assert rows["slab"] == rows["buddy"] == "2 of 3 !"
    assert "| tlsf | too slow |" in summary.markdown(tmp_path)
    assert summary.markdown(tmp_path / "none") == ""


def test_the_hunt_finds_the_largest_batch() -> None:
    from benchmarks.workshop.gpu.tasks.hunt import hunt

    for largest in (0, 1, 2, 3, 7, 8, 100):
        tried: list[int] = []

        def trains(batch: int, largest: int = largest, tried: list[int] = tried) -> bool:
            tried.append(batch)
            return batch <= largest

        assert hunt(trains)["largest_batch"] == largest
        assert len(tried) == len(set(tried)) <= 16


def test_captured_and_live_traces_are_compared_by_their_requests() -> None:
    from benchmarks.workshop.gpu.tasks.simulation import compare

    captured = make([(ALLOC, 0, 100), (ALLOC, 1, 200), (FREE, 0, 0), (FREE, 1, 0)])
    live = make([(ALLOC, 0, 100), (FREE, 0, 0), (ALLOC, 1, 200), (ALLOC, 2, 300)])
    found = compare(captured, live)
    assert found["max_load_error"] == pytest.approx(300 / 500 - 1)
    assert found["share_of_live_allocs"] == pytest.approx(2 / 3)
    assert found["share_of_live_bytes"] == pytest.approx(300 / 600)


def test_step_times_leave_out_the_first_of_several_runs() -> None:
    from benchmarks.workshop.gpu.driving import step_times

    runs: list[dict[str, list[Any]]] = [
        {"seconds": [9.0, 9.0], "reserved": [1, 2, 3]},
        {"seconds": [1.0, 3.0], "reserved": [1, 2, 3]},
    ]
    found = step_times(runs, [10, 30])
    assert found["step_seconds_median"] == 2.0
    assert found["run_seconds"] == [4.0]
    assert found["tokens_per_second"] == 10.0
    assert step_times(runs[:1], None)["step_seconds_median"] == 9.0


class Scripted(stages.Task):
    """A task that runs the shell script in its first argument."""

    def command(self, output: str, *, dry: bool) -> list[str]:
        return ["sh", "-c", f"{self.arguments[0]}; echo '{{}}' > {output}"]


def run_scripts(into: Path, jobs: int, *scripts: tuple[str, int]) -> int:
    """The exit code of tasks, each a script and GiB of GPU memory."""
    plan = [
        Scripted("stage", f"task{number}", "", (script,), gib=gib)
        for number, (script, gib) in enumerate(scripts)
    ]
    options = argparse.Namespace(budget=300, jobs=jobs, fresh=False, dry=False)
    return running.run(list(plan), into / "results", {}, options)


def test_tasks_run_at_the_same_time_if_their_memory_fits(tmp_path: Path) -> None:
    # Each of the two small tasks ends only while the other runs; a large one needs all memory.
    one, two = tmp_path / "one", tmp_path / "two"
    meet = "touch {}; until test -e {}; do sleep 0.01; done"
    small = [(meet.format(one, two), 30), (meet.format(two, one), 30)]
    log = tmp_path / "log"
    large = (f"echo begun >> {log}; sleep 0.1; echo ended >> {log}", sharing.MEMORY)
    assert run_scripts(tmp_path, 3, large, *small, large) == 0
    assert log.read_text().split() == ["begun", "ended"] * 2
    assert len(list((tmp_path / "results" / "stage").glob("*.json"))) == 4


def test_a_failure_beside_others_is_reported(tmp_path: Path) -> None:
    assert run_scripts(tmp_path, 2, ("true", 1), ("exit 7", 1), ("true", 1)) == 1
    names = sorted(path.name for path in (tmp_path / "results" / "stage").glob("*.[jf]*"))
    assert names == ["task0.json", "task1.failed", "task2.json"]


def test_the_plan_of_the_agreement_fits_on_the_gpu() -> None:
    plan = list(stages.agreement())
    assert all(0 < task.gib <= sharing.MEMORY for task in plan)
    names = [task.name for task in plan]
    assert len(set(names)) == len(names)
    assert {*catalog.captured(), "device", "checks--native", "checks--planned"} <= set(names)
