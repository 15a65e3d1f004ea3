# SPDX-License-Identifier: Apache-2.0
"""PyTorch on an allocator: the real one as far as a CPU build allows, a stand-in for the rest."""

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from allocbench.allocators import SpecError, _core
from allocbench.workloads import ALLOC, MARK, read
from tests.null_driver import NAME, Driver, environment, python, reported
from tests.stand_in import MODULES, TORCH_CALLS
from tests.stand_in.modules.torch import Pluggable

if (_FOUND := importlib.util.find_spec("torch")) is None:
    pytest.skip("needs PyTorch", allow_module_level=True)
TORCH = Path(str(_FOUND.origin)).parent


# -- the real torch


def test_statistics_have_the_names_that_pytorch_gives_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import torch

    from allocbench.allocators import torch as adapter

    blocks, sizes = ("allocated_blocks", "active_blocks"), ("allocated", "active", "requested")
    flows = {
        name: SimpleNamespace(current=n, peak=n + 1, gained=n + 2, lost=n + 3)
        for n, name in enumerate((*blocks, *sizes, "reserved"), 1)
    }
    calls = {"malloc_calls": 101, "map_calls": 21, "refused_calls": 3}
    use: Any = SimpleNamespace(
        program=SimpleNamespace(totals=SimpleNamespace(**flows), failures=70, retries=71),
        device=SimpleNamespace(**calls, free_calls=41, unmap_calls=7),
        stats=SimpleNamespace(retries=8),
    )
    found = dict(adapter._flat("", adapter._nested(use)))
    told = ("allocation", "active", *(f"{name}_bytes" for name in sizes), "reserved_bytes")
    expected = {
        f"{name}.all.{what}": n + at
        for n, name in enumerate(told, 1)
        for at, what in enumerate(("current", "peak", "allocated", "freed"))
    }
    expected |= {"num_ooms": 70, "num_alloc_retries": 79, "max_split_size": -1}
    expected |= {"num_device_alloc": 119, "num_device_free": 48, "segment.all.current": 71}
    expected |= {"segment.all.allocated": 119, "segment.all.freed": 48}
    assert {name: value for name, value in found.items() if value} == expected
    empty = dict(adapter._flat("", adapter._nested(None)))
    assert empty.keys() == found.keys()
    assert {name for name, value in empty.items() if value} == {"max_split_size"}
    assert "num_oom_rejections" in found
    monkeypatch.setattr(torch.cuda.memory_stats, "__doc__", None)  # before PyTorch 2.13
    assert found.keys() - dict(adapter._flat("", adapter._nested(use))) == {"num_oom_rejections"}


