# SPDX-License-Identifier: Apache-2.0
"""Programs get the same results with each allocator as with PyTorch's own."""

import json
import os
import re
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from allocbench.reports.rows import bundle
from benchmarks.workshop.gpu.tasks import same_results
from tests.null_gpu import PROGRAMS, ROOT, VERSIONS, asked, python, seen

CARD = "null:h100,memory=2GiB,count=2"
CHECKS = str(PROGRAMS / "checks.py")
EVERY = tuple(spec for spec in same_results.EVERY if spec != same_results.NATIVE)
TRIED = EVERY if os.environ.get("ALLOCBENCH_TEST_TORCH") else ("caching", "planned", "slab")
"""All of them take minutes: `make test-null`."""
of_each_version = pytest.mark.parametrize("version", VERSIONS)


@cache
def native(version: str) -> dict[str, Any]:
    with TemporaryDirectory() as folder:
        return seen("checks", Path(folder), on=CARD, version=version)


@of_each_version
def test_every_check_passes_with_pytorchs_own_allocator(version: str) -> None:
    found = native(version)
    assert [name for name, values in found.items() if isinstance(values, str)] == []
    assert found["out_of_memory"]["errors"] == ["OutOfMemoryError: CUDA out of memory."] * 2
    assert found["training"]["ooms"] == 2
    assert [rank[2] for rank in found["distributed"]["ranks"]] == [2, 2]


@pytest.mark.parametrize("allocator", TRIED)
@of_each_version
def test_programs_get_the_same_results_as_with_pytorchs_own_allocator(
    version: str, allocator: str, tmp_path: Path
) -> None:
    rows = tmp_path / "rows.json"
    line = ("run", "--device", CARD, "--allocator", allocator, "--json", str(rows), "--")
    done = asked(*line, python(version), CHECKS)
    found, wanted = json.loads(done.stdout.splitlines()[-1]), native(version)
    assert {name: found[name] for name in wanted} == wanted
    frame = bundle.read(rows).rows
    assert set(frame["allocator"]) == {allocator}
    # Each process that used a GPU has a row for it; those of the errors have counted them.
    assert frame["failures"].sum() >= 10


NOT_KEPT = re.compile(
    r"(small_pool|large_pool|inactive_split|oversize)|segment\.all\.peak|num_sync_all_streams"
)


def documented() -> dict[str, str]:
    """The rows of the page, by function."""
    page = (ROOT / "docs" / "on-a-gpu.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (`.*`) \| (same|other|raises) \|", page, re.MULTILINE)
    return {name: verdict for names, verdict in rows for name in re.findall(r"`(.+?)`", names)}


def documented_for(version: str) -> dict[str, str]:
    """What the page says of each function that a version has."""
    page = (ROOT / "docs" / "on-a-gpu.md").read_text(encoding="utf-8")
    row = re.search(rf"^\| {re.escape(version)} \| (.*) \| (.*) \|$", page, re.MULTILINE)
    lacks, same = (re.findall(r"`(.+?)`", cell) for cell in row.groups()) if row else ([], [])
    found = documented()
    assert set(lacks) <= set(found)
    return {name: found[name] for name in found if name not in lacks} | dict.fromkeys(same, "same")


@of_each_version
def test_the_table_of_the_memory_api_is_right(version: str, tmp_path: Path) -> None:
    own = seen("memory_api", tmp_path, str(tmp_path / "own.pickle"), version=version)
    program = (python(version), str(PROGRAMS / "memory_api.py"), str(tmp_path / "ours.pickle"))
    done = asked("run", "--device", "null:h100", "--allocator", "caching", "--", *program)
    ours = json.loads(done.stdout.splitlines()[-1])
    verdicts = {}
    for name in own:
        refused = "raises" in ours[name] and "value" in own[name]
        verdicts[name] = "same" if ours[name] == own[name] else "raises" if refused else "other"
        assert not refused or "only with its own allocator" in ours[name]["raises"]
    assert verdicts == documented_for(version)
    stats = [found["torch.cuda.memory_stats"]["value"] for found in (own, ours)]
    assert set(stats[0]) == set(stats[1])
    assert {name for name in stats[0] if stats[0][name] != stats[1][name]} <= {
        name for name in stats[0] if NOT_KEPT.search(name)
    }
