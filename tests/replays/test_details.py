# SPDX-License-Identifier: Apache-2.0
"""The details of a run: maps agree with the allocator, peaks stay, intervals cover, pins pin."""

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from allocbench.replays import experiment, trace_blocks
from allocbench.replays.details import of_latency
from allocbench.replays.experiment import Effort
from allocbench.replays.trace_blocks import TraceBlocks
from allocbench.reports.rows.details import of_run
from allocbench.workloads import ALLOC, FREE, MARK, Trace
from allocbench.workloads.vocabulary import Provenance
from tests.allocators.test_replay import program
from tests.traces import Event, make

MIB = 1 << 20
SPECS = ("naive", "bfc", "buddy", "caching:expandable_segments=true", "expandable", "slab")


def details(trace: Trace, spec: str, device: str = "sim:1GiB") -> Any:
    prepared = TraceBlocks.of("made", trace)
    effort = Effort(0, capacity=False)
    row, found = experiment.run(trace, spec, device, effort, workload="made", trace_blocks=prepared)
    return row, found


def at(table: pd.DataFrame, event: int) -> pd.DataFrame:
    return table[(table["first"] <= event) & (table["last"] > event)]


@pytest.mark.parametrize("spec", SPECS)
def test_no_peak_is_lost_and_the_map_shows_the_moment_of_the_peak(spec: str) -> None:
    row, found = details(program(), spec)
    for name in ("requested", "allocated", "reserved"):
        assert found["memory"][name].max() == row[f"peak_{name}"]
    held = [at(found["ranges"], event)["size"].sum() for event in found["instants"]["event"]]
    assert max(held) == row["peak_reserved"]
    assert found["moments"]["device_calls"].iloc[-1] == row["device_calls"]
    assert found["moments"]["device_seconds"].iloc[-1] == pytest.approx(row["device_seconds"])


def test_many_blocks_mean_fewer_instants_and_no_block_is_lost_unsaid() -> None:
    count = 9000
    events: list[Event] = [(ALLOC, n, 600 + n) for n in range(count)]
    _, found = details(make([*events, *((FREE, n, 0) for n in range(count))]), "bfc")
    assert len(found["blocks"]) + found["omitted"]["blocks"].sum() == count
    assert len(found["blocks"]) == 8000
    assert found["omitted"]["largest"].max() <= found["blocks"]["size"].min()
    churn: list[Event] = [e for n in range(20_000) for e in ((ALLOC, n, 64), (FREE, n, 0))]
    _, found = details(make(churn), "bfc")
    assert found["instants"]["event"].is_monotonic_increasing
    assert "omitted" not in found


def test_the_blocks_in_the_way_of_a_failed_request_are_found() -> None:
    # 8 MiB in eighths; every second is freed; 2 MiB need one block to go: the smallest will do.
    events: list[Event] = [(ALLOC, n, MIB) for n in range(8)]
    events += [(FREE, n, 0) for n in (1, 3, 4, 6)]
    events += [(ALLOC, 8, 4 * MIB)]
    trace = make(events)
    row, found = details(trace, "bfc:allow_growth=false,memory_limit=8MiB", "sim:8MiB")
    assert row["failures"] == 1
    (failure,) = found["failures"].to_dict("records")
    assert failure["event"] == len(events) - 1
    assert failure["requested"] == 4 * MIB
    assert failure["capacity"] == failure["reserved"] == 8 * MIB
    assert failure["allocated"] == 4 * MIB
    assert failure["largest_gap"] == 2 * MIB
    assert (failure["pins"], failure["pinned_bytes"], failure["place"]) == (1, MIB, "stretch")
    pinned = found["blocks"][found["blocks"]["pins"]]
    assert pinned["block"].isin([2, 5]).all()
    assert len(pinned) == 1
    assert failure["event"] in found["instants"]["event"].tolist()


@pytest.mark.parametrize("calls", [0, 1, 2, 150, 5000])
def test_the_sketch_of_latencies_keeps_the_ends_and_the_order(calls: int) -> None:
    """A quantile is kept if at least one call lies beyond it."""
    seconds = np.geomspace(1e-9, 1e-3, calls).astype(np.float32)
    trace = make([e for n in range(calls) for e in ((ALLOC, n, 64), (FREE, n, 0))])
    found = of_latency(TraceBlocks.of("made", trace), seconds, seconds)
    for call in ("alloc", "free"):
        latency = pd.DataFrame(found["latency"])
        mine = latency[latency["call"] == call]
        assert mine["seconds"].is_monotonic_increasing
        assert mine["quantile"].is_monotonic_increasing
        quantiles = mine["quantile"].tolist()
        wanted = [float(np.quantile(seconds, one)) for one in quantiles]
        assert mine["seconds"].tolist() == pytest.approx(wanted)
        assert [*quantiles[:1], *quantiles[-1:]] == [0, 1] * (calls > 0)
        assert all(min(one, 1 - one) >= 1 / calls for one in quantiles[1:-1])
        percents = [n / 100 for n in range(1, 100) if min(n, 100 - n) * calls >= 100.001]
        assert {round(one, 6) for one in percents} <= {round(one, 6) for one in quantiles}
        assert len(mine) < 200


