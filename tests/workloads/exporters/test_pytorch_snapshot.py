# SPDX-License-Identifier: Apache-2.0
"""Simulated snapshots open in PyTorch's viewer, are consistent, and are read back unchanged."""

# mypy: allow-untyped-calls

import io
import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.cuda import _memory_viz

from allocbench.replays.replayed import replayed
from allocbench.verification.verify import verify
from allocbench.workloads import ALLOC, FREE, TRIM, Trace, catalog, read
from allocbench.workloads.exporters.perfetto import write_perfetto
from allocbench.workloads.exporters.pytorch_snapshot import write_snapshot
from allocbench.workloads.parquet import layout_to_json
from tests.commands import EVENTS, QUICK, folder, output, run
from tests.synthetic_recordings import SYNTHETIC
from tests.traces import make
from tests.workloads.exporters.replayable import SPECS, replayable, rows

__all__ = ["folder"]  # the fixture, by its import


def exported(trace: Trace, spec: str, device: str = "sim:80GiB") -> tuple[bytes, dict[str, Any]]:
    sink = io.BytesIO()
    write_snapshot(replayed(trace, spec, device), sink)
    return sink.getvalue(), pickle.loads(sink.getvalue())


def random_trace(events: int = 600) -> Trace:
    """Allocs and frees with streams, some blocks alive at the end."""
    rng = np.random.default_rng(0)
    live: list[int] = []
    made: list[tuple[int, int, int]] = []
    for block in range(events):
        made.append((ALLOC, block, int(2 ** rng.uniform(0, 23))))
        live.append(block)
        while live and (len(live) > 40 or rng.random() < 0.4):
            made.append((FREE, live.pop(rng.integers(len(live))), 0))
    stream = rng.integers(0, 3, len(made)).astype(np.uint16)
    return make(made, stream=stream)


@pytest.mark.parametrize("spec", SPECS)
def test_the_viewer_of_pytorch_opens_it(spec: str) -> None:
    trace = random_trace()
    _, data = exported(trace, spec)
    for plot in (_memory_viz.trace_plot, _memory_viz.segment_plot):
        assert "MemoryViz.js" in plot(data)
    assert "MemoryViz.js" in _memory_viz.trace_plot(data, plot_segments=True)
    shown = _memory_viz.segsum(data)  # it checks that blocks tile their segments
    assert f"segments: {len(data['segments'])}\n" in shown
    assert f"{len(data['device_traces'][0])} entries" in _memory_viz.trace(data)
    flames = _memory_viz.memory(data, format_flamegraph=lambda lines: lines)
    held = sum(int(line.rpartition(" ")[2]) for line in flames.splitlines())
    assert held == sum(segment["total_size"] for segment in data["segments"])


@pytest.mark.parametrize("spec", SPECS)
def test_the_history_leads_from_an_empty_device_to_the_final_state(spec: str) -> None:
    """Memory is mapped before it is used, and unmapped only when it is free."""
    _, data = exported(random_trace(), spec)
    mapped: list[tuple[int, int]] = []  # begin and end, none touching another
    live: dict[int, int] = {}
    for event in data["device_traces"][0]:
        action = event["action"]
        begin, end = event.get("addr", 0), event.get("addr", 0) + event["size"]
        if action in ("segment_alloc", "segment_map"):
            assert not [one for one in mapped if one[0] < end and begin < one[1]]
            mapped = joined([*mapped, (begin, end)])
        elif action in ("segment_free", "segment_unmap"):
            (around,) = [one for one in mapped if one[0] <= begin and end <= one[1]]
            mapped.remove(around)
            rest = [(around[0], begin), (end, around[1])]
            mapped = joined([*mapped, *(one for one in rest if one[0] < one[1])])
            assert not [a for a, size in live.items() if a < end and a + size > begin]
        elif action == "alloc":
            assert [one for one in mapped if one[0] <= begin and end <= one[1]]
            assert begin not in live
            live[begin] = event["size"]
        elif action == "free_completed":
            assert live.pop(begin) == event["size"]
    blocks = {
        block["address"]: block["requested_size"]
        for segment in data["segments"]
        for block in segment["blocks"]
        if block["state"] == "active_allocated"
    }
    assert blocks == live
    ends = [(one["address"], one["address"] + one["total_size"]) for one in data["segments"]]
    assert joined(ends) == mapped


