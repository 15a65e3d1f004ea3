# SPDX-License-Identifier: Apache-2.0
"""One process on null GPUs: its limits, and what it tells at its end, without CUDA."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from allocbench.null_gpu import launch
from allocbench.null_gpu.device import read
from allocbench.null_gpu.launch import Limits
from tests.null_gpu.test_inside import called, loaded

torch = pytest.importorskip("torch")
loaded("processes")
inside: Any = sys.modules["allocbench_inside"]


def process(folder: Path, **told: Any) -> Any:
    """A process that has watched nothing."""
    made = object.__new__(inside.Process)
    made._told = {"folder": str(folder), "seconds": None, "steps": None, **told}
    made._pid, made._steps, made._optimizer = os.getpid(), 0, None
    made._running = inside.Running(folder)
    return made


@pytest.mark.parametrize(
    ("flags", "capability", "runs"),
    [
        ("sm_80 sm_90", 80, True),
        ("sm_80 sm_90", 86, True),
        ("sm_86", 80, False),
        ("sm_80", 90, False),
        ("sm_80 compute_80", 90, True),
        ("compute_90", 86, False),
        ("sm_120 sm_100", 120, True),
        ("sm_90a", 90, True),
        ("", 90, True),
        (None, 90, True),
    ],
)
def test_kernels_are_for_a_card_of_the_same_generation(
    tmp_path: Path, flags: str | None, capability: int, runs: bool
) -> None:
    """Kernels run on later cards of a generation, and intermediate code on all later cards."""
    made = process(tmp_path, settings={"compute_capability": str(capability)})
    of_c = SimpleNamespace(_cuda_getArchFlags=lambda: flags)
    made._torch = SimpleNamespace(_C=of_c, __version__="2.0")
    assert made._without_kernels() == ("" if runs else "2.0")


def test_the_first_optimizer_that_steps_counts(tmp_path: Path) -> None:
    made, first, second = process(tmp_path, steps=3), object(), object()
    for optimizer in (first, second, second, first, second):
        made._on_step(optimizer, "arguments")
    with pytest.raises(SystemExit) as ended:
        made._on_step(first)
    assert ended.value.code == 0
    unlimited = process(tmp_path)
    for _ in range(9):
        unlimited._on_step(first)


@pytest.mark.parametrize(
    ("error", "unrelated"),
    [
        (OSError("no file"), True),
        (ModuleNotFoundError("no module"), True),
        (NameError("x"), True),
        (AttributeError("no y", name="y", obj=3), True),
        (AttributeError("no y", name="y", obj=None), False),
        (AttributeError("no y"), False),
        (RuntimeError("CUDA error: an illegal access"), True),
        (RuntimeError("cuDNN error: no"), True),
        (RuntimeError("it is not a CUDA error"), False),
        (RuntimeError("CUDA is far from an error"), False),
        (ValueError("shapes differ"), False),
        (None, False),
    ],
)
def test_an_error_can_be_due_to_values(error: Exception | None, unrelated: bool) -> None:
    assert inside._is_unrelated(error) is unrelated


def test_a_folder_that_others_can_change_is_not_safe(tmp_path: Path) -> None:
    (tmp_path / "file").touch(0o644)
    (tmp_path / "link").symlink_to("file")
    assert inside._is_safe(tmp_path)
    for path, mode in ((tmp_path / "file", 0o646), (tmp_path / "file", 0o664), (tmp_path, 0o777)):
        before = path.stat().st_mode
        path.chmod(mode)
        assert not inside._is_safe(path.parent if path.is_file() else path)
        path.chmod(before)
    assert inside._is_safe(tmp_path)


@pytest.mark.parametrize("began", [0.0, 3.0, 90.0])
def test_the_time_limit_is_that_of_the_whole_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, began: float
) -> None:
    made, told, now = process(tmp_path, seconds=20), list[Any](), time.time()
    made._running = SimpleNamespace(begin=lambda: now - began)
    monkeypatch.setattr(time, "time", lambda: now)
    monkeypatch.setattr(signal, "signal", lambda *given: told.append(given))
    monkeypatch.setattr(signal, "setitimer", lambda *given: told.append(given))
    timer = SimpleNamespace(start=lambda: told.append("started"))

    def later(*given: Any) -> Any:
        told.append(given)
        return timer

    monkeypatch.setattr(threading, "Timer", later)
    made._limit()
    left = pytest.approx(max(20 - began, 0.05))
    assert told == [
        (signal.SIGALRM, made._on_alarm),
        (signal.ITIMER_REAL, left, 0.05),
        (pytest.approx(max(20 - began, 0.05) + 10), made._end),
        "started",
    ]
    assert timer.daemon
    told.clear()
    made._limit_fork()
    assert told == []  # it is the same process
    made._pid += 1
    made._limit_fork()
    assert told[0] == (signal.SIGALRM, made._on_alarm)


def test_the_alarm_ends_a_program_unless_it_is_called_or_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, timers, recording = process(tmp_path), list[Any](), SimpleNamespace(write_at_end=[])
    monkeypatch.setattr(signal, "setitimer", lambda *given: timers.append(given))
    monkeypatch.setitem(sys.modules, "allocbench_recording_hook", recording)
    for module in ("allocbench_inside.following", "allocbench_recording_hook"):
        called(module, "f", "x", made._on_alarm)
    assert timers == [(signal.ITIMER_REAL, 0.05)] * 2
    assert not hasattr(recording, "stopped")
    with pytest.raises(SystemExit) as ended:
        called("main", "f", "x", made._on_alarm)
    assert (ended.value.code, timers[2:], recording.stopped) == (0, [(signal.ITIMER_REAL, 0)], True)


def test_a_process_that_does_not_end_writes_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, told = process(tmp_path), list[Any]()
    recording = SimpleNamespace(write_at_end=[lambda: told.append("written")])
    monkeypatch.setitem(sys.modules, "allocbench_recording_hook", recording)
    monkeypatch.setattr(made, "_leave", lambda: told.append("left"))
    monkeypatch.setattr(os, "_exit", lambda code: told.append(code))
    made._end()
    assert told == ["written", "left", 0]


def test_what_is_told_at_the_end(tmp_path: Path) -> None:
    def counters(room: Any) -> None:
        room[:] = [n + 1 for n in range(6)]

    def outside() -> bytes:
        return b"512 NCCL\n4096 cuBLAS and others\n"

    made = process(tmp_path, settings={"compute_capability": "90"})
    made._running.begin()
    waited = list[Any]()
    made._core = SimpleNamespace(
        null_wait_for_threads=lambda *given: waited.append(given),
        null_counters=counters,
        null_outside=outside,
        null_shared_blocks=lambda: 1,
    )
    sites = {"reads": {"a.py:1": 2}, "shapes": {"b.py:2": 1}}
    made._reads = SimpleNamespace(sites=sites["reads"], shapes=sites["shapes"], chosen=3, unused=[])
    made._workspaces = SimpleNamespace(
        unknown=lambda: Counter(fft=4), bound=lambda: 5, forgone=lambda: 6,
        has_convolutions=lambda: True,
    )  # fmt: skip
    cudnn = SimpleNamespace(benchmark=True)
    made._torch = SimpleNamespace(
        _C=SimpleNamespace(_cuda_getArchFlags=lambda: "sm_80"),
        __version__="2.0", backends=SimpleNamespace(cudnn=cudnn),
    )  # fmt: skip
    made._leave()
    assert waited == [(b"pt_autograd", 10_000)]
    assert launch.summary(tmp_path) == launch.Summary(
        reads=Counter(sites["reads"]), shapes=Counter(sites["shapes"]), kernels=6, chosen=3,
        unknown=Counter(fft=4), workspace=5, forgone=6, benchmark=True, shared=True,
        unused=[], without_kernels="2.0", outside={"NCCL": 512, "cuBLAS and others": 4096},
    )  # fmt: skip
    assert not [*tmp_path.glob("*.running")]
    made._pid += 1
    made._leave()  # a child of a fork does not tell what its parent did
    assert len([*tmp_path.glob("*.null.json")]) == 1
    cudnn.benchmark, made._pid = False, os.getpid()
    made._core.null_shared_blocks = lambda: 0
    made._core.null_outside = lambda: b""
    second = tmp_path / "second"
    second.mkdir()
    made._told["folder"] = str(second)
    made._leave()
    found = launch.summary(second)
    assert (found.benchmark, found.shared, found.outside) == (False, False, {})


def test_a_process_waits_for_its_children(tmp_path: Path) -> None:
    begun = tmp_path / "begun"
    code = "import os,sys,time; f=open(f'{sys.argv[1]}/{os.getpid()}.running','w'); f.close(); "
    code += "open(sys.argv[1]+'/begun','w').close(); time.sleep(0.4); os.remove(f.name)"
    with subprocess.Popen([sys.executable, "-S", "-c", code, str(tmp_path)]):
        while not begun.exists():
            time.sleep(0.01)
        inside.Running(tmp_path).wait_for_children()
        assert not [*tmp_path.glob("*.running")]


def test_a_process_waits_for_those_that_have_not_written(tmp_path: Path) -> None:
    running = inside.Running(tmp_path)
    first = running.begin()
    assert inside.Running(tmp_path).begin() == first
    running.wait_for_children()  # it does not descend from itself
    running.end()
    running.end()
    assert [path.name for path in tmp_path.iterdir()] == ["first"]


# PyTorch on the host, with the native library of the null GPU and none of NVIDIA's.
PROGRAM = """
import ctypes, importlib.util, json, os, sys
from pathlib import Path
import allocbench
file = Path(allocbench.__file__).parent / "null_gpu/inside/__init__.py"
spec = importlib.util.spec_from_file_location(
    "allocbench_inside", file, submodule_search_locations=[str(file.parent)]
)
inside = sys.modules["allocbench_inside"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(inside)
place, seen = Path(sys.argv[1]), {}
inside.Process._libraries = lambda self, package: place
made = inside.Process(json.loads(os.environ["TOLD"]), place)
import torch
torch._C._cuda_getArchFlags = lambda: "sm_80"
made.watch(torch)
# What the dispatcher tells of arguments, by operator
dispatcher, aten, found = made._follower._dispatcher, torch.ops.aten, {}
def note(record):
    begin, count = (ctypes.c_int64 * 2).from_address(record + dispatcher._layout.inputs)
    name = ctypes.string_at(dispatcher._name_of(record)).decode()
    try:
        values = dispatcher.values(begin, count)
    except inside.dispatcher.Unsupported:
        values = "unsupported"
    found.setdefault(name, values)
one, other, cpu = torch.zeros(3), torch.ones(3), torch.device("cpu")
generator = torch.Generator().manual_seed(7)
with dispatcher._observed(note, lambda record: None):
    aten.add.Tensor(one, other, alpha=-7)
    aten.div.Tensor_mode(one, other, rounding_mode="floor")
    aten.uniform_.default(one, -1.0, 2.0, generator=generator)
    aten.cat.default([other, other], -1)
    aten.randperm.default(2, device=cpu, pin_memory=False)
    aten.mul.Scalar(one, 1 + 2j)
assert found["aten::add"][0] is one and found["aten::add"][1] is other
assert [x is other for x in found["aten::cat"][0]] == [True, True]
assert found["aten::uniform_"][3].initial_seed() == 7
names = {"add": slice(2, 9), "div": slice(2, 9), "cat": slice(1, 9), "uniform_": slice(1, 3)}
seen["arguments"] = [found[f"aten::{name}"][part] for name, part in names.items()]
made_of = [str(x) if x == cpu else x for x in found["aten::randperm"]]
seen["arguments"] += [made_of, found["aten::mul"]]
# A forked child has the limit from its first use of a GPU on, and tells nothing
if not (child := os.fork()):
    made._told["seconds"] = 0.1
    made._limit_fork()
    while True:
        pass
seen["child"] = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
model = torch.nn.Linear(2, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
for seen["steps"] in range(9):
    print(json.dumps(seen), flush=True)
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
"""


def test_a_process_is_watched_from_its_begin_to_its_end(tmp_path: Path) -> None:
    (tmp_path / "about.json").write_text(json.dumps({"settings": {}, "libraries": []}))
    told = launch.environment(read("null:h100"), tmp_path, Limits(steps=3))[launch.VARIABLE]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path)],
        env={**os.environ, "TOLD": told},
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == {
        "arguments": [
            [-7],
            ["floor"],
            [-1],
            [-1.0, 2.0],
            [2, 4, None, "cpu", False],
            "unsupported",
        ],
        "child": 0,
        "steps": 2,
    }
    found = launch.summary(tmp_path)
    assert (found.kernels, found.reads, found.without_kernels) == (0, Counter(), torch.__version__)
    assert not [*tmp_path.glob("*.running")]