def test_calls_are_grouped_by_the_blocks_alive_before_them() -> None:
    events: list[Event] = [(ALLOC, n, 64) for n in range(1000)]
    events += [(FREE, n, 0) for n in range(1000)]
    prepared = TraceBlocks.of("made", make(events))
    assert prepared.live.tolist() == list(range(1000))
    assert prepared.live_at_free.tolist() == list(range(1000, 0, -1))
    seconds = np.arange(1000).astype(np.float32)
    table = pd.DataFrame(of_latency(prepared, seconds, seconds)["scaling"])
    mine = table[table["call"] == "alloc"].to_dict("records")
    # Two groups for each power of two; those of less than 25 calls are left out.
    assert [one["live_from"] for one in mine] == [64, 91, 128, 181, 256, 362, 512, 724]
    for one in mine:
        group = seconds[one["live_from"] : min(1000, one["live_to"])]
        assert one["count"] == len(group)
        assert one["median"] == np.median(group)
        most = np.quantile(group, 0.99) if len(group) >= 100 else np.nan
        assert one["p99"] == pytest.approx(most, nan_ok=True)


def test_the_program_has_every_block_and_where_it_comes_from() -> None:
    labels = ("step", "a\nb", "train.py:7 f", "main.py:1 <module>;train.py:7 f", "h.0.mlp")
    events: list[Event] = [(ALLOC, 0, 100), (MARK, 0, 0), (ALLOC, 1, 4096), (FREE, 0, 0)]
    trace = make([*events, (ALLOC, 2, 8)], labels=labels)
    named = {"label": 1, "line": 2, "stack": 3, "module": 4}
    columns: dict[str, Any] = {
        name: np.full(len(trace), place, np.uint32) for name, place in named.items()
    }
    found = TraceBlocks.of("made", replace(trace, **columns)).details()
    assert found["marks"].to_dict("records") == [{"workload": "made", "event": 1, "label": "step"}]
    program = found["program"].drop(columns="workload")
    assert program.to_dict("list") == {
        "first": [0, 2, 4],
        "last": [3, 5, 5],
        "size": [100, 4096, 8],
        "step": [0, 1, 1],
        "site": [0, 0, 0],
    }
    assert found["sites"].to_dict("records") == [
        {
            "workload": "made",
            "kind": "",
            "line": "train.py:7 f",
            "operator": "a b",
            "module": "h.0.mlp",
            "stack": "main.py:1 <module>;train.py:7 f",
            "stream": 0,
            "derived": False,
        }
    ]


@pytest.mark.parametrize(
    ("stored", "told"),
    [
        ({"h.0.mlp": "[8, 128], [8, 4]", "h\n1": 7}, {"h.0.mlp": "[8, 128], [8, 4]", "h 1": "7"}),
        ({f"h.{n}": "[1]" for n in range(100_000)}, {f"h.{n}": "[1]" for n in range(10_000)}),
        ({"a" * 1000: "b " * 1000}, {f"{'a' * 100}…{'a' * 99}": "b " * 100}),
        (["h.0.mlp"], {}),
        (None, {}),
    ],
)
def test_the_shapes_of_modules_are_those_of_the_provenance(
    stored: object, told: dict[str, str]
) -> None:
    trace = make([(ALLOC, 0, 100)])
    found = replace(trace, provenance=Provenance(extra={"output_shapes": stored}))
    shapes = TraceBlocks.of("made", found).details()["shapes"]
    assert dict(zip(shapes["module"], shapes["shape"], strict=True)) == told


def test_of_too_many_blocks_those_at_the_peak_and_the_largest_are_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(trace_blocks, "_MOST_OF_PROGRAM", 3)
    events: list[Event] = [(ALLOC, 0, 1), (ALLOC, 1, 9), (FREE, 1, 0)]
    events += [(ALLOC, 2, 8), (ALLOC, 3, 8), (FREE, 2, 0), (ALLOC, 4, 2)]
    program = TraceBlocks.of("made", make(events)).details()["program"]
    assert program["size"].tolist() == [1, 8, 8]  # what is alive at the peak of 17 bytes


def test_marks_beyond_number_are_thinned_to_steps() -> None:
    events: list[Event] = [(MARK, n % 2, 0) for n in range(5000)]
    found = TraceBlocks.of(
        "made", make([*events, (ALLOC, 0, 1)], labels=("step", "phase"))
    ).details()
    assert 100 <= len(found["marks"]) <= 300
    assert set(found["marks"]["label"]) == {"step"}


def test_a_run_is_found_by_its_key() -> None:
    _, found = details(program(), "bfc")
    assert len(of_run(found, "memory", workload="made", allocator="bfc")) == len(found["memory"])
    assert of_run(found, "memory", workload="made", allocator="other").empty
