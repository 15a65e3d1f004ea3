# SPDX-License-Identifier: Apache-2.0
"""Parts of programs: no answer says less than the truth without saying that it is a bound."""

import gzip
import json
import pickle
from collections.abc import Callable
from dataclasses import replace
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest

from allocbench.base.cards import find
from allocbench.questions import check as checking
from allocbench.questions.explain import explain, served, verdict
from allocbench.questions.failure import before
from allocbench.questions.fit import bounds, fit
from allocbench.questions.occupancy import Outside, occupancy
from allocbench.replays.replayed import replayed
from allocbench.replays.runner import Runner
from allocbench.workloads import FREE, Trace, catalog, read, write
from allocbench.workloads.exporters.pytorch_snapshot import write_snapshot
from allocbench.workloads.exporters.replayed_trace import ReplayedTrace
from tests.commands import folder, run
from tests.questions import studied
from tests.workloads.importers.snapshots import MIB, Recorder, snapshot

__all__ = ["folder"]  # the fixture, by its import
REAL = Path(__file__).parents[3] / "shared/data/recordings"
DEVICE = "sim:80GiB"
EVENTS = 5000  # of each program
PYTORCH = "caching"
(CARD,) = find("H200 141GB")

Snapshot = dict[str, Any]
Cut = Callable[[Snapshot], Snapshot]


def of_events(keep: Callable[[list[Any]], list[Any]]) -> Cut:
    def cut(data: Snapshot) -> Snapshot:
        return data | {"device_traces": [keep(events) for events in data["device_traces"]]}

    return cut


