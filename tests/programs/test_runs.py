# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: E501  rows of tables
"""What is made of runs of a program that is not there: each run is what a table says."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from threading import Lock
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from allocbench.allocators import SpecError
from allocbench.allocators import torch as adapter
from allocbench.errors import UsageError
from allocbench.interrupts import Terminated
from allocbench.null_gpu import launch
from allocbench.null_gpu.launch import Limits
from allocbench.programs import execution, functions, program, server_start, with_allocator
from allocbench.programs import recording_cache as kept
from allocbench.programs.execution import AMPLE, AMPLE_EXPANDABLE, ComputedValueError, Execution
from allocbench.programs.hook.native_statistics import Statistics
from allocbench.programs.program import ProgramSettings, ProgramWorkload
from allocbench.programs.with_allocator import RunSettings, complaints, native_environment, reports
from allocbench.workloads import ALLOC, MARK, Provenance, Trace, recording, write
from allocbench.workloads.coverage import Coverage
from allocbench.workloads.importers.pytorch_snapshot import DEFERRED
from allocbench.workloads.recording import PEAK_RESERVED, Recorded, RecordError
from tests.traces import GIB, make

CARD = "null:h100"


def trace(
    size: int = 4096, steps: int = 0, ooms: int = 0, ends: Any = "exit", **extra: Any
) -> Trace:
    """One block, then steps. Requests that fail are counted."""
    events = [(ALLOC, 0, size)] + [(MARK, 0, 0)] * steps
    stored = {"other_events": {"oom": ooms}, **extra} if ooms else extra
    kept = Provenance(extra=stored, device="H100")
    return make(events, labels=("step",), provenance=kept, coverage=Coverage(ends=ends))


def ran(
    traces: Trace | Mapping[str, Trace], device: str | None = CARD, code: int = 0, **others: Any
) -> Execution:
    named = {"": traces} if isinstance(traces, Trace) else traces
    return Execution(Recorded(code, named, []), device, (), **others)


Runs = Callable[[str | None, Limits], Execution]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., Any]:
    """Ask about a program whose runs a function gives: its traces, notes and devices."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))

    def ask(runs: Runs, world: int | None = None, device: str | None = CARD, **others: Any) -> Any:
        told, devices = list[str](), list[str]()

        def one(_: Any, name: str, device: str | None, limits: Limits, *others: Any) -> Execution:
            assert name == "train"
            devices.append(f"{device} {limits.share:g} {limits.number:g}")
            return runs(device, limits)

        monkeypatch.setattr(program, "run", one)
        settings = ProgramSettings(device, again=True, world=world, tell=told.append, **others)
        asked = ProgramWorkload(("python3", "train.py"), settings)
        traces, out = program.load_all(asked)
        return SimpleNamespace(traces=traces, out=out, told=" ".join(told), devices=devices)

    return ask


FAILS, CATCHES = trace(steps=2, ooms=1, after_oom={"steps": 0, "allocs": 1}), {"steps": 1}
TRIES = ["tune.py", "--batch", "64"]


@pytest.mark.parametrize(
    ("first", "again", "ample", "out", "told", "sizes"),
    [
        (trace(1), None, True, False, ["ran to the end without an optimizer step"], [1]),
        # It catches the error, and goes on.
        (trace(2, 2, 1, after_oom=CATCHES), None, True, True, ["caught the error and went on"], [2]),
        (trace(2, 0, 3, after_oom={"steps": 0, "allocs": 1}), None, True, True, ["(3 requests failed)"], [2]),
        # It does not, and is run again with more memory; then it fails there, too.
        (FAILS, trace(9, 2), True, True, ["recorded again with as much memory"], [9]),
        (FAILS, trace(9, 2, 1, after_oom={"steps": 0}), True, True, ["1.00 PiB, too", "1 request failed; its"], [4096]),
        # It is not to be run again.
        (FAILS, None, False, True, ["it ran out of memory: 1 request failed; its later"], [4096]),
    ],
)  # fmt: skip
def test_a_program_that_runs_out_of_memory(
    asked: Any,
    first: Trace,
    again: Trace | None,
    ample: bool,
    out: bool,
    told: list[str],
    sizes: list[int],
) -> None:
    def runs(device: str | None, _: Limits) -> Execution:
        return ran(first) if device == CARD or again is None else ran(again, device)

    found = asked(runs, ample=ample)
    assert found.out is out
    assert all(words in found.told for words in told), found.told
    assert [one.size[0] for one in found.traces.values()] == sizes
    assert len(found.devices) == 1 + (again is not None)
    if again is not None:
        assert found.devices[1] == f"null:card=h100,memory={AMPLE} {Limits().share:g} 0"


