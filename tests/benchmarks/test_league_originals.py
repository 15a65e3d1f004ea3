# SPDX-License-Identifier: Apache-2.0
"""The league's originals: how they are asked, and what their committed results say."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from allocbench.questions.league import OFFLINE, frozen
from allocbench.workloads import Trace, catalog, lifetimes
from benchmarks.workshop import hidden_set, instances
from benchmarks.workshop.originals import planners
from benchmarks.workshop.originals.__main__ import RESULTS
from benchmarks.workshop.originals.contestants import ALLOCATORS
from benchmarks.workshop.originals.environments import NotHereError
from benchmarks.workshop.originals.planners import PLANNERS
from benchmarks.workshop.originals.subjects import Here
from docs.generate.league import committed

MIB = 1 << 20
STACK = """
import csv, sys
top = 0
with open(sys.argv[1]) as file, open(sys.argv[2], "w") as out:
    print("id,offset", file=out)
    for row in csv.DictReader(file):
        print(row["id"], top, sep=",", file=out)
        top += int(row["size"])
"""


@pytest.fixture(scope="module")
def ramp() -> Trace:
    return catalog.load("ramp:blocks=64,size=1MiB")


@pytest.mark.parametrize("expected", [None, 62 * MIB, 64 * MIB, 66 * MIB])
def test_the_smallest_device_does_not_depend_on_what_is_expected(
    ramp: Trace, expected: int | None
) -> None:
    assert Here("naive").least(ramp, expected) == Here("naive").least(ramp)


def test_a_replay_has_an_address_for_each_alloc(ramp: Trace) -> None:
    seen = Here("naive").replay(ramp)
    assert len(seen.addresses) == len(lifetimes(ramp))
    assert seen.reserved == ramp.max_load


def test_a_planner_is_a_command_that_reads_lifetimes_and_writes_offsets(ramp: Trace) -> None:
    blocks = lifetimes(ramp)
    found = planners.offsets([sys.executable, "-c", STACK, "{in}", "{out}"], blocks)
    assert found.tolist() == np.concatenate([[0], np.cumsum(blocks.size)[:-1]]).tolist()
    assert planners.height("stack", blocks, found) == int(blocks.size.sum())


def test_why_a_planner_failed_is_its_last_line(ramp: Trace) -> None:
    failing = "import sys; sys.exit('first\\nno room for {load} bytes')"
    with pytest.raises(NotHereError, match=f"no room for {ramp.max_load} bytes"):
        planners.offsets([sys.executable, "-c", failing], lifetimes(ramp))


def test_every_original_has_a_row_or_a_reason() -> None:
    rows = json.loads(RESULTS.read_text())["originals"]
    names = [*(one.name for one in ALLOCATORS), *(one.name for one in PLANNERS)]
    assert [row["name"] for row in rows] == names
    assert all((row["score"] is None) == (row["reason"] is not None) for row in rows)
    assert sum(row["score"] is not None for row in rows) >= 8


def test_originals_that_equal_their_replica_have_its_ratios() -> None:
    workloads = {name for names in frozen().values() for name in names}
    ours = {score.name: score.ratios for score in committed() if score.division != OFFLINE}
    compared = 0
    for row in json.loads(RESULTS.read_text())["originals"]:
        if row["score"] is None:
            continue
        ratios = row["score"]["ratios"]
        assert {*ratios} | {*row["without"]} == workloads
        if row["replica"] in ours and row["capacity"] == row["compared"]:
            compared += 1
            assert ratios == {name: ours[row["replica"]][name] for name in ratios}
    assert compared >= 3


def test_every_planner_has_a_ratio_or_none_for_every_instance() -> None:
    rows = json.loads(instances.RESULTS.read_text())["planners"]
    for row in rows:
        assert {*row["ratios"]} == {*instances.INSTANCES}
        assert all(ratio is None or ratio >= 1 for ratio in row["ratios"].values())


def test_an_instance_is_known_by_its_bytes(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / next(iter(instances.INSTANCES))).write_text("id,lower,upper,size\n")
    with pytest.raises(SystemExit, match="its SHA-256 differs"):
        list(instances._found(tmp_path))


def test_a_seed_makes_one_hidden_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hidden_set, "SERVERS", 1)
    monkeypatch.setattr(hidden_set, "SEQUENCES", 2)
    first, again, other = (hidden_set.workloads(seed) for seed in ("one", "one", "two"))
    assert [len(names) for names in first.values()] == [1, 2]
    assert hidden_set.commitment(first) == hidden_set.commitment(again)
    assert hidden_set.commitment(first) != hidden_set.commitment(other)
