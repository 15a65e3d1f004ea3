# SPDX-License-Identifier: Apache-2.0
"""allocbench record, with a stand-in for PyTorch on the path of the programs it runs."""

import shlex
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

import pytest

from allocbench.workloads import ALLOC, FREE, MARK, Trace, read, recording
from tests.commands import folder, run

__all__ = ["folder"]  # the fixture, by its import

# A torch whose "GPUs" record requests if the program has asked for a history.
STAND_IN = """
import sys, time
from types import ModuleType, SimpleNamespace

__version__ = "9.9"
cuda = ModuleType("torch.cuda")
sys.modules["torch.cuda"] = cuda
queue, settings, traces, annotations, next_address = [], {}, [[], []], [], [0x1000]

def _lazy_call(function):
    function() if cuda.initialized else queue.append(function)

def init():
    if not cuda.initialized:
        cuda.initialized = True
        for function in queue:
            function()

def remember(device, **entry):
    if settings and cuda.works:
        entry |= {"stream": 0, "time_us": time.time_ns() // 1000, "frames": []}
        if settings["context"]:
            entry["frames"] = [{"filename": "/home/me/train.py", "line": 7, "name": "step"}]
        traces[device].append(entry)
        del traces[device][: -settings["max_entries"]]

def alloc(size, device=0):
    init()
    address, next_address[0] = next_address[0], next_address[0] + size + 512
    remember(device, action="segment_alloc", addr=address, size=size)
    remember(device, action="alloc", addr=address, size=size)
    return address, size, device

def free(block):
    address, size, device = block
    remember(device, action="free_requested", addr=address, size=size)
    remember(device, action="free_completed", addr=address, size=size)

def record(**given):
    if not cuda.works:
        raise RuntimeError("this build has no history")
    assert cuda.initialized and not settings
    settings.update(given)

def snapshot():
    return {"segments": [], "device_traces": traces, "external_annotations": annotations}

def step():
    annotations.append({"stage": "START", "name": "ProfilerStep#1", "device": 0,
                        "time_us": time.time_ns() // 1000})
    time.sleep(1e-5)

cuda.initialized, cuda.works, cuda._lazy_call, cuda.init = False, True, _lazy_call, init
cuda.memory = SimpleNamespace(_record_memory_history=record, _snapshot=snapshot)
cuda.max_memory_reserved = lambda device: 1 << 21
cuda.device_count = lambda: 2
cuda.get_device_name = lambda device: f"Stand-in {device}"
"""
TRAIN = """
import torch
torch.step()
a, b = torch.alloc(1000), torch.alloc(5000)
torch.free(a)
c = torch.alloc(70)
"""
TRACE = [(MARK, 0), (ALLOC, 1000), (ALLOC, 5000), (FREE, 0), (ALLOC, 70)]