def test_the_error_of_a_feature_that_pytorch_lacks_here_says_why(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import torch

    from allocbench.allocators import torch as adapter

    def original(error: Exception | None, more: int = 0) -> int:
        if error:
            raise error
        return more

    monkeypatch.setattr(adapter, "met", met := list[str]())
    monkeypatch.setattr(adapter, "_FUNCTIONS", {("cuda", "ipc_collect"): "IPC", ("no", "x"): "no"})
    monkeypatch.setattr(torch.cuda, "ipc_collect", original)
    adapter.explain_native_only("bfc")
    call: Any = torch.cuda.ipc_collect
    assert (call(None, more=5), call.__name__) == (5, "original")
    for other in (RuntimeError("another"), ValueError("does not yet support")):
        with pytest.raises(type(other)) as raised:
            call(other)
        assert raised.value is other
    assert met == []
    for _ in range(2):
        with pytest.raises(RuntimeError, match=r"^IPC: PyTorch .* memory comes from bfc$"):
            call(RuntimeError("the allocator does not yet support this"))
    assert met == ["IPC"]


@pytest.fixture
def plugged(monkeypatch: pytest.MonkeyPatch, driver: Driver) -> Iterator[list[Pluggable]]:
    """What PyTorch was told to use, as its builds for CUDA are told; undone when the test ends."""
    import torch

    from allocbench.allocators import torch as adapter

    told, cuda = list[Pluggable](), torch.cuda
    for module in (cuda, cuda.memory, torch.accelerator, torch.accelerator.memory):
        for name in [name for name in dir(module) if "memory" in name]:
            if callable(function := getattr(module, name)):
                monkeypatch.setattr(module, name, function)
    of_optimizers = sys.modules["torch.optim.optimizer"]
    hooks = of_optimizers._global_optimizer_post_hooks
    monkeypatch.setattr(of_optimizers, "_global_optimizer_post_hooks", hooks.copy())
    for name, function in (
        ("_cuda_customAllocator", Pluggable),
        ("_cuda_changeCurrentAllocator", told.append),
    ):
        monkeypatch.setattr(torch._C, name, function, raising=False)
    monkeypatch.setattr(adapter, "_used", None)
    monkeypatch.setattr(adapter, "_FUNCTIONS", {})
    yield told
    _core.serve_torch(None)
    if adapter._used:
        adapter._used.close()


def test_a_torch_that_cannot_use_an_allocator_is_an_error(
    plugged: list[Pluggable], monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    from allocbench.allocators.torch import use

    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    late = "CUDA is already initialized: select the allocator before anything is on a GPU"
    with pytest.raises(SpecError, match=late):
        use("bfc")
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: False)
    monkeypatch.setattr(torch._C, "_cuda_customAllocator", lambda _alloc, _free: object())
    with pytest.raises(SpecError, match=r"PyTorch .* is too old: it has no set_record_stream_fn"):
        use("bfc")
    monkeypatch.delattr(torch._C, "_cuda_customAllocator")
    with pytest.raises(SpecError, match=r"PyTorch .* was built without CUDA"):
        use("bfc")
    assert plugged == []


def test_the_installed_torch_reports_an_allocator(
    plugged: list[Pluggable], monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    from allocbench.allocators import torch as adapter

    cuda, accelerator = torch.cuda, torch.accelerator
    program = adapter.use("naive", limit="512MiB")
    (used,) = plugged
    assert set(used.hooks) == set(adapter.HOOKS)
    for again in ("bfc", "naive"):
        with pytest.raises(SpecError, match=r"^PyTorch already gets its memory from naive$"):
            adapter.use(again)
    assert cuda.memory_stats(0) == accelerator.memory_stats(0) == {}
    monkeypatch.setattr(cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(cuda, "_lazy_init", lambda: None)
    monkeypatch.setattr(cuda._utils, "_get_device_index", lambda device, optional: device or 0)
    second = used.alloc(7 << 20, 1, 0)
    assert [cuda.memory_allocated(gpu) >> 20 for gpu in range(3)] == [0, 7, 0]
    first = used.alloc(5 << 20, 0, 0)
    assert [cuda.memory_allocated(gpu) >> 20 for gpu in range(3)] == [5, 7, 0]
    assert cuda.memory_reserved(0) == cuda.memory_stats(0)["reserved_bytes.all.current"]
    assert accelerator.max_memory_reserved(1) == cuda.max_memory_reserved(1) == 7 << 20
    assert accelerator.memory_stats(1) == cuda.memory_stats(1)
    assert [*accelerator.memory_stats(1)] == sorted(cuda.memory_stats(1))
    assert [cuda.memory.get_per_process_memory_fraction(gpu) for gpu in range(2)] == [0.5, 0.5]
    used.free(first, 5 << 20, 0, 0)
    used.free(second, 7 << 20, 1, 0)
    assert "CUDA OOMs: 0" in cuda.memory_summary(0)

    def seen() -> list[tuple[int, int]]:
        counts = [cuda.memory_stats(gpu)["allocation.all.allocated"] for gpu in range(2)]
        return [
            *zip(counts, (cuda.max_memory_allocated(gpu) >> 20 for gpu in range(2)), strict=True)
        ]

    assert seen() == [(1, 5), (1, 7)]
    cuda.reset_peak_memory_stats(0)
    cuda.reset_accumulated_memory_stats(1)
    assert seen() == [(1, 0), (0, 7)]
    accelerator.reset_peak_memory_stats(1)
    accelerator.reset_accumulated_memory_stats(0)
    assert seen() == [(0, 0), (0, 0)]
    stepped = list[int]()
    monkeypatch.setattr(program, "step", lambda: stepped.append(1))
    torch.optim.SGD([torch.zeros(3, requires_grad=True)]).step()
    assert stepped == [1]


CATCHES = """
import ctypes, sys
import torch
from allocbench.allocators import _core
from allocbench.allocators.programs import Program
calls = ctypes.CDLL(sys.argv[1])
program = Program("bfc")
_core.serve_torch(program._core)
said = ctypes.create_string_buffer(4000)
alloc = ctypes.c_void_p(_core.entry_point("allocbench_torch_alloc"))
for size in (1000, 1 << 40):
    kind = calls.what_is_thrown(alloc, ctypes.c_ssize_t(size), said, ctypes.c_size_t(4000))
    print(kind, said.value.decode())

memory = program.on()
captured = 0x77
begin, end = (
    ctypes.c_void_p(_core.entry_point(f"allocbench_torch_{name}_pool")) for name in ("begin", "end")
)
calls.begin(begin, ctypes.c_void_p(captured))
inside, outside = memory.allocate(1000, captured), memory.allocate(1000, 0x78)
assert memory.allocator.stats().allocations == 2  # the first, and the one outside
calls.end(end)
memory.release((3, 4))
memory.deallocate(inside)
memory.deallocate(outside)
"""


@pytest.fixture(scope="module")
def torch_calls(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Calls compiled with the headers of the installed torch."""
    created = tmp_path_factory.mktemp("torch_calls") / "calls.so"
    source = TORCH_CALLS / "calls.cpp"
    command = [os.environ.get("CXX", "g++"), "-std=c++20", "-O0", "-shared", "-fPIC", str(source)]
    command += ["-isystem", str(TORCH / "include"), "-L", str(TORCH / "lib"), "-lc10"]
    subprocess.run([*command, "-o", str(created)], check=True)
    return created


def test_torch_catches_its_own_out_of_memory_error(torch_calls: Path) -> None:
    done = python(CATCHES, str(torch_calls))
    assert done.stderr == ""
    served, refused, *rest = done.stdout.splitlines()
    assert served == "0 "
    assert refused.startswith("1 CUDA out of memory. bfc: out of memory: asked for 1.00 TiB")
    assert any(f"{NAME}: free" in line for line in rest)


OLD = """
import ctypes, sys
from allocbench.allocators import _core
from allocbench.allocators.programs import Program
base, cuda = (ctypes.CDLL(path, ctypes.RTLD_LOCAL) for path in sys.argv[1:])
program = Program("bfc")
_core.serve_torch(program._core)
said = ctypes.create_string_buffer(4000)
alloc = ctypes.c_void_p(_core.entry_point("allocbench_torch_alloc"))
print(cuda.what_is_thrown(alloc, ctypes.c_ssize_t(1 << 40), said, ctypes.c_size_t(4000)))
print(said.value.decode())
"""


@pytest.mark.parametrize("new_strings", [0, 1])
def test_older_torch_catches_its_own_out_of_memory_error(tmp_path: Path, new_strings: int) -> None:
    source = TORCH_CALLS / "old_torch.cpp"
    command = [os.environ.get("CXX", "g++"), "-std=c++17", "-O0", "-shared", "-fPIC", str(source)]
    command += [f"-D_GLIBCXX_USE_CXX11_ABI={new_strings}", "-L", str(tmp_path)]
    paths = []
    for name, options in (
        ("c10", []),
        ("c10_cuda", ["-DCUDA_PART", "-lc10", "-Wl,-rpath,$ORIGIN"]),
    ):
        paths.append(str(tmp_path / f"lib{name}.so"))
        soname = f"-Wl,-soname,lib{name}.so"
        subprocess.run([*command, *options, soname, "-o", paths[-1]], check=True)
    done = python(OLD, *paths)
    assert done.stderr == ""
    kind, message, *_ = done.stdout.splitlines()
    assert kind == "1"
    assert message.startswith("CUDA out of memory. bfc: out of memory: asked for 1.00 TiB")


# -- a stand-in for torch: programs

USES = """
import torch
import allocbench.allocators.torch
program = allocbench.allocators.torch.use("caching")
one = torch.Storage(5 << 20)
address = one.address
one.record_stream(7)
del one
memory = program.on()
assert memory.stats().deferred == 1
assert torch.Storage(5 << 20).address == address
torch.cuda.empty_cache()
assert memory.device.reserved == 0
kept = torch.Storage(1 << 20)
"""


def test_an_exiting_program_leaves_nothing_behind(tmp_path: Path) -> None:
    path = tmp_path / "report"
    done = python(USES, settings={"report": path}, PYTHONPATH=MODULES)
    assert (done.returncode, done.stderr) == (0, "")
    assert set(reported(path).values()) == {0}


# -- allocbench run

TRAIN = """
import sys
import torch
print("args", sys.argv[1:])
for n in range(3):
    activations = [torch.Storage(size << 10, 0) for size in (100, 2000 + n, 5000)]
    del activations
    torch.step()
kept = torch.Storage(1 << 20)
sys.exit(int(sys.argv[1]))
"""


def allocbench(
    *arguments: str, settings: Mapping[str, object] | None = None, **variables: str
) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "allocbench", "run", *arguments]
    env = environment(settings, **{"PYTHONPATH": MODULES} | variables)
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=600)


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "train.py"
    path.write_text(TRAIN)
    return path


def test_an_unmodified_program_runs_on_any_allocator(script: Path) -> None:
    report = script.with_name("report")
    options = ("--allocator", "tlsf", "--record", "trace.parquet", "--json", "rows.json", "--")
    done = allocbench(
        *options, sys.executable, str(script), "3", "--lr=1", settings={"report": report}
    )
    assert done.returncode == 3
    assert done.stdout == "args ['3', '--lr=1']\n"
    assert f"tlsf on cuda:0, {NAME} (process" in done.stderr
    assert "peak reserved" in done.stderr
    assert "device time (measured)" in done.stderr
    trace = read("trace.parquet")
    assert trace.allocs == 10
    assert int((trace.op == MARK).sum()) == 3
    assert trace.size[trace.op == ALLOC].tolist()[:3] == [100 << 10, 2000 << 10, 5000 << 10]
    assert trace.provenance.kind == "recorded"
    assert trace.provenance.device == NAME
    (row,) = json.loads(Path("rows.json").read_text())
    assert row["blocks"] == 10
    assert row["peak_requested"] == trace.max_load
    assert set(reported(report).values()) == {0}


def test_the_programs_own_sitecustomize_still_runs(script: Path) -> None:
    script.with_name("sitecustomize.py").write_text("print('mine')")
    path = os.pathsep.join([MODULES, str(script.parent)])
    done = allocbench("--allocator", "bfc", "--", sys.executable, str(script), "0", PYTHONPATH=path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("mine") == 2  # allocbench itself, and the program
    assert "bfc on cuda:0" in done.stderr


def test_each_process_of_a_program_has_its_table_and_trace(script: Path) -> None:
    twice = f"{sys.executable} {script} 0 & {sys.executable} {script} 0; wait"
    done = allocbench("--allocator", "bfc", "--record", "t.csv", "--", "sh", "-c", twice)
    assert done.returncode == 0
    assert done.stderr.count("bfc on cuda:0") == 2
    traces = sorted(script.parent.glob("t-*-cuda0.csv"))
    assert len(traces) == 2
    assert read(traces[0]).allocs == 10


def test_a_program_that_uses_no_gpu_is_reported(script: Path) -> None:
    done = allocbench("--allocator", "bfc", "--", sys.executable, "-c", "print(1)")
    assert (done.returncode, done.stdout) == (0, "1\n")
    assert done.stderr == (
        "allocbench: no process reported that it used the GPU; the program ended with exit code 0\n"
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--allocator", "bfc", "--", "no-such"], "no-such: no such program"),
        (["--allocator", "bfc", "--record", "x.txt", "--", "true"], "x.txt: the extension must"),
        (["--allocator", "bfc", "--record", "-", "--", "true"], "standard output is the program's"),
        (["--allocator", "bfc"], "Missing argument"),
    ],
)
def test_an_invalid_command_line_is_one_line(
    script: Path, arguments: list[str], message: str
) -> None:
    done = allocbench(*arguments)
    assert done.returncode == 2
    assert done.stdout == ""
    assert message in done.stderr
    assert done.stderr.count("\n") == 1


def test_without_a_gpu_nothing_is_run(script: Path) -> None:
    done = allocbench("--allocator", "bfc", "--", "touch", "ran", LD_LIBRARY_PATH="/nowhere")
    assert done.returncode == 2
    assert done.stderr.startswith("error: run: no CUDA driver found: libcuda.so.1")
    assert done.stderr.count("\n") == 1
    assert not Path("ran").exists()


def test_a_program_with_torch_without_cuda_exits_with_2() -> None:
    code = "import torch; print('after')"
    command = [sys.executable, "-m", "allocbench", "run", "--allocator", "bfc", "--"]
    done = subprocess.run(
        [*command, sys.executable, "-c", code], env=environment(), capture_output=True, text=True
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert "was built without CUDA" in done.stderr.splitlines()[0]


FORKS = """
import multiprocessing
import torch
def child():
    kept = torch.Storage(5 << 20)
process = multiprocessing.get_context("fork").Process(target=child)
process.start()
process.join()
"""


def test_a_child_of_a_fork_that_uses_the_gpu_has_its_table(script: Path) -> None:
    script.write_text(FORKS)
    done = allocbench("--allocator", "bfc", "--", sys.executable, str(script))
    assert done.returncode == 0, done.stderr
    assert done.stderr.count(f"bfc on cuda:0, {NAME} (process") == 1


def test_a_process_without_a_gpu_continues(script: Path) -> None:
    script.write_text("import torch; print('imported')")
    done = allocbench(
        *("--allocator", "bfc", "--", "env", "LD_LIBRARY_PATH=/nowhere"),
        *(sys.executable, str(script)),
    )
    assert (done.returncode, done.stdout) == (0, "imported\n"), done.stderr


REFUSED = """
import torch
def refuse():
    raise RuntimeError("pluggable does not yet support cacheInfo. If you need it, file an issue")
torch._C._cuda_memorySnapshot = refuse
from allocbench.allocators.torch import explain_native_only
explain_native_only("bfc")
for _ in range(2):
    try:
        torch._C._cuda_memorySnapshot()
    except RuntimeError as error:
        print(error)
"""


def test_features_that_need_pytorchs_own_allocator_are_named(script: Path) -> None:
    script.write_text(REFUSED)
    done = allocbench("--allocator", "bfc", "--", sys.executable, str(script))
    assert done.returncode == 0, done.stderr
    said = "memory snapshots (torch.cuda.memory_snapshot): PyTorch supports this only with its own"
    assert done.stdout.count(said) == 2
    assert done.stderr.count("the program used memory snapshots") == 1