def test_a_process_of_a_tuner_may_run_out_of_memory(asked: Any) -> None:
    extra: dict[str, Any] = {**FAILS.provenance.extra, "process": TRIES}
    tried = replace(FAILS, provenance=Provenance(extra=extra))
    found = asked(lambda *_: ran({"a": trace(1, 2), "b": tried, "c": trace(2)}))
    assert ([*found.traces], len(found.devices), found.out) == (["a", "c"], 1, True)
    assert "b (tune.py --batch 64) ran out of memory and ended; the program went on" in found.told
    # The other process only watches: what was asked about failed.
    found = asked(lambda *_: ran({"a": trace(2), "b": tried}))
    assert ([*found.traces], len(found.devices)) == (["a", "b"], 2)


def test_expandable_segments_leave_fewer_addresses() -> None:
    settings: list[dict[str, Any]] = [{}, {"settings": {"x": "true"}}]
    settings.insert(1, {"settings": {"expandable_segments": "true"}})
    assert [ran(trace(**one)).ample for one in settings] == [AMPLE, AMPLE_EXPANDABLE, AMPLE]


def test_a_program_that_was_ended_may_fail_later(asked: Any) -> None:
    stopped = trace(steps=2, ends="stopped")
    found = asked(lambda *_: ran({"a": stopped, "b": trace()}, code=3))
    assert "the command then ended with exit code 3" in found.told
    assert ran({"a": stopped, "b": trace(steps=1)}, code=3).complete is False
    assert ran(trace(), code=3).complete is False


@pytest.mark.parametrize(("code", "recovered"), [(0, True), (1, False)])
def test_only_a_program_that_ends_well_has_recovered(code: int, recovered: bool) -> None:
    assert ran(trace(2, 2, 1, after_oom=CATCHES), code=code).recovered is recovered


def fake_runs(
    monkeypatch: pytest.MonkeyPatch, recorded: Recorded, printed: bytes = b"", found: bool = True
) -> dict[str, Any]:
    """Let each run have these results; the limits that it gets come into the returned dictionary."""
    seen: dict[str, Any] = {}

    @contextmanager
    def session(device: str | None, limits: Limits) -> Any:
        seen["limits"] = limits
        blank = launch.Summary()
        yield SimpleNamespace(machine=None, notes=["n"], reads="", summary=blank, found=found)

    def record(command: Any, *, steps: int | None, stdout: int, **_: Any) -> Recorded:
        seen["steps"] = steps
        os.write(stdout, printed)
        return recorded

    monkeypatch.setattr(launch, "session", session)
    monkeypatch.setattr(recording, "record", record)
    return seen


@pytest.mark.parametrize("quiet", [False, True])
@pytest.mark.parametrize("device", [None, CARD])
def test_limits_of_a_run(monkeypatch: pytest.MonkeyPatch, device: str | None, quiet: bool) -> None:
    """The recording itself counts steps, one more than asked for; the rest is for null GPUs."""
    printed = b"  ValueError: no\n\n" if quiet else b""
    seen = fake_runs(monkeypatch, Recorded(int(quiet), {"": trace(9, 2)}, []), printed)
    limits = Limits(4, 60, {"a.py:1": 2.0})
    if quiet:
        with pytest.raises(RecordError, match=r"exit code 1; +ValueError: no. It had made 2"):
            execution.run(["python3"], "train", device, limits, quiet, {})
    else:
        found = execution.run(["python3"], "train", device, limits, quiet, {})
        assert (found.notes, found.device) == (("n",), device)
    assert seen["steps"] == 5
    assert seen["limits"] == (Limits() if device is None else replace(limits, steps=None))


@pytest.mark.parametrize("steps", [0, 1])
@pytest.mark.parametrize("printed", [b"", b"KeyError: 1\nValueError: no\nwent on\n"])
def test_an_exception_that_a_program_without_steps_prints_is_in_a_note(
    monkeypatch: pytest.MonkeyPatch, printed: bytes, steps: int
) -> None:
    fake_runs(monkeypatch, Recorded(0, {"": trace(9, steps)}, []), printed)
    notes = execution.run(["python3"], "train", CARD, Limits(), quiet=True).notes
    caught = "it made no optimizer step and did not fail, but printed ValueError: no"
    assert notes == ("n", *([caught] if printed and not steps else []))


