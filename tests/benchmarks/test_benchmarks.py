# SPDX-License-Identifier: Apache-2.0
"""The suites: fixed parameters, n/a with a reason, versions set by hand; asv accepts them."""

from __future__ import annotations

import ast
import importlib
import json
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
from benchmarks import common, gpu, instructions, latency, memory

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


def test_a_row_becomes_sibling_metrics() -> None:
    suite = memory.FastMemory()
    cell = suite.cell("buddy", "random:allocs=100")
    assert isinstance(cell, dict)
    suite.setup({("buddy", "random:allocs=100"): cell}, "buddy", "random:allocs=100")
    assert getattr(suite, "track_peak_reserved")({}) == cell["peak_reserved"] > 0  # noqa: B009
    assert getattr(suite, "track_overhead")({}) == round(cell["overhead"], 9)  # noqa: B009


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
