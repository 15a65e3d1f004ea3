# SPDX-License-Identifier: Apache-2.0
"""Recordings: what the hooks write in a process, here in this one, and what is read of it."""

from __future__ import annotations

import atexit
import datetime
import json
import os
import pickle
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from allocbench.base.text import command_text
from allocbench.workloads import recording, recording_hook
from allocbench.workloads.recordings import CALLS, Calls, Gaps
from tests.workloads.importers.snapshots import Recorder, pickled, snapshot

with pytest.MonkeyPatch.context() as patch:
    patch.setenv("ALLOCBENCH_RECORD", "/nowhere")
    patch.setattr(sys, "meta_path", [*sys.meta_path])
    patch.setattr(sys, "addaudithook", lambda _hook: None)
    from allocbench.workloads import opened_files_hook


def test_each_file_that_is_read_is_noted_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    notes, here = tmp_path / "notes", tmp_path / "here"
    notes.mkdir()
    (here / "__pycache__").mkdir(parents=True)
    monkeypatch.chdir(here)
    monkeypatch.setattr(opened_files_hook, "_FOLDER", str(notes))
    monkeypatch.setattr(opened_files_hook, "_LEFT_OUT", ("/proc/", f"{notes}"))
    monkeypatch.setattr(opened_files_hook, "_seen", set())
    for name in ("a.py", "data", "b.so", "out", "both"):
        Path(name).write_text("text")
    see = opened_files_hook._on_event
    for event, *arguments in (
        ("open", "data", "r", os.O_RDONLY),
        ("open", b"data", "r", os.O_RDONLY),  # again
        ("open", "both", "r+", os.O_RDWR),
        ("open", "out", "w", os.O_WRONLY | os.O_CREAT),
        ("open", "out", "r", os.O_RDONLY),  # what it has written itself
        ("open", "missing", "r", os.O_RDONLY),
        ("open", 3, "r", os.O_RDONLY),
        ("open", "/proc/self/maps", "r", os.O_RDONLY),
        ("open", str(notes / "x"), "r", os.O_RDONLY),
        ("import", "a", str(here / "__pycache__/a.cpython-311.pyc"), None, None, None),
        ("import", "builtin", None, None, None, None),
        ("ctypes.dlopen", "libm.so.6"),
        ("ctypes.dlopen", "./b.so"),
        ("os.listdir", "data"),
        ("open",),
    ):
        see(event, tuple(arguments))
    opened_files_hook._NotFound().find_spec("package.absent", [str(here)])
    monkeypatch.setattr(opened_files_hook, "_MOST", 8)
    see("open", ("too many", "r", os.O_RDONLY))
    monkeypatch.setattr(sys, "path", [str(here / "on path")])
    monkeypatch.setattr(opened_files_hook, "_MOST", 10)
    opened_files_hook._NotFound().find_spec("absent")
    (written,) = notes.iterdir()
    assert written.name == f"{os.getpid()}.opened"
    told = [json.loads(line) for line in written.read_text().splitlines()]
    found = ["data", "both", "missing", "a.py", "b.so"]
    found += ["absent.py", "absent/__init__.py", "on path/absent.py", "on path/absent/__init__.py"]
    assert [path for path, _ in told] == [str(here / name) for name in found]
    for path, status in told:
        there = Path(path).stat() if Path(path).exists() else None
        assert status == (there and [there.st_size, there.st_mtime_ns, there.st_ctime_ns])


class Machine:
    """A PyTorch that keeps the annotations, and the history of its allocator."""

    __version__ = (2, 12)

    def __init__(self, error: str = "") -> None:
        self.said, self.begun = list[str](), list[Any]()
        self.snapshot = {"device_traces": [[{"action": "alloc"}], [], [{"action": "snapshot"}]]}
        segments = [
            {"address": 255, "total_size": 4096, "stream": 17, "segment_pool_id": [0, 3]},
            {"address": 1, "total_size": 1, "stream": 1, "segment_pool_id": [0, 4]},
        ]

        def record(**options: Any) -> None:
            self.begun.append(options)
            if error:
                raise RuntimeError(error)

        def memory_snapshot(mempool_id: Any = None) -> Any:
            return segments if tuple(mempool_id) == (0, 3) else segments[1:]

        class Graph:
            def __init__(self, pool: tuple[int, int]) -> None:
                self.pool = lambda: pool

            def capture_begin(self, fail: bool = False) -> None:
                if fail:
                    raise RuntimeError("already capturing")

            def capture_end(self) -> None:
                """Nothing more."""

            reset = capture_end

        class MemPool:
            def __init__(self, allocator: Any = None, use_on_oom: bool = False) -> None:
                self.id = (0, 3)

        memory = SimpleNamespace(
            MemPool=MemPool, _record_memory_history=record, _snapshot=lambda: self.snapshot,
            _cuda_beginAllocateToPool=lambda _device, _pool: "begun",
            _cuda_releasePool=lambda _device, _pool: None,
        )  # fmt: skip
        self.cuda = SimpleNamespace(
            CUDAGraph=Graph, memory=memory, memory_snapshot=memory_snapshot,
            get_device_name=lambda one: f"GPU {one}", max_memory_reserved=lambda one: 100 + one,
        )  # fmt: skip
        self._C = SimpleNamespace(_cuda_endAllocateToPool=lambda _device, _pool: None)
        self.UntypedStorage = type("Storage", (), {"_share_cuda_": lambda self: 5})
        self.autograd = SimpleNamespace(profiler=SimpleNamespace(record_function=self._annotate))

    @contextmanager
    def _annotate(self, text: str) -> Iterator[None]:
        self.said.append(text)
        yield


