# SPDX-License-Identifier: Apache-2.0
"""Programs with captured graphs and memory pools: what is recorded, and what `caching` does."""

from collections import Counter
from pathlib import Path

import pytest

from allocbench import allocators
from allocbench.null_gpu import device, launch
from allocbench.verification.verify import verify
from allocbench.workloads import ALLOC, PrivatePool, Trace, recording
from tests.null_gpu import NEWEST, PROGRAMS, VERSIONS, needs, python

GPU = "null:h100"


def recorded(kind: str, folder: Path, version: str) -> tuple[Trace, Path]:
    """The trace of a program, and the snapshot that it was read from."""
    machine = recording.Machine(GPU, launch.environment(device.read(GPU), folder))
    kept = folder / kind
    kept.mkdir()
    command = [python(version), str(PROGRAMS / "private_pools.py"), kind]
    found = recording.record(command, machine=machine, keep=kept)
    assert (found.code, list(found.complaints)) == (0, [])
    (trace,) = found.traces.values()
    trace.validate()
    (snapshot,) = kept.glob("*.pickle")
    return trace, snapshot


def told(trace: Trace) -> Counter[tuple[str, int]]:
    return Counter((name, pool) for _, name, pool in trace.pool_events())


def agrees(snapshot: Path, version: str) -> None:
    verdict = verify(snapshot, f"caching:version={version.rpartition('.')[0]}")
    assert verdict.exit_code == 0, str(verdict.difference or verdict.unknown)
    assert verdict.agreement is not None
    assert verdict.agreement.placed_equal == verdict.agreement.allocs > 0


def outside_of_pools(trace: Trace) -> set[str]:
    """Events of captures between which an alloc of another stream lies outside of the pool."""
    assert trace.pool is not None
    open_, wrong = set[int](), set[str]()
    for event in range(len(trace)):
        op = int(trace.op[event])
        if op in (5, 7):
            open_.add(int(trace.pool[event]))
        elif op in (6, 8):
            open_.discard(int(trace.pool[event]))
        elif op == ALLOC and trace.pool[event] and int(trace.pool[event]) not in open_:
            wrong.add(f"alloc at event {event}")
    return wrong


@pytest.mark.parametrize("version", VERSIONS)
def test_graphs_are_recorded_with_their_pools(version: str, tmp_path: Path) -> None:
    trace, snapshot = recorded("graphs", tmp_path, version)
    assert told(trace) == {
        ("capture_begin", 1): 2,
        ("capture_end", 1): 2,
        ("pool_release", 1): 2,
        ("capture_begin", 2): 1,
        ("capture_end", 2): 1,
    }
    assert not outside_of_pools(trace)
    agrees(snapshot, version)


def test_a_memory_pool_is_recorded_with_its_choices(tmp_path: Path) -> None:
    trace, snapshot = recorded("memory_pool", tmp_path, NEWEST)
    assert [(pool.use_on_oom, pool.no_split) for pool in trace.pools] == [(True, False)]
    assert told(trace) == {
        ("pool_create", 1): 1,
        ("pool_enter", 1): 2,
        ("pool_leave", 1): 2,
        ("pool_release", 1): 3,
    }
    assert not outside_of_pools(trace)
    agrees(snapshot, NEWEST)


@pytest.mark.parametrize("version", VERSIONS[:4])
def test_graphed_callables_are_placed_alike(version: str, tmp_path: Path) -> None:
    trace, snapshot = recorded("graphed_callables", tmp_path, version)
    assert told(trace)["capture_begin", 1] == 2
    agrees(snapshot, version)


@pytest.mark.parametrize("version", VERSIONS[:4])
def test_reduce_overhead_is_placed_alike(version: str, tmp_path: Path) -> None:
    needs("triton", version)
    trace, snapshot = recorded("reduce_overhead", tmp_path, version)
    counts = Counter(name for _, name, _ in trace.pool_events())
    assert counts["capture_begin"] == counts["capture_end"] > 0
    assert counts["pool_enter"] == counts["pool_leave"] > 0
    agrees(snapshot, version)


def test_a_recording_with_pools_can_be_replayed_through_every_strategy(tmp_path: Path) -> None:
    trace, _ = recorded("graphs", tmp_path, NEWEST)
    for name in allocators.names():
        made = allocators.make(name, allocators.SimulatedDevice("80GiB"))
        allocators.replay(trace, made, keep=True)
        made.check()
        assert (name, made.stats().failures) == (name, 0)


def test_pools_of_a_recording_are_those_of_pytorch(tmp_path: Path) -> None:
    trace, _ = recorded("graphs", tmp_path, NEWEST)
    assert trace.pools == (PrivatePool("1.0"), PrivatePool("2.0"))
