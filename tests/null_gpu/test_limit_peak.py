# SPDX-License-Identifier: Apache-2.0
"""allocbench.testing, its pytest plugin, and functions as workloads, with a CUDA build of PyTorch.

They run in an environment that has both allocbench and that build.
"""

import json
import os
import re
import subprocess
import sysconfig
import venv
from pathlib import Path

import pytest
import yaml  # type: ignore[import-untyped]

from allocbench.questions import peaks
from allocbench.workloads import read
from tests.null_gpu import ROOT, asked, python, recorded
from tests.null_gpu.test_program_workloads import a_cache_of_its_own

__all__ = ["a_cache_of_its_own"]  # the fixture, by its import

# Each piece keeps 8 MiB of activations; of 100 pieces, one more is 1 %.
TESTS = """
import pytest
import torch

@pytest.fixture
def pieces():
    assert torch.cuda.is_available()
    return {pieces}

def forward(pieces):
    weight = torch.zeros(1, device="cuda", requires_grad=True)
    saved = [torch.empty(1 << 20, device="cuda") * weight for _ in range(pieces)]
    return sum(saved).sum()

@pytest.mark.limit_peak(percent=0.5, card="l4")
def test_step(pieces):
    forward(pieces).backward()

@pytest.mark.limit_peak("200MiB", card="l4")
def test_limit(pieces):
    forward(20)

def test_unmarked():
    assert torch.ones(3).sum().item() == 3
    assert not torch.cuda.is_available()
"""


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A Python with a CUDA build of PyTorch and allocbench."""
    folder = tmp_path_factory.mktemp("both")
    cuda = Path(python()).parents[1]
    venv.create(folder / "env", symlinks=True)
    (site,) = (folder / "env" / "lib").glob("python*/site-packages")
    (torch,) = (cuda / "lib").glob("python*/site-packages")
    ours = sysconfig.get_path("purelib")
    (site / "both.pth").write_text(f"{torch}\nimport site; site.addsitedir({ours!r})\n{ROOT}\n")
    return str(folder / "env" / "bin" / "python")


def run_pytest(both: str, *options: str) -> tuple[int, str]:
    """The exit code and the output of pytest for the tests in this folder."""
    environment = os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    command = [both, "-m", "pytest", "-p", "allocbench.pytest_plugin", "-p", "no:cacheprovider"]
    command += ["--strict-markers", "-rf", *options, "test_memory.py"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


def plant(pieces: int) -> None:
    Path("test_memory.py").write_text(TESTS.replace("{pieces}", str(pieces)))


def test_an_increase_of_one_percent_is_found_and_nothing_else(both: str) -> None:
    plant(100)
    only = "-k", "test_step"
    code, shown = run_pytest(both, *only)
    assert code == 1
    assert "peaks.json has no peak of test_memory.py::test_step" in shown
    code, shown = run_pytest(both, "--update-peaks")
    assert code == 0, shown
    stored = json.loads(Path("peaks.json").read_text())
    assert list(stored) == ["test_memory.py::test_step"]
    assert stored["test_memory.py::test_step"]["device"] == "null:l4-24gb"
    for repeat in range(2):  # a comment is a change: nothing is taken from the cache
        Path("test_memory.py").write_text(f"# {repeat}\n" + Path("test_memory.py").read_text())
        code, shown = run_pytest(both, *only)
        assert code == 0, shown
    plant(101)
    code, shown = run_pytest(both)
    assert code == 1, shown
    assert "1 failed, 2 passed" in shown
    assert "% above the baseline" in " ".join(shown.split()).replace(") above", " above")
    for kind in ("temporaries of the forward pass", "activations and inputs"):
        assert f"+4.00 MiB {kind} by test_memory.py <listcomp>" in shown


def test_a_failed_limit_shows_what_holds_the_memory(both: str) -> None:
    plant(1)
    Path("test_memory.py").write_text(TESTS.replace("200MiB", "50MiB").replace("{pieces}", "1"))
    code, shown = run_pytest(both, "-k", "limit")
    assert code == 1
    assert "above the limit of 50.0 MiB" in shown
    assert "test_memory.py" in shown.partition("above the limit")[2]


PROGRAM = """
import json, sys
from allocbench import api
from allocbench.testing import PeakError, limit_peak

size = 10 << 20
def step():
    import torch
    kept = torch.empty(size, device="cuda")
    return kept * 2

seen = {}
found = api.fit(step, ["caching"], device="null:l4", time_limit=0)
seen["fit"] = int(found["max_load"].iloc[0]), found["workload"].iloc[0], found["card"].iloc[0]
try:
    limit_peak("70MiB", card="l4")(step)()
except PeakError as error:
    seen["limit"] = str(error)
seen["within"] = limit_peak("80MiB", card="l4")(step)()
print(json.dumps(seen))
"""


def test_functions_are_workloads(both: str) -> None:
    done = subprocess.run([both, "-c", PROGRAM], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    assert seen["fit"] == [80 << 20, "step", "RTX 3070 8GB"]
    assert "10.0 MiB above the limit of 70.0 MiB" in seen["limit"]
    assert seen["within"] is None


BLOCK = """
import torch
from allocbench.testing import PeakError, limit_peak