@pytest.mark.parametrize("found", [False, True])
@pytest.mark.parametrize(
    ("line", "hidden", "seen"),
    [
        ("ImportError: libcudnn.so.9: cannot open", ". No process of it found the null GPU: ", ""),
        ("E: CUDA error: invalid device ordinal", ". No process", f". {CARD} has too few GPUs"),
        ("KeyError: 'size'", "", ""),
    ],
)
def test_why_a_program_finds_no_gpu(
    monkeypatch: pytest.MonkeyPatch, line: str, hidden: str, seen: str, found: bool
) -> None:
    fake_runs(monkeypatch, Recorded(1, {}, []), line.encode(), found)
    with pytest.raises(RecordError) as error:
        execution.run(["python3"], "train", CARD, Limits(), quiet=True)
    said = str(error.value).partition(line)[2]
    assert said.startswith(seen if found else hidden)
    assert bool(said) is bool(seen if found else hidden)


def test_other_marks_end_no_steps() -> None:
    events = [(MARK, 0, 0), (ALLOC, 0, 7), (MARK, 1, 0), (MARK, 2, 0), (ALLOC, 1, 2), (MARK, 1, 0)]
    found = program.steps(make([*events, (MARK, 2, 0)], labels=("a", "step", "z")))
    assert (found.peaks, found.ends, found.after) == ((7, 9), (7, 9), 9)


def test_a_cache_that_cannot_be_made_keeps_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept, "_folder", lambda: tmp_path / "missing" / "programs")
    kept.keep("name", kept.Entry({"": trace()}, [], "today", False), [])
    assert kept.load("name") is None
    monkeypatch.setattr(kept, "_folder", lambda: tmp_path)
    kept.keep("name", kept.Entry({"a": trace(9)}, ["n"], "today", True), [__file__])
    found = kept.load("name")
    assert found is not None
    assert (found.notes, found.date, found.out_of_memory) == (["n"], "today", True)
    assert found.traces["a"].size.tolist() == [9]
    (file,) = (tmp_path / "name").rglob("*.parquet")
    whole = file.read_bytes()
    for size in range(1, 9):  # whole traces, but others
        write(trace(size), file)
        assert kept.load("name") is None
    file.write_bytes(whole)
    assert kept.load("name") is not None


def test_a_function_is_a_program_with_a_copy_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("cloudpickle")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    written = tmp_path / "written"

    def work() -> None:
        written.write_text("done")

    with functions.program_of(work, ProgramSettings()) as made:
        assert made.name == "work"
        assert Path(made.command[-1]).parent.stat().st_mode & 0o077 == 0
        subprocess.run(made.command, check=True)
    assert written.read_text() == "done"
    assert not Path(made.command[-1]).exists()
    with functions.program_of(work, ProgramSettings()) as again:
        assert again.identity == made.identity
    with (
        pytest.raises(UsageError, match="cannot be run in a process of its own"),
        functions.program_of(partial(print, Lock()), ProgramSettings()),
    ):
        pass