def test_the_events_of_private_pools_are_annotated() -> None:
    machine = Machine()
    recording_hook.PrivatePools(machine)
    memory, said = machine.cuda.memory, machine.said
    graph, twin, failed = (machine.cuda.CUDAGraph((0, 3)) for _ in range(3))
    graph.capture_begin()
    assert memory._cuda_beginAllocateToPool(0, (0, 9)) == "begun"
    machine._C._cuda_endAllocateToPool(0, (0, 9))
    graph.capture_end()
    twin.capture_begin()
    twin.capture_end()
    with pytest.raises(RuntimeError, match="already capturing"):
        failed.capture_begin(fail=True)
    begin = "allocbench.pool capture_begin 0.0 capture"
    end = "allocbench.pool capture_end 0.3 capture"
    inside = [f"allocbench.pool pool_{event} 0.9" for event in ("enter", "leave")]
    assert said == [f"{begin}0", *inside, f"{end}0", f"{begin}1", f"{end}1"]
    said.clear()
    graph.reset()
    graph.reset()
    assert said == ["allocbench.pool pool_release 0.3"]  # the other graph still has it
    said.clear()
    del twin
    held, released = "allocbench.pool segments 0.3 ff_1000_11", "allocbench.pool pool_release 0.3"
    assert said == [held, released]
    said.clear()
    made = machine.cuda.memory.MemPool(None, True)
    memory._cuda_releasePool(0, (0, 3))  # by another owner
    machine.__version__ = (2, 13)
    del made
    assert said == ["allocbench.pool pool_create 0.3 use_on_oom", released, released]


def test_features_that_settings_can_break_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recording_hook, "_used", set())
    machine = Machine()
    recording_hook._watch_features(machine)
    assert recording_hook._features() == []
    machine.cuda.memory.MemPool()
    assert recording_hook._features() == []
    machine.cuda.memory.MemPool("own")
    storage: Any = machine.UntypedStorage()
    assert storage._share_cuda_() == 5
    assert recording_hook._features() == ["cuda_ipc", "mem_pool"]
    monkeypatch.setitem(sys.modules, "vllm.custom_all_reduce", sys)
    assert recording_hook._features() == ["cuda_ipc", "custom_all_reduce", "mem_pool"]


@pytest.mark.parametrize("last", ["", "500"])
@pytest.mark.parametrize("stacks", ["", "python", "all"])
def test_a_process_writes_its_history_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stacks: str, last: str
) -> None:
    monkeypatch.setenv("ALLOCBENCH_STACKS", stacks)
    monkeypatch.setenv("ALLOCBENCH_LAST", last)
    monkeypatch.setenv("RANK", "3")
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    monkeypatch.setattr(recording_hook, "write_at_end", [])
    monkeypatch.setattr(atexit, "register", list[Any]().append)
    monkeypatch.setattr(sys, "argv", ["train.py", "5"])
    machine = Machine()
    schemas = [("aten::add", "Tensor"), ("aten::mm", "")]
    rows = [SimpleNamespace(name=name, overload_name=overload) for name, overload in schemas]
    machine._C._jit_get_all_schemas = lambda: rows
    recording_hook.HistoryRecorder(machine, tmp_path).start()
    most = int(last) if last else sys.maxsize
    context, kind = "alloc" if stacks else None, stacks or "python"
    assert machine.begun == [{"context": context, "stacks": kind, "max_entries": most}]
    machine.cuda.memory._record_memory_history(enabled=None)  # by the program: it has no effect
    assert len(machine.begun) == 1
    (write,) = recording_hook.write_at_end
    write()
    machine.snapshot = {}
    write()
    written = sorted(tmp_path.iterdir())
    assert [path.suffix for path in written] == [".json", ".pickle"]
    assert written[0].stem == written[1].stem
    about, snapshot = json.loads(written[0].read_text()), pickle.loads(written[1].read_bytes())
    assert snapshot == {"device_traces": [[{"action": "alloc"}], [], [{"action": "snapshot"}]]}
    files = about.pop("files")
    assert files[0] == sys.executable
    assert any(file.startswith("/") and "libc.so" in file for file in files)
    assert about == {
        "command": ["train.py", "5"], "rank": "3", "world": "", "torch": [2, 12],
        "devices": {"0": "GPU 0"}, "features": [], "stopped": False, "shapes": {},
        "parameters": {}, "reserved": {"0": 100},
        "operators": {"aten::add_Tensor": "aten::add"} if stacks == "all" else {},
    }  # fmt: skip
    monkeypatch.setattr(os, "getpid", lambda: 1)  # a child that was forked
    other = recording_hook.HistoryRecorder(machine, tmp_path)
    monkeypatch.undo()
    other.write()
    assert len([*tmp_path.iterdir()]) == 2