def joined(ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The same ranges in order, those that touch as one."""
    found: list[tuple[int, int]] = []
    for begin, end in sorted(ranges):
        if found and found[-1][1] == begin:
            found[-1] = found[-1][0], end
        else:
            found.append((begin, end))
    return found


@given(trace=replayable(trims=False), spec=st.sampled_from(SPECS))
@settings(max_examples=60)
def test_an_export_can_be_imported(
    trace: Trace, spec: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    content, _ = exported(trace, spec.replace("6MiB", "60GiB"))
    path = tmp_path_factory.mktemp("round") / "trip"
    path.write_bytes(content)
    # An allocator that releases segments on its own looks like a program that trims.
    untrimmed = [row for row in rows(read(path)) if row[0] != TRIM]
    assert untrimmed == rows(trace)


def test_the_command_writes_it_and_others_read_it() -> None:
    line = f"replay good.csv --allocator caching {QUICK}"
    assert "peak reserved" in output(f"{line} --snapshot state.pickle")
    assert rows(read("state.pickle")) == rows(make(EVENTS))
    compared = run(f"compare state.pickle {QUICK}")
    assert compared.exit_code == 0
    assert "state" in compared.stdout
    assert Path("state.pickle").read_bytes() == exported(read("good.csv"), "caching")[0]


@pytest.mark.parametrize("name", ["warm", "expandable_warm", "retry_2.13", "overflow"])
def test_an_export_begins_with_the_recorded_segments(name: str, tmp_path: Path) -> None:
    trace = read(SYNTHETIC / f"{name}.pickle.gz")
    assert trace.layout is not None
    after = replayed(trace, "caching", "sim:80GiB")
    assert after.taken_over == len(trace.layout.block_address)
    path = tmp_path / "exported.pickle"
    path.write_bytes(exported(trace, "caching")[0])
    again = read(path)
    assert again.layout is not None
    begun, recorded = layout_to_json(again.layout), layout_to_json(trace.layout)
    for column in ("address", "size", "stream", "small", "block_address"):
        assert begun[column] == recorded[column]
    assert verify(path).exit_code == 0
    counters = io.BytesIO()
    write_perfetto(after, counters)
    shown = json.loads(counters.getvalue())["traceEvents"]
    reserved = [event["args"]["bytes"] for event in shown if event["name"] == "reserved bytes"]
    assert reserved[0] == trace.layout.reserved


def test_an_allocator_without_first_segments_is_exported_from_an_empty_device(
    tmp_path: Path,
) -> None:
    trace = read(SYNTHETIC / "warm.pickle.gz")
    assert replayed(trace, "bfc", "sim:80GiB").taken_over == 0
    path = tmp_path / "exported.pickle"
    path.write_bytes(exported(trace, "bfc")[0])
    assert read(path).layout is None


@pytest.mark.parametrize(
    "options",
    [
        "",
        "max_split_size_mb=64",
        "expandable_segments=true",
        "garbage_collection_threshold=0.5,large_segment_size_mb=40",
        "conf=roundup_power2_divisions:[256:1,512:2,>:4],max_split_size_mb=200",
        "roundup_power2_divisions=[1:8,256:1,>:4],version=2.9",
    ],
)
@pytest.mark.parametrize("wrapper", ["", "limit:bytes=60GiB,of="])
def test_settings_of_pytorch_are_kept(tmp_path: Path, options: str, wrapper: str) -> None:
    data, _ = exported(catalog.load("gpt2-train"), f"{wrapper}caching:{options}".rstrip(":"))
    path = tmp_path / "snapshot.pickle"
    path.write_bytes(data)
    verdict = verify(path)
    assert verdict.exit_code == 0, verdict
    assert bool(verdict.settings) == bool(options)
