# SPDX-License-Identifier: Apache-2.0
"""The suites: fixed parameters, n/a with a reason, versions set by hand; asv accepts them."""

import ast
import importlib
import json
import math
import os
import pkgutil
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import benchmarks
from allocbench import allocators
from allocbench.workloads import catalog
from benchmarks import common, gpu, gpu_programs, instructions, latency, memory
from tests import clean_environment

ROOT = Path(__file__).parents[2]
MODULES = [
    importlib.import_module(f"benchmarks.{module.name}")
    for module in pkgutil.iter_modules(benchmarks.__path__)
]


@pytest.fixture(autouse=True)
def own_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("ASV_PYTHONPATH", os.pathsep.join([str(ROOT), str(ROOT / "asv_plugin")]))


def tracked() -> Iterator[tuple[type, str, Any]]:
    """Every benchmark: its class, name and function."""
    for module in MODULES:
        for kind in vars(module).values():
            if isinstance(kind, type) and kind.__module__ == module.__name__:
                for name in dir(kind):
                    if name.startswith(("track_", "latency_")):
                        yield kind, name, getattr(kind, name)


def test_every_allocator_is_benchmarked() -> None:
    assert list(common.ALLOCATORS) == allocators.names(), "set ALLOCATORS in benchmarks/common.py"
    every = sorted(info.name for info in allocators.strategies())
    assert sorted(gpu.ALLOCATORS) == every, "set ALLOCATORS in benchmarks/gpu.py"


def test_every_workload_exists() -> None:
    for workload in common.FAST_WORKLOADS + common.WORKLOADS:
        assert catalog.knows(workload)
    assert not set(common.WORKLOADS) & set(common.FAST_WORKLOADS)


def test_every_benchmark_has_a_version_a_unit_and_parameters() -> None:
    result = list(tracked())
    assert len(result) > 40
    areas = {kind.__module__.removeprefix("benchmarks.") for kind, _, _ in result}
    assert areas == {
        *("cupy", "gpu_inference", "gpu_programs", "gpu_training", "importing"),
        *("instructions", "latency", "memory", "planners", "scaling"),
    }
    for kind, name, function in result:
        assert function.version.isdigit(), (kind, name)
        assert name.startswith("latency_") or re.match("seconds|bytes|ratio|count", function.unit)
        assert len(kind.params) == len(kind.param_names) > 0  # type: ignore[attr-defined]


@pytest.mark.parametrize("path", sorted(Path(benchmarks.__path__[0]).glob("*.py")), ids=str)
def test_every_module_can_be_imported_on_the_first_commit(path: Path) -> None:
    """asv always imports all modules, so newer names are looked up on first use."""
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.ImportFrom):
            assert not (node.module or "").startswith("allocbench")
        elif isinstance(node, ast.Import):
            assert not any(alias.name.startswith("allocbench") for alias in node.names)


def test_every_suite_has_its_own_cache() -> None:
    suites = {kind for kind, _, _ in tracked() if issubclass(kind, common.Suite)}
    codes = [kind.setup_cache.__code__ for kind in suites]  # type: ignore[attr-defined]
    lines = {(code.co_filename, code.co_firstlineno) for code in codes}
    assert len(lines) == len(suites) > 5


def test_a_row_becomes_sibling_metrics() -> None:
    suite = memory.FastMemory()
    cell = suite.cell("buddy", "random:allocs=100")
    assert isinstance(cell, dict)
    suite.setup({("buddy", "random:allocs=100"): cell}, "buddy", "random:allocs=100")
    assert getattr(suite, "track_peak_reserved")({}) == cell["peak_reserved"] > 0  # noqa: B009
    assert getattr(suite, "track_overhead")({}) == round(cell["overhead"], 9)  # noqa: B009


def test_null_or_unknown_columns_are_not_available() -> None:
    suite = memory.FastMemory()
    suite.row = {"overhead": None}
    assert math.isnan(getattr(suite, "track_overhead")({}))  # noqa: B009
    with pytest.raises(NotImplementedError, match="this commit has no peak_reserved"):
        getattr(suite, "track_peak_reserved")({})  # noqa: B009


@pytest.mark.parametrize(
    ("allocator", "workload", "reason"),
    [("none-such", "random:allocs=100", "none-such"), ("bfc", "none-such", "none-such")],
)
def test_names_unknown_to_a_commit_are_not_available(
    allocator: str, workload: str, reason: str
) -> None:
    cell = common.replay(allocator, workload, "--time", "0", "--no-min-capacity")
    assert not isinstance(cell, common.Failed)
    with pytest.raises(NotImplementedError, match=reason):
        common.Suite().setup({(allocator, workload): cell}, allocator, workload)