before = torch.empty(50 << 20, device="cuda")
with limit_peak("5MiB"):
    torch.empty(1 << 20, device="cuda")
try:
    with limit_peak("5MiB"):
        torch.empty(3 << 20, device="cuda")
except PeakError as error:
    print(error)
"""


def test_a_block_counts_its_additional_memory(both: str) -> None:
    done = asked("record", "--device", "null:l4", "-o", "t.parquet", "--", both, "-c", BLOCK)
    assert "allocates 12.0 MiB at its peak, 7.00 MiB above the limit of 5.00 MiB" in done.stdout


RUNS = int(os.environ.get("ALLOCBENCH_TEST_RUNS", "8"))
"""ALLOCBENCH_TEST_RUNS=100 makes it a hundred."""


def test_many_runs_give_no_false_alarm_and_one_percent_more_is_found(tmp_path: Path) -> None:
    options = "--device null:l4 --labels lines"
    recorded(tmp_path / "run.parquet", "repeated", str(RUNS + 1), options=options)
    traces = [read(tmp_path / f"run-process{run}-gpu0.parquet") for run in range(RUNS + 1)]
    baseline, *others, planted = [peaks.peak_of(trace) for trace in traces]
    assert len(others) == RUNS - 1
    for peak in others:
        assert peaks.above_baseline(peak, baseline, 0) is None
        assert peak == baseline
    told = peaks.above_baseline(planted, baseline, 0.5)
    assert told is not None
    assert "+2.00 MiB activations and inputs by repeated.py " in told


WORKFLOW = ROOT / "docs" / "examples" / "memory.yml"
TRAIN = """
import torch
weight = torch.zeros(1, device="cuda", requires_grad=True)
sum((torch.empty(1 << 20, device="cuda") * weight).sum() for _ in range({pieces})).backward()
"""


GH = """#!/bin/sh
echo "$@" >> {said}
case "$*" in *--jq*) cat {comments};; esac
"""


def git(folder: Path, *line: str) -> None:
    author = ("-c", "user.name=a", "-c", "user.email=a@example.org")
    subprocess.run(["git", "-C", str(folder), *author, *line], check=True, capture_output=True)


def test_the_workflow_for_github_runs_here(both: str, tmp_path: Path) -> None:
    workflow = yaml.safe_load(WORKFLOW.read_text())
    assert workflow[True] == "pull_request"  # YAML reads the key "on" as true
    assert workflow["permissions"] == {}
    peak, comment = workflow["jobs"]["peak"], workflow["jobs"]["comment"]
    assert peak["permissions"] == {"contents": "read"}
    assert comment["permissions"] == {"pull-requests": "write"}
    for step in (*peak["steps"], *comment["steps"]):
        assert ("uses" in step) != ("run" in step)
        assert "${{" not in step.get("run", "")  # text of a pull request must not become a script
        assert re.search(r"@[0-9a-f]{40}$", step.get("uses", f"@{'0' * 40}"))

    head = tmp_path / "head"
    head.mkdir()
    git(head, "init", "-q", "-b", "main")
    for branch, pieces in (("main", 100), ("change", 101)):
        git(head, "checkout", "-q", "-B", branch)
        (head / "train.py").write_text(TRAIN.format(pieces=pieces))
        git(head, "add", ".")
        git(head, "commit", "-q", "-m", branch)
    git(head, "checkout", "-q", "main")
    git(head, "merge", "-q", "--no-ff", "change")

    said, comments = tmp_path / "said", tmp_path / "comments"
    (tmp_path / "bin").mkdir()
    gh = GH.format(said=said, comments=comments)
    for name, text in (("python", f'#!/bin/sh\nexec {both} "$@"\n'), ("gh", gh)):
        (tmp_path / "bin" / name).write_text(text)
        (tmp_path / "bin" / name).chmod(0o755)
    environment = os.environ | peak["env"] | {"GITHUB_STEP_SUMMARY": str(tmp_path / "summary")}
    environment |= {"GH_REPO": "owner/name", "NUMBER": "7"}
    environment |= {"OWN": comment["steps"][-1]["env"]["OWN"]}
    environment["PATH"] = f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}"

    def run_step(job: dict[str, list[dict[str, str]]], name: str) -> None:
        (found,) = (one for one in job["steps"] if one.get("name") == name)
        shell = ("bash", "--noprofile", "--norc", "-eo", "pipefail", "-c")  # as GitHub does
        done = subprocess.run(
            [*shell, found["run"]],
            cwd=tmp_path / found.get("working-directory", "."),
            env=environment,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr

    run_step(peak, "Check out the base")
    run_step(peak, "Compare the peaks")
    change = (tmp_path / "change.md").read_text()
    assert change.startswith("<!-- gpu-memory -->\n### GPU memory of `python train.py")
    assert "the peak load grows by 4.00 MiB (0.99 %)" in change
    assert (tmp_path / "summary").read_text() == change
    comments.write_text("")
    run_step(comment, "Comment")
    assert said.read_text().splitlines()[-1] == "pr comment 7 --body-file change.md"
    comments.write_text("41\n42\n")
    run_step(comment, "Comment")
    replaced = "api --method PATCH repos/owner/name/issues/comments/42 --field body=@change.md"
    assert said.read_text().splitlines()[-1] == replaced