CUTS: dict[str, Cut] = {
    "beginning": of_events(lambda events: events[len(events) // 3 :]),
    "last events": of_events(lambda events: events[-20:]),
    "middle": of_events(lambda events: events[: len(events) // 3] + events[len(events) // 2 :]),
    "frees": of_events(
        lambda events: [event for event in events if event["action"] != "free_completed"]
    ),
    "some frees": of_events(
        lambda events: [
            event
            for n, event in enumerate(events)
            if not event["action"].startswith("free") or n % 7
        ]
    ),
    "segments": of_events(
        lambda events: [event for event in events if event["action"] in ("alloc", "free_completed")]
    ),
    "marks": lambda data: data | {"external_annotations": []},
    "events": of_events(lambda events: []),
}


def program(name: str) -> Trace:
    return before(catalog.load(name), EVENTS)


def exported(trace: Trace) -> Snapshot:
    with Path("exported.pickle").open("wb") as sink:
        write_snapshot(replayed(trace, PYTORCH, DEVICE), sink)
    data: Snapshot = pickle.loads(Path("exported.pickle").read_bytes())
    return data


PROGRAMS = catalog.captured()[::2]


def recordings() -> list[Path]:
    return sorted(REAL.glob("*.pickle")) if REAL.is_dir() else []


def check(part: Trace, truth: int) -> int | None:
    """What the commands say about a part of a program that needs `truth` bytes; its own need."""
    coverage = part.coverage
    assert not coverage.whole
    assert coverage.sentence
    for device in (DEVICE, None):
        answer = checking.check(part, device)
        assert answer.bound
        assert answer.unknown, "what the part lacks is said"
        assert answer.need is None or answer.need >= min(truth, coverage.held)
        assert answer.verdict == "unknown" or coverage.begins == "start", answer.sentence
    if not coverage.events:
        assert "the need is unknown" in served(Runner(part, DEVICE), PYTORCH, DEVICE)
        return None
    runner = Runner(part, DEVICE)
    need = runner.min_capacity(PYTORCH)
    assert need is not None
    assert need >= min(truth, coverage.held)
    assert occupancy(runner, PYTORCH, CARD, Outside()).reserved >= min(truth, coverage.held)
    says = served(runner, PYTORCH, DEVICE)
    assert "at least" in says or need >= truth, says
    assert "no request fails" not in says
    made = studied(runner, orders=0, budget=0)
    assert made.confidence.level != "high"
    assert "at least" in made.advice.lines[0] or need >= truth
    assert made.rows["coverage"].notna().all()
    assert fit(runner, [PYTORCH], bounds(part, 0))["coverage"].notna().all()
    return need


def check_cuts(data: Snapshot, truth: int) -> None:
    """Check each cut of a program; only the one without events has no need of its own."""
    needs = {}
    for name, cut in CUTS.items():
        Path("part.pickle").write_bytes(pickle.dumps(cut(data)))
        needs[name] = check(read("part.pickle"), truth)
    assert [name for name, need in needs.items() if need is None] == ["events"]


def need_of(trace: Trace) -> int:
    need = Runner(trace, DEVICE).min_capacity(PYTORCH)
    assert need is not None
    return need


@pytest.mark.parametrize("name", PROGRAMS)
def test_parts_of_bundled_programs_in_snapshots(name: str) -> None:
    trace = program(name)
    truth, data = need_of(trace), exported(trace)
    check_cuts(data, truth)
    Path("part.pickle").write_bytes(pickle.dumps(exported(before(trace, EVENTS // 2))))
    check(read("part.pickle"), truth)


STORED = ("pickle", "parquet", "csv")


def parts() -> list[tuple[str, str, str]]:
    """Each cut of one program, a cut of each other program, and three of each recording, each
    stored in one format.
    """
    first, *others = sorted(catalog.captured(), key="gpt2-train".__ne__)
    drawn = [*others, *3 * [path.name for path in recordings()]]
    cuts = [*((first, cut) for cut in CUTS), *zip(drawn, cycle(CUTS), strict=False)]
    return [(*part, kind) for part, kind in zip(cuts, cycle(STORED), strict=False)]


@pytest.mark.parametrize(("name", "cut", "kind"), parts())
def test_every_command_says_what_a_part_lacks(name: str, cut: str, kind: str) -> None:
    if name in catalog.captured():
        trace = program(name)
        data = exported(trace)
    else:
        trace, data = read(REAL / name), pickle.loads((REAL / name).read_bytes())
    truth = need_of(trace)
    Path("part.pickle").write_bytes(pickle.dumps(CUTS[cut](data)))
    part = read("part.pickle")
    if kind == "csv" and len({*part.stream.tolist()}) > 1 and part.pool is None:
        kind = "parquet"  # CSV has no place for streams
    file = f"part.{kind}"
    if kind != "pickle":
        write(part, file)
    coverage = read(file).coverage
    assert coverage == part.coverage
    assert not coverage.whole
    lacks = "".join(coverage.sentence.split())

    def said(line: str) -> str:
        """What a command prints, without the spaces and breaks of lines."""
        done = run(line)
        return "".join((done.stdout + done.stderr).split())

    def rows(line: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(run(f"{line} --json -").stdout)
        return found

    assert lacks in said(f"inspect {file}")
    planned = json.loads(run(f"plan {file} --planner best_fit --json -").stdout)
    assert planned["coverage"] == coverage.sentence
    (checked,) = rows(f"check {file} --device {DEVICE}")
    assert checked["bound"]
    assert lacks[1:] in "".join([checked["sentence"], *checked["unknown"]]).replace(" ", "")
    if not coverage.events:
        return
    least = min(truth, coverage.held)
    of_one = f"{file} --allocators caching"
    quick = f"{of_one} --time 0 --device {DEVICE}"
    asked = {
        "compare": rows(f"compare {quick}"),
        "sweep": rows(f"sweep {quick} -o swept.jsonl"),
        "replay": rows(f"replay {file} --time 0 --device {DEVICE}"),
        "fit": rows(f"fit {of_one} --time-limit 0"),
        "tune": rows(f"tune {file} --budget 1 --device {DEVICE}"),
    }
    for command, found in asked.items():
        assert found, command
        assert {row["coverage"] for row in found} == {coverage.sentence}, command
        assert all((row["min_capacity"] or least) >= least for row in found), command
    (explained, *_) = rows(f"explain {file} --device {DEVICE}")
    assert explained["coverage"] == coverage.sentence
    diffed = rows(f"diff {file} {file} --device {DEVICE}")
    assert {row["old_coverage"] for row in diffed} == {coverage.sentence}
    changed = run(f"whatif {file} --device {DEVICE} --json changed.json")
    if changed.exit_code == 0:
        edited = json.loads(Path("changed.json").read_text())
        assert {row["coverage"] for row in edited} <= {coverage.sentence}
    if kind == "pickle":
        assert "needs" not in said(f"verify {file}"), "it compares addresses"
    for line in (
        f"fit {of_one} --time-limit 0",
        f"explain {file} --device {DEVICE}",
        f"tune {file} --budget 1 --device {DEVICE}",
        f"compare {quick}",
        f"replay {quick.replace('--allocators', '--allocator')}",
        f"diff {file} {file} --device {DEVICE}",
    ):
        shown = said(line)
        assert lacks[1:] in shown, line
        assert "confidence:high" not in shown, line
        assert "needsatleast" in shown or "needs" not in shown or not coverage.bound, line


def profiled(whole: ReplayedTrace, first: int, last: int, *, totals: bool = True) -> Trace:
    """Some of the events of a trace as a profiler writes them, with their totals."""
    trace, sizes = whole.trace, whole.sizes().tolist()
    events = []
    for event in range(first, last):
        if trace.op[event] > FREE:
            continue
        args = {
            "Device Type": 1,
            "Device Id": 0,
            "Addr": int(whole.address[event]),
            "Bytes": sizes[event] * (-1 if trace.op[event] == FREE else 1),
        }
        if totals:
            args["Total Allocated"] = int(whole.requested[event])
            args["Total Reserved"] = int(whole.reserved[event])
        events.append(
            {"ph": "i", "name": "[memory]", "pid": 1, "tid": 1, "ts": event, "args": args}
        )
    Path("profile.json").write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))
    return read("profile.json")


@pytest.mark.parametrize("name", PROGRAMS)
def test_parts_of_bundled_programs_in_profiler_traces(name: str) -> None:
    trace = program(name)
    truth, whole = need_of(trace), replayed(trace, PYTORCH, DEVICE)
    third = EVENTS // 3
    for first, last in ((third, EVENTS), (0, third), (third, 2 * third), (EVENTS - 20, EVENTS)):
        part = profiled(whole, first, last)
        check(part, truth)
        # The load of the part is that of the program at the same time.
        assert part.max_load == int(whole.requested[max(0, first - 1) : last].max())
        assert part.coverage.held in (0, int(whole.reserved[first]))
    check(profiled(whole, third, EVENTS, totals=False), truth)


def test_recordings_of_real_gpus_are_there() -> None:
    if not recordings():
        pytest.skip(f"{REAL} is not there")


@pytest.mark.parametrize("path", recordings(), ids=lambda path: path.name)
def test_parts_of_recordings_of_real_gpus(path: Path) -> None:
    data, truth = pickle.loads(path.read_bytes()), need_of(read(path))
    check(read(path), truth)
    check_cuts(data, truth)


def test_parts_of_a_profiler_trace_of_a_real_gpu() -> None:
    path = REAL / "normalization.json.gz"
    if not path.is_file():
        pytest.skip(f"{path} is not there")
    data, truth = json.loads(gzip.decompress(path.read_bytes())), need_of(read(path))
    events = data["traceEvents"]
    memory = [n for n, event in enumerate(events) if event.get("name") == "[memory]"]
    middle = memory[len(memory) // 2]
    for kept in (events, events[middle:], events[:middle]):
        Path("part.json").write_text(json.dumps(data | {"traceEvents": kept}))
        check(read("part.json"), truth)


def test_a_failure_at_the_end_is_never_called_a_success() -> None:
    trace = program("gpt2-train")
    capacity = need_of(trace) - (64 << 20)
    failing = explain(Runner(trace, f"sim:{capacity}"), PYTORCH)
    assert failing is not None
    small = replayed(before(trace, failing.failure.event + 1), PYTORCH, f"sim:{capacity}")
    with Path("failed.pickle").open("wb") as sink:
        write_snapshot(small, sink)
    part = read("failed.pickle")
    assert part.coverage.ends == "failure"
    assert part.coverage.request == failing.failure.requested
    assert part.coverage.card == capacity
    check(part, need_of(trace))
    again = explain(Runner(part, f"sim:{part.coverage.card}"), PYTORCH)
    assert again is not None
    assert again.failure.requested == failing.failure.requested
    assert "at least" in verdict(again)
    quick = "failed.pickle --allocators caching,naive --no-min-capacity"
    for line in (f"compare {quick} --time 0", f"sweep {quick} -o swept.jsonl"):
        rows = json.loads(run(f"{line} --json -").stdout)
        assert {row["device"] for row in rows} == {f"sim:{capacity}"}
        failed = {row["allocator"]: bool(row["failures"]) for row in rows}
        assert failed == {"caching": True, "naive": False}  # naive has room


def test_a_request_larger_than_the_card_of_a_recording_is_compared() -> None:
    recorder = Recorder()
    recorder.alloc(20 * MIB)
    recorder.oom(64 * MIB)
    Path("oom.pickle").write_bytes(pickle.dumps(snapshot(recorder)))
    (row,) = json.loads(run("compare oom.pickle --allocators caching --time 0 --json -").stdout)
    assert row["failures"] == 1
    assert row["min_capacity"] == (20 + 64) * MIB


def test_recorded_settings_are_not_called_the_default() -> None:
    trace = program("gpt2-train")
    settings = {"settings": {"expandable_segments": "true"}}
    recorded = replace(trace, provenance=replace(trace.provenance, extra=settings))
    write(recorded, "recorded.parquet")
    write(trace, "plain.parquet")
    for line in ("recommend {} --budget 0 --orders 0", "tune {} --budget 2"):
        shown, plain = (
            run(line.format(f"{name}.parquet")).stdout for name in ("recorded", "plain")
        )
        assert "the default" not in shown
        assert "keep the recorded configuration" in shown
        assert "keep the default" in plain