@pytest.fixture(autouse=True)
def stand_in(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the stand-in on the path of programs, and an apparent GPU."""
    (folder / "site" / "torch").mkdir(parents=True)
    (folder / "site" / "torch" / "__init__.py").write_text(STAND_IN)
    monkeypatch.setenv("PYTHONPATH", str(folder / "site"))
    monkeypatch.setattr(recording, "has_cuda", lambda: True)
    Path("train.py").write_text(TRAIN)
    return folder


def rows(trace: Trace) -> list[tuple[int, int]]:
    return list(zip(trace.op.tolist(), trace.size.tolist(), strict=True))


def record(program: str = "train.py", options: str = "", code: int = 0) -> Mapping[str, Trace]:
    """Record a program, or the text of one; returns the traces by the stems of their files."""
    if not program.endswith(".py"):
        Path("program.py").write_text(program)
        program = "program.py"
    done = run(f"record -o t.parquet {options} -- {sys.executable} {program}")
    assert done.exit_code == code, done.output
    found = {path.stem: read(path) for path in sorted(Path().glob("t*.parquet"))}
    assert done.stderr.count("events, cuda:") == len(found)
    assert "a process was not recorded" not in done.stderr
    return found


def test_a_program_is_recorded_without_being_touched() -> None:
    found = record()
    assert rows(found["t"]) == TRACE
    kept = found["t"].provenance
    assert (kept.kind, kept.torch, kept.device) == ("recorded", "9.9", "cuda:0 Stand-in 0")
    assert kept.source == shlex.join([sys.executable, "train.py"])
    assert kept.extra["process"] == ["train.py"]
    assert found["t"].steps == 1


@pytest.mark.parametrize(
    ("end", "code"),
    [
        ("raise SystemExit", 0),
        ("import sys; sys.exit(3)", 3),
        ("raise ValueError('out of luck')", 1),
        ("import torch.cuda; exit(torch.cuda.initialized)", 1),
    ],
)
def test_a_program_ends_as_it_ends_and_is_recorded(end: str, code: int) -> None:
    assert rows(record(f"{TRAIN}\n{end}", code=code)["t"]) == TRACE


def test_torch_may_be_looked_for_first_and_imported_late() -> None:
    program = f"""
import importlib.util, sys
assert importlib.util.find_spec("torch").name == "torch"
assert importlib.util.find_spec("nowhere") is None
assert "torch" not in sys.modules and "multiprocessing" not in sys.modules
def main():
    exec({TRAIN!r})
main()
"""
    assert rows(record(program)["t"]) == TRACE


def test_a_process_may_write_while_its_recording_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    writes = """if True:
        import itertools, os, sys, time
        end = time.monotonic() + 5
        for number in itertools.takewhile(lambda _: time.monotonic() < end, itertools.count()):
            open(f"{sys.argv[1]}/late-{number}", "w").close()
    """
    program = f"""
import os, subprocess, sys
line = [sys.executable, "-IS", "-c", {writes!r}, os.environ["ALLOCBENCH_RECORD"]]
subprocess.Popen(line, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
exec({TRAIN!r})
"""
    assert rows(record(program)["t"]) == TRACE


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_workers_are_recorded(method: str) -> None:
    program = f"""
import multiprocessing, torch
def work():
    exec({TRAIN!r})
if __name__ == "__main__":
    torch.cuda._lazy_call(lambda: None)  # known, but not initialized: a worker may be
    worker = multiprocessing.get_context({method!r}).Process(target=work)
    worker.start(), worker.join()
"""
    assert rows(record(program)["t"]) == TRACE


def test_a_fork_of_a_recorded_process_writes_nothing_again() -> None:
    child = "torch.cuda.memory._snapshot = None if os.fork() == 0 else (os.wait(), snapshot)[1]"
    program = f"{TRAIN}\nimport os\nsnapshot = torch.cuda.memory._snapshot\n{child}"
    assert rows(record(program)["t"]) == TRACE


def test_the_programs_own_sitecustomize_runs(stand_in: Path) -> None:
    (stand_in / "site" / "sitecustomize.py").write_text("import builtins; builtins.mine = 5")
    assert rows(record(f"{TRAIN}\nassert mine == 5")["t"]) == TRACE


def test_a_program_runs_even_if_its_history_cannot_be_recorded() -> None:
    Path("broken.py").write_text("import torch; torch.cuda.works = False; torch.alloc(5)")
    done = run(f"record -o t.parquet -- {sys.executable} broken.py")
    assert done.exit_code == 2
    first, second = done.stderr.splitlines()
    assert first == "note: a process was not recorded: RuntimeError: this build has no history"
    assert second.startswith("error: nothing recorded: no process used a GPU")


@pytest.mark.parametrize(
    ("program", "code"), [("pass", 2), ("import sys; sys.exit(7)", 7), ("import torch", 2)]
)
def test_programs_that_use_no_gpu(program: str, code: int) -> None:
    assert record(program, code=code) == {}


def test_a_program_that_is_killed() -> None:
    program = f"{TRAIN}\nimport os, signal\nos.kill(os.getpid(), signal.SIGTERM)"
    assert record(program, code=128 + 15) == {}


def test_commands_that_cannot_be_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    for line, message in (
        ("record -o t.parquet -- ./nowhere --fast", "./nowhere: No such file or directory"),
        ("record -o - -- ls", "--output -: standard output belongs to the command; name a file"),
        ("record -o t.txt -- ls", "t.txt: the extension must be .parquet or .csv"),
    ):
        done = run(line)
        assert (done.exit_code, done.stdout, done.stderr) == (2, "", f"error: {message}\n")
    monkeypatch.setattr(recording, "has_cuda", lambda: False)
    done = run("record -o t.parquet -- touch ran")
    assert done.exit_code == 2
    assert done.stderr.startswith("error: no CUDA device: a recording needs an NVIDIA GPU")
    assert not Path("ran").exists()