@pytest.mark.parametrize(
    ("error", "said"),
    [
        ("cudaMallocAsync does not support it", "its setting backend:cudaMallocAsync hands each"),
        ("no history", "RuntimeError: no history"),
    ],
)
def test_what_goes_wrong_is_written(tmp_path: Path, error: str, said: str) -> None:
    recording_hook.HistoryRecorder(Machine(error), tmp_path).start()
    (written,) = tmp_path.glob("*.error")
    assert written.read_text().startswith(said)
    broken = Machine()
    broken.snapshot = {}
    recording_hook.HistoryRecorder(broken, tmp_path).write()
    assert sorted(path.read_text() for path in tmp_path.glob("*.error"))[0].startswith("KeyError")


def test_a_process_that_is_ended_writes_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = list[Any]()
    monkeypatch.setattr(os, "kill", lambda *given: sent.append(given))
    monkeypatch.setattr(signal, "signal", lambda *given: sent.append(given))
    recorder = recording_hook.HistoryRecorder(machine := Machine(), tmp_path)
    taken = machine.cuda.memory._snapshot

    def interrupted() -> Any:
        recorder._on_sigterm()
        sent.append("taken")
        return taken()

    machine.cuda.memory._snapshot = interrupted
    recorder.write()  # the signal comes while it writes
    end = [(signal.SIGTERM, signal.SIG_DFL), (os.getpid(), signal.SIGTERM)]
    assert sent == ["taken", *end]
    recorder._on_sigterm()
    assert sent == ["taken", *end, *end]
    assert len([*tmp_path.glob("*.pickle")]) == 1


PROGRAM = """
import json, os, shutil, sys
from pathlib import Path
from random import Random
folder, name = Path(os.environ["ALLOCBENCH_RECORD"]), sys.argv[1]
shutil.copy(f"{name}.pickle", folder / "1-2.pickle")
shutil.copy(f"{name}.json", folder / "1-2.json")
(folder / "1-2.error").write_text("odd")
(folder / "9.opened").write_text('["/read", [1, 2, 3]]\\n["/missing", null]\\n')
Path(f"{name}.seen").write_text(json.dumps(dict(os.environ)))
sys.exit(3)
"""