def test_reports_of_a_process_with_an_allocator_of_allocbench(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def use(ordinal: int) -> Any:
        totals = SimpleNamespace(graphs=SimpleNamespace(peak=7))
        counted = SimpleNamespace(deferred=5, totals=totals)
        stats = SimpleNamespace(allocations=3, frees=2)
        return SimpleNamespace(
            ordinal=ordinal, gpu=f"GPU {ordinal}", row=lambda: {"peak": ordinal},
            stats=stats, program=counted, gpu_peak_used=9,
        )  # fmt: skip

    columns = {name: np.arange(2) for name in ("op", "block", "size", "stream")}
    used = SimpleNamespace(
        uses=lambda: [use(0), use(1)], recording=lambda _: SimpleNamespace(**columns)
    )
    monkeypatch.setattr(adapter, "met", ["graphs", "sharing"])
    chosen = RunSettings("bfc", str(tmp_path), record=True)
    with_allocator._leave(used, chosen, os.getpid() + 1)
    assert list(tmp_path.iterdir()) == []
    with_allocator._leave(used, chosen, os.getpid(), [0])
    (report,) = reports(tmp_path)
    assert (report.pid, report.ordinal, report.gpu) == (os.getpid(), 1, "GPU 1")
    assert report.row == {"peak": 1}
    assert [*report.extra.values()] == [3, 2, 5, 9, 7]
    assert report.trace is not None
    assert {name: column.tolist() for name, column in report.trace.items()} == {
        name: [0, 1] for name in columns
    }
    with_allocator._leave(used, replace(chosen, record=False), os.getpid())
    assert [one.ordinal for one in reports(tmp_path)] == [0, 1]
    assert with_allocator.native_only(tmp_path) == ["graphs", "sharing"]

    def wrong(*_: Any, **__: Any) -> None:
        raise SpecError("no such allocator")

    monkeypatch.setattr(adapter, "use", wrong)
    for name, value in with_allocator.environment(chosen, {}).items():
        monkeypatch.setenv(name, value)
    with pytest.raises(SystemExit) as ended:
        with_allocator.choose()
    assert ended.value.code == with_allocator.WRONG
    assert capsys.readouterr().err == "error: no such allocator\n"


def test_computed_values_are_read_as_1_where_0_fails(asked: Any) -> None:
    def fails_with_0(_: str | None, limits: Limits) -> Execution:
        if limits.number == 0:
            raise ComputedValueError("division by zero")
        return ran(trace(7))

    found = asked(fails_with_0)
    assert "division by zero. It is run again, and reads 1 instead of 0" in found.told
    assert [one.rpartition(" ")[2] for one in found.devices] == ["0", "1"]

    def fails(_: str | None, limits: Limits) -> Execution:
        raise ComputedValueError("first") if limits.number == 0 else RecordError("second")

    with pytest.raises(ComputedValueError, match="first"):
        asked(fails)


def test_blocks_of_other_streams_and_masks(asked: Any) -> None:
    """Other runs say how much is needed if blocks are held, and if masks select all."""
    held = {"blocks": 2, "bytes": 96, "places": [("a.py:1", 96)]}
    deferred: dict[str, Any] = {DEFERRED: held}

    def runs(device: str | None, limits: Limits) -> Execution:
        assert device is not None
        if "events=late" in device:
            return ran(
                {"a": trace(5000, **deferred), "b": trace(9), "c": trace(**deferred)}, device
            )
        if limits.share == 1:
            return ran({"a": trace(4096), "b": trace(8000)}, device)
        sites = {"a.py:3": 1, "a.py:2": 5, "a.py:4": 5}
        return ran({"a": trace(), "b": trace()}, shared=True, shapes=sites)

    found = asked(runs)
    a, b = found.traces["a"].coverage, found.traces["b"].coverage
    assert (a.shared, a.shared_load, a.masks, a.masks_load) == (96, 5000, "", 0)
    assert (b.shared, b.shared_load, b.masks_load) == (0, 0, 8000)
    assert b.masks == "a.py:2 a.py:4 a.py:3"
    assert "2 blocks (96 B in all) were used on another stream: a.py:1 96 B" in found.told
    assert len(found.devices) == 3
    late = asked(lambda device, _: ran(trace(), device, shared=True), device=f"{CARD},events=late")
    assert len(late.devices) == 1


def test_masks_that_cannot_select_all(asked: Any) -> None:
    def runs(_: str | None, limits: Limits) -> Execution:
        if limits.share == 1:
            raise RecordError("too many")
        return ran(trace(), shapes={"a.py:1": 1})

    assert "that select all, it did not run: too many" in asked(runs).told


def test_the_first_and_the_last_rank_are_run(asked: Any) -> None:
    found = asked(lambda device, _: ran(trace(1 + ("rank=3" in str(device))), device), world=4)
    assert [one.split()[0] for one in found.devices] == [
        f"{CARD},rank=0,world=4",
        f"{CARD},rank=3,world=4",
    ]
    assert list(found.traces) == ["rank0", "rank3"]
    assert list(asked(lambda device, _: ran({"gpu1": trace()}, device), world=1).traces) == [
        "rank0-gpu1"
    ]


@pytest.mark.parametrize(
    ("loads", "chosen", "shares"),
    [
        ({"process0-gpu0": 5, "process1-gpu0": 9, "process2-gpu1": 3}, "process1-gpu0", True),
        ({"process0-gpu0": 5, "process1-gpu1": 9}, "process1-gpu1", False),
        ({"rank0-gpu0": 9, "rank1-gpu0": 5}, "rank0-gpu0", False),
        ({"": 7}, "", False),
    ],
)
def test_the_process_with_the_largest_load_is_asked_about(
    monkeypatch: pytest.MonkeyPatch, loads: dict[str, int], chosen: str, shares: bool
) -> None:
    told = list[str]()
    traces = {name: trace(load) for name, load in loads.items()}
    monkeypatch.setattr(program, "load_all", lambda _: (traces, False))
    found = program.load(ProgramWorkload(("python3",), ProgramSettings(tell=told.append)))
    assert found is traces[chosen]
    assert ("need memory as well" in " ".join(told)) is shares
    assert (f"the answer is for {chosen}" in " ".join(told)) is (len(loads) > 1)


def test_a_workspace_matters_from_a_hundredth_of_the_load() -> None:
    def named(workspace: int, outside: dict[str, int]) -> Trace:
        summary = launch.Summary(outside=outside, workspace=workspace)
        recorded = Recorded(0, {"": trace(1000), "gpu1": trace(1000)}, [])
        found = execution._named(recorded, "train", summary).traces
        assert [one.provenance.name for one in found.values()] == ["train", "train-gpu1"]
        return found[""]

    assert [named(size, {}).coverage.workspace for size in (10, 11)] == [0, 11]
    assert named(0, {"cuBLAS": 3}).provenance.extra["outside"] == {"cuBLAS": 3}
    assert "outside" not in named(0, {}).provenance.extra


@pytest.mark.parametrize(
    ("recorded", "unknown", "raised", "words"),
    [
        (Recorded(130, {"": trace()}, []), "", KeyboardInterrupt, None),
        (Recorded(143, {"": trace()}, [], signal=15), "", Terminated, None),
        (Recorded(0, {}, []), "", RecordError, "it allocated nothing on a GPU"),
        (Recorded(0, {"": trace()}, ["no"]), "", RecordError, "was not recorded: no"),
        (Recorded(1, {"": trace(steps=1)}, []), "", RecordError, "exit code 1; why"),
        (Recorded(139, {"": trace(steps=4)}, []), "", RecordError, r"\(SIGSEGV\); why. It had made 4 optimizer steps: --steps 3 ends"),
        (Recorded(1, {"": trace()}, []), "a.py:1", ComputedValueError, "set it with --value: a.py:1"),
        (Recorded(1, {"": trace(ooms=1)}, []), "", None, ""),
        (Recorded(1, {"": trace(steps=1, ends="stopped")}, []), "", None, ""),
    ],
)  # fmt: skip
def test_how_a_run_failed(
    recorded: Recorded, unknown: str, raised: type[BaseException] | None, words: str | None
) -> None:
    run = Execution(recorded, CARD, (), unknown)
    if raised is None:
        execution._check(run, ["python3"], "why")
        return
    with pytest.raises(raised, match=words) as caught:
        execution._check(run, ["python3"], "why")
    assert raised is not RecordError or type(caught.value) is RecordError
    if recorded.code == 1 and recorded.traces[""].steps == 1:
        assert "optimizer steps" not in str(caught.value)


SERVED = trace(**{PEAK_RESERVED: GIB})


@pytest.mark.parametrize(
    ("printed", "recorded", "raised"),
    [
        (["a", "INFO: Application startup complete.", "b"], Recorded(0, {"": SERVED, "b": replace(SERVED, provenance=Provenance(extra={PEAK_RESERVED: 7}))}, []), None),
        (["offline"], Recorded(0, {"": SERVED}, []), None),
        (["Application startup complete"], Recorded(1, {"": SERVED}, []), None),
        (["no"], Recorded(130, {"": SERVED}, []), KeyboardInterrupt),
        (["no"], Recorded(129, {"": SERVED}, []), r"exit code 129; what it printed"),
        (["no"], Recorded(0, {}, []), "it used no GPU through PyTorch"),
        (["no"], Recorded(0, {}, ["broken"]), "nothing was recorded: broken"),
        (["Application startup complete"], Recorded(143, {"": SERVED}, [], signal=15), Terminated),
    ],
)  # fmt: skip
def test_the_start_of_a_server(
    monkeypatch: pytest.MonkeyPatch, printed: list[str], recorded: Recorded, raised: Any
) -> None:
    stopped = list[bool]()

    @contextmanager
    def session(device: str, limits: Limits) -> Any:
        assert (device, limits.seconds) == (CARD, 60)
        yield SimpleNamespace(stop=lambda: stopped.append(True), machine=None)

    def record(command: Any, stdout: int, **_: Any) -> Recorded:
        os.write(stdout, "".join(f"{line}\n" for line in printed).encode())
        return recorded

    monkeypatch.setattr(launch, "session", session)
    monkeypatch.setattr(recording, "record", record)
    if raised is not None:
        with pytest.raises(
            RecordError if isinstance(raised, str) else raised,
            match=raised if isinstance(raised, str) else None,
        ):
            server_start.run(["python3", "serve.py"], CARD, 60)
        return
    found = server_start.run(["python3", "serve.py"], CARD, 60)
    assert found.lines == tuple(printed)
    assert found.reserved == GIB
    assert 0 <= found.seconds < 60
    assert len(stopped) == any("complete" in line for line in printed)


def test_a_server_that_is_not_ready_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    test_the_start_of_a_server(monkeypatch, ["late"], Recorded(0, {"": SERVED}, []), None)
    clock = iter(range(0, 900, 61))
    monkeypatch.setattr(server_start, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    test_the_start_of_a_server(
        monkeypatch, ["late"], Recorded(0, {"": SERVED}, []), "not ready after 60 s"
    )


class Counting:
    """PyTorch's statistics of two GPUs, of which the program may reset the first's."""

    __version__ = "2.99"

    def __init__(self) -> None:
        names = ("requested_bytes.all.peak", "active_bytes.all.peak", "reserved_bytes.all.peak")
        self.names = {name: 10 * (n + 1) for n, name in enumerate(names)} | {
            "allocation.all.allocated": 4,
            "allocation.all.freed": 3,
            "num_device_alloc": 2,
            "num_device_free": 1,
            "num_ooms": 0,
            "num_alloc_retries": 5,
        }
        self.stats = [dict(self.names), dict.fromkeys(self.names, 0)]
        self._C = SimpleNamespace(
            _cuda_resetPeakMemoryStats=lambda n: self._reset(n, "peak"),
            _cuda_resetAccumulatedMemoryStats=lambda n: self._reset(n, "num", "allocation"),
        )
        self.cuda = SimpleNamespace(
            device_count=lambda: len(self.stats),
            memory_stats=self.stats.__getitem__,
            get_device_name=lambda n: f"GPU {n}",
        )

    def _reset(self, number: int, *words: str) -> None:
        for name in self.names:
            if any(word in name for word in words):
                self.stats[number][name] = 0


def test_counts_of_pytorchs_allocator_outlast_resets(tmp_path: Path) -> None:
    torch = Counting()
    counted = Statistics(torch, tmp_path)
    counted.start()
    torch._C._cuda_resetPeakMemoryStats(0)
    torch._C._cuda_resetAccumulatedMemoryStats(0)
    torch.stats[0] |= {"active_bytes.all.peak": 5, "reserved_bytes.all.peak": 40, "num_ooms": 1}
    torch.stats[0] |= {"allocation.all.allocated": 6}
    with suppress(IndexError):
        torch._C._cuda_resetPeakMemoryStats(7)  # the program gets the error of the reset
    counted.write()
    counted.write()
    (report,) = reports(tmp_path)
    assert (report.pid, report.ordinal, report.gpu) == (os.getpid(), 0, "GPU 0")
    assert report.row == {
        "device_kind": "cuda",
        "peak_requested": 10,
        "peak_allocated": 20,
        "peak_reserved": 40,
        "fragmentation_ratio": 0.5,
        "utilization": 0.5,
        "device_calls": 3,
        "failures": 1,
        "retries": 5,
    }
    assert report.extra == {"requests": 10, "frees": 3}
    assert [path.suffix for path in tmp_path.iterdir()] == [".json"]


def test_errors_of_the_statistics_are_kept_and_other_processes_write_nothing(
    tmp_path: Path,
) -> None:
    torch = Counting()
    Statistics(torch, tmp_path).write()  # never started: it is not this process's
    assert not list(tmp_path.iterdir())
    counted = Statistics(torch, tmp_path)
    counted.start()
    del torch.stats[0]["num_ooms"]
    counted.write()
    assert complaints(tmp_path) == ["KeyError: 'num_ooms'"]
    found = native_environment("there", {"HOME": "here"})
    assert (found["ALLOCBENCH_NATIVE"], found["HOME"]) == ("there", "here")
    assert "native_statistics" in json.dumps(found)


def test_a_command_that_cannot_be_started() -> None:
    with pytest.raises(UsageError, match="no such program"):
        server_start.run(["no-such-server"], CARD, 60)