def test_a_crash_is_a_failure(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "allocbench").mkdir()
    (tmp_path / "allocbench" / "__main__.py").write_text("raise ValueError('broken')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(sys, "executable", clean_environment.python(tmp_path / "bare"))
    cell = common.replay("bfc", "random:allocs=100")
    assert isinstance(cell, common.Failed)
    with pytest.raises(RuntimeError, match="exit code 1: ValueError: broken"):
        common.Suite().setup({("bfc",): cell}, "bfc")


def test_without_a_gpu_the_suites_give_the_reason() -> None:
    cell = gpu.cell("bfc", "random:allocs=100")
    assert isinstance(cell, dict) or ("cuda" in cell.lower() and type(cell) is str)


def test_programs_need_a_cuda_build_of_pytorch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_PYTHON", "/no/python")
    cell = gpu_programs.run("null", "bfc", "gpt2-train")
    assert cell == "no CUDA build of PyTorch: set CUDA_PYTHON to a Python that has one"
    with pytest.raises(NotImplementedError, match="CUDA_PYTHON"):
        common.Suite().setup({("null",): cell}, "null")


def test_every_combination_is_measured_once() -> None:
    class Counted(common.Suite):
        params = (("a", "b"), (1, 2))
        seen: list[tuple[str, int]] = []  # noqa: RUF012

        def cell(self, *combination: Any) -> common.Cell:
            self.seen.append(combination)
            return str(combination)

    cells = Counted().cells()
    assert sorted(Counted.seen) == sorted(cells) == [("a", 1), ("a", 2), ("b", 1), ("b", 2)]
    assert cells["b", 1] == "('b', 1)"


def test_samples_are_drawn_from_all_calls() -> None:
    calls = latency.Calls()
    calls.setup("bfc", "random:allocs=3000")
    drawn = calls.latency_alloc("bfc", "random:allocs=3000")
    assert drawn == calls.latency_alloc("bfc", "random:allocs=3000")
    assert len(drawn) == 512
    assert set(drawn) <= set(calls.alloc.tolist())
    with pytest.raises(NotImplementedError, match="none-such"):
        calls.setup("none-such", "random:allocs=3000")


def test_the_plugin_passes_the_samples_to_asv(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("asv_runner", reason="asv is not installed: pip install '.[bench]'")
    monkeypatch.syspath_prepend(str(ROOT / "asv_plugin"))
    plugin = importlib.import_module("asv_bench_allocbench.benchmarks.latency")
    (kind,) = plugin.export_as_benchmark
    assert kind.name_regex.match("latency_alloc")
    assert not kind.name_regex.match("track_latency")

    def latency_two() -> list[float]:
        return [1e-8, 3e-8]

    result = kind("latency_two", latency_two, [latency_two])
    assert (result.type, result.unit) == ("time", "seconds")
    assert result.run() == {"samples": [1e-8, 3e-8], "number": 1}
    with pytest.raises(ValueError, match="no samples"):
        kind("latency_none", lambda: [], []).run()


def test_asv_accepts_the_suites() -> None:
    line = [sys.executable, "-m", "asv", "check", "-E", "existing:same"]
    done = subprocess.run(line, cwd=ROOT, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stdout
    assert "No problems found" in done.stdout


def test_asv_writes_nothing_that_git_would_see() -> None:
    text = re.sub(r"^\s*//.*$", "", (ROOT / "asv.conf.json").read_text(), flags=re.MULTILINE)
    settings = json.loads(text)
    for name in ("env_dir", "html_dir", "results_dir"):
        line = ["git", "check-ignore", "--quiet", "--no-index", f"{settings[name]}/any.json"]
        assert subprocess.run(line, cwd=ROOT, check=False).returncode == 0, name


def test_committed_results_are_simulated_and_contain_no_paths() -> None:
    folder = ROOT / "benchmarks" / "results" / "asv"
    kept = [path for path in folder.glob("*/*.json") if path.name != "machine.json"]
    assert len(kept) >= 6
    for path in kept:
        text = path.read_text()
        assert "/" not in json.loads(text)["python"]
        assert "existing-py_" not in text


@pytest.mark.parametrize(
    ("report", "expected"),
    [
        ("127783,,instructions:u,1000,100.00,,", 127_783),
        ("==7== \n==7== I   refs:      863,554,599\n", 863_554_599),
    ],
    ids=["perf", "valgrind"],
)
def test_instructions_are_read_from_a_report(report: str, expected: int) -> None:
    assert instructions.read_count(report) == expected


def test_a_report_without_instructions_is_refused() -> None:
    with pytest.raises(ValueError, match="not supported"):
        instructions.read_count("<not supported>,,instructions:u,0,100.00,,")


def test_without_a_counter_instructions_are_not_available(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(instructions, "available_counter", lambda: None)
    reason = instructions.Instructions().cell("bump", "random:allocs=10")
    assert reason == "neither perf stat nor valgrind can count instructions here"
    assert not isinstance(reason, common.Failed)