@pytest.mark.parametrize("rank", ["", "5"])
def test_what_a_process_wrote_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rank: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", "theirs")
    monkeypatch.setenv("KIND", "of this process")
    recorders = [Recorder(device) for device in (0, 1)]
    for recorder in recorders if rank else recorders[:1]:
        recorder.free(recorder.alloc(4096 + recorder.device))
    Path("a.pickle").write_bytes(pickled(snapshot(*recorders)))
    Path("kept").mkdir()
    devices = {"0": "GPU A", "1": "GPU B"} if rank else {"0": "GPU A"}
    about = {"rank": rank, "world": "8", "torch": "2.12.0", "devices": devices, "stopped": rank}
    about |= {"command": ["train.py", "--token=abc"], "files": ["a.so"], "features": ["cuda_ipc"]}
    about |= {"reserved": {"0": 70, "1": 80}, "operators": {}, "shapes": {"a": "[1]"}}
    Path("a.json").write_text(json.dumps(about | {"parameters": {}}))
    command = [sys.executable, "-c", PROGRAM, "a", "x.py"]
    machine = recording.Machine("null:x", {"KIND": "of the machine", "CARD": "x"})
    ran = recording.record(
        command, "lines" if rank else "none", 7 if rank else None, ["first", "second"],
        machine if rank else recording.Machine("", {}), Path("kept"), 2 if rank else None,
        variables={"KIND": "given", "MORE": "5"},
    )  # fmt: skip
    assert (ran.code, ran.signal, [*ran.complaints], {*ran.files}) == (3, None, ["odd"], {"a.so"})
    assert {("/read", (1, 2, 3)), ("/missing", None)} < {*ran.opened}
    assert [path.name for path in Path("kept").iterdir()] == ["1-2.pickle"]
    traces = [*ran.traces.items()]
    assert [name for name, _ in traces] == (["rank5-gpu0", "rank5-gpu1"] if rank else [""])
    assert [int(trace.size[0]) for _, trace in traces] == [4096, 4097][: len(traces)]
    for (_, trace), reserved in zip(traces, (70, 80), strict=False):
        told = trace.provenance
        assert (told.name, told.kind, told.torch) == ("", "recorded", "2.12.0")
        assert told.device == ("null:x" if rank else "cuda:0 GPU A")
        assert (told.source, told.date) == (command_text(command), str(datetime.date.today()))
        assert trace.coverage.ends == ("stopped" if rank else "exit")
        of_rank = {"rank": rank, "world": "8"} if rank else {}
        extra: dict[str, Any] = {
            "process": ["train.py", "--token=HIDDEN"],
            "features": ["cuda_ipc"],
            **of_rank,
        }
        extra |= {"output_shapes": {"a": "[1]"}, "peak_reserved": reserved}
        assert {name: told.extra.get(name) for name in extra} == extra
        assert told.extra.keys().isdisjoint({"parameter_shapes", *([] if rank else ["rank"])})
    seen = json.loads(Path("a.seen").read_text())
    names = ("KIND", "CARD", "MORE", "ALLOCBENCH_STACKS", "ALLOCBENCH_LAST", "ALLOCBENCH_STEPS")
    found = ["of the machine", "x", "5", "python", "7", "2"] if rank else ["given", None, "5"]
    assert [seen.get(name) for name in names] == (found if rank else [*found, "", "", ""])
    assert seen["PYTHONPATH"].split(os.pathsep)[-3:] == ["first", "second", "theirs"]
    assert ("module_hook.py" in str(seen)) == bool(rank)


def test_what_cannot_be_recorded_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recording, "has_cuda", lambda: False)
    with pytest.raises(recording.RecordError, match="needs an NVIDIA GPU and its driver"):
        recording.record(["true"])
    with pytest.raises(recording.RecordError, match=r"^/no/command: No such file"):
        recording.record(["/no/command"], machine=recording.Machine("x", {}))


def test_the_name_of_a_program() -> None:
    for line, name in {
        "python -m torch.distributed.run train.v2.py -m x": "train.v2",
        "python -m package.train --lr 1": "package.train",
        "/usr/bin/tool.sh -m": "tool",
        "python -m torch.distributed.run --nproc 2": "torch.distributed.run",
    }.items():
        assert recording.program_name(line.split()) == name


@pytest.mark.parametrize("seed", range(20))
def test_reserved_bytes_and_gaps(seed: int) -> None:
    rng = Random(seed)
    allocs, at_start = rng.randrange(1, 9), rng.choice([0, 1000])
    rows = sorted(
        (rng.randrange(allocs + 1), rng.randrange(4), rng.randrange(1, 99))
        for _ in range(rng.randrange(12))
    )
    before, kinds, sizes = (np.array([row[n] for row in rows], np.uint64) for n in range(3))
    calls = Calls(kinds.astype(np.uint8), sizes, sizes, before.astype(np.int64))
    signs = [size if CALLS[kind] in ("segment_alloc", "segment_map") else -size
             for _, kind, size in rows]  # fmt: skip
    sums = [
        at_start + sum(size for size, row in zip(signs, rows, strict=True) if row[0] <= alloc)
        for alloc in range(allocs)
    ]
    assert calls.reserved(allocs, at_start).tolist() == sums
    assert calls.peak(at_start) == at_start + max(
        (sum(signs[:n]) for n in range(len(signs) + 1)), default=0
    )
    shown = sorted(rng.randrange(allocs + 1) for _ in range(6))
    begun = [rng.randrange(-1, one + 1) for one in shown]
    gaps = Gaps(np.array(begun), np.array(shown), np.arange(6, dtype=np.uint64))
    assert (gaps.frees, gaps.allocs) == (6 - begun.count(-1), begun.count(-1))
    for alloc in range(allocs + 1):
        rows_of = [*zip(begun, shown, range(6), strict=True)]
        assert gaps.before(alloc).address.tolist() == [n for _, s, n in rows_of if s < alloc]
        around = [n for b, s, n in rows_of if 0 <= b < alloc <= s]
        assert gaps.around(alloc).address.tolist() == around
