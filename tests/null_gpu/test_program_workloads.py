# SPDX-License-Identifier: Apache-2.0
"""Programs as workloads on null GPUs."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from allocbench.base import cards
from allocbench.base.files import cache
from allocbench.questions.hazards import breaks
from allocbench.workloads import read
from tests.null_gpu import PROGRAMS, VERSIONS, allocbench, asked, python, seen

MODEL = """
import sys, torch
from torch import nn
size = int(sys.argv[1]) if len(sys.argv) > 1 else 64
model = nn.Sequential(*(nn.Linear(1024, 1024) for _ in range(4))).cuda()
optimizer = torch.optim.AdamW(model.parameters())
for step in range(20):
    model(torch.randn(size, 1024, device="cuda")).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
print("trained")
"""


@pytest.fixture(autouse=True)
def a_cache_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache with only the libraries of the null GPU, and the folder of a program."""
    libraries = cache() / "null-gpu"
    libraries.mkdir(parents=True, exist_ok=True)
    (tmp_path / "cache" / "allocbench").mkdir(parents=True)
    (tmp_path / "cache" / "allocbench" / "null-gpu").symlink_to(libraries)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text(MODEL)


FIT = ("fit", "--allocators", "caching", "--time-limit", "0", "--json", "-")


def test_fit_of_a_program_and_again_from_the_cache() -> None:
    first = asked(*FIT, "--", python(), "train.py")
    (row,) = json.loads(first.stdout)
    assert row["workload"] == "train"
    assert row["max_load"] > 3 * 4 * (4 << 20)  # parameters and the state of the optimizer
    assert row["card"] == "RTX 3070 8GB"
    assert "on null:h200-141gb: 6 optimizer steps" in first.stderr
    assert "answered from the recording" not in first.stderr
    second = asked(*FIT, "--", python(), "train.py")
    assert second.stdout == first.stdout
    assert "answered from the recording" in second.stderr
    Path("train.py").write_text(MODEL.replace("range(4)", "range(5)"))
    third = asked(*FIT, "--", python(), "train.py")
    assert json.loads(third.stdout)[0]["max_load"] > row["max_load"]
    assert "answered from the recording" not in third.stderr


def test_the_peak_is_that_of_pytorch(tmp_path: Path) -> None:
    found = seen("training", tmp_path, on="null:l4")
    line = ("compare", "--device", "null:l4", "--allocators", "caching", "--time", "0", "--json")
    done = asked(*line, "-", "--steps", "100", "--", python(), str(PROGRAMS / "training.py"))
    (row,) = json.loads(done.stdout)
    assert row["peak_reserved"] == found["peak reserved"]
    assert row["peak_allocated"] == found["peak allocated"]


SHARED = """
import torch
MIB = 1 << 20
side, main = torch.cuda.Stream(), torch.cuda.current_stream()
kept = torch.empty(16 * MIB, dtype=torch.uint8, device="cuda")
for step in range(3):
    for _ in range(10):
        block = torch.empty(8 * MIB, dtype=torch.uint8, device="cuda")
        side.wait_stream(main)
        with torch.cuda.stream(side):
            block.add_(1)
        block.record_stream(side)
        del block
    torch.cuda.synchronize()
done = torch.cuda.Event()
done.record()
while not done.query():
    pass
"""


def test_blocks_of_other_streams_are_named_and_the_answer_has_both_loads() -> None:
    Path("shared.py").write_text(SHARED)
    done = asked(*FIT, "--device", "null:l4", "--", python(), "shared.py")
    (row,) = json.loads(done.stdout)
    # At once: one block at a time. Held: the ten of a step.
    assert row["max_load"] == (16 + 8) << 20
    assert "the largest load is 96.0 MiB" in row["coverage"]
    assert "30 blocks (240 MiB in all) were used on another stream: shared.py:8" in done.stderr
    held = asked(*FIT, "--device", "null:l4,events=late", "--", python(), "shared.py")
    (row,) = json.loads(held.stdout)
    assert row["max_load"] == (16 + 10 * 8) << 20
    assert row["coverage"] is None


def test_a_program_that_is_stopped_after_some_steps_is_a_part() -> None:
    line = (*FIT, "--steps", "2", "--device", "null:l4", "--", python(), "train.py")
    assert "where allocbench stopped the program" in json.loads(asked(*line).stdout)[0]["coverage"]
    whole = (*FIT, "--steps", "99", "--device", "null:l4", "--", python(), "train.py")
    assert json.loads(asked(*whole).stdout)[0]["coverage"] is None


def test_a_program_that_is_too_large_for_the_card_is_recorded_completely() -> None:
    device = "null:l4,memory=600MiB,context=512MiB"
    done = asked("explain", "--device", device, "--json", "-", "--", python(), "train.py")
    (row,) = json.loads(done.stdout)
    assert row["capacity"] == 88 << 20
    assert "it ran out of memory on null:l4-24gb,memory=629145600" in done.stderr
    assert "6 optimizer steps" in done.stderr
    assert row["min_capacity"] > row["capacity"]


def test_the_first_and_the_last_rank() -> None:
    program = str(PROGRAMS / "distributed.py")
    done = asked("inspect", "--world", "8", "--device", "null:h100", "--", python(), program)
    assert "rank0" in done.stderr
    assert "rank7" in done.stderr
    assert done.stdout.startswith("distributed")


def test_vary_finds_the_largest_batch_that_fits() -> None:
    device = "null:l4,memory=700MiB,context=512MiB"
    command = ("--", python(), "train.py", "{rows}")
    done = asked(
        "fit", "--device", device, "--vary", "rows=1024..8192:512", "--json", "-", *command
    )
    rows = {row["value"]: row for row in json.loads(done.stdout)}
    (largest,) = (value for value, row in rows.items() if row["largest"])
    assert rows[largest]["fits"]
    assert not rows[largest + 512]["fits"]
    assert rows[largest]["peak_reserved"] <= 188 << 20
    line = ("explain", "--device", device, "--json", "-", "--", python(), "train.py")
    (fits,) = json.loads(asked(*line, str(largest)).stdout)
    assert fits["event"] is None
    assert fits["verdict"] == "no recorded request fails"
    (failure,) = json.loads(asked(*line, str(largest + 512)).stdout)
    assert failure["capacity"] == 188 << 20
    check = ("check", "--device", device, "--json", "-", "--vary")
    (answer,) = json.loads(asked(*check, "rows=1024..8192:512", *command, code=1).stdout)
    changes = [one["change"] for one in answer["remedies"] if one["kind"] == "batch"]
    assert changes[0] == f"rows={largest}"
    (answer,) = json.loads(asked(*check, "rows=65536..131072:65536", *command, code=1).stdout)
    assert answer["sentence"].endswith(" It does not fit with rows=65536 either.")


EXTENSION = r"""
#include <stddef.h>
typedef int (*Malloc)(void**, size_t);
typedef int (*Free)(void*);
static Malloc allocate;
void use(Malloc given) { allocate = given; }
void* take(size_t size) { void* p = 0; return allocate(&p, size) ? 0 : p; }
int give(Free release, void* p) { return release(p); }
void* for_pool(ptrdiff_t size, int device, void* stream) { return take(size); }
void from_pool(void* p, ptrdiff_t size, int device, void* stream) {}
"""
EXTENDED = """
import ctypes, sys, torch
ones = torch.ones(1 << 20, device="cuda")
runtime = ctypes.CDLL("libcudart.so." + torch.version.cuda.split(".")[0])
extension = ctypes.CDLL(sys.argv[1])
extension.take.restype, extension.take.argtypes = ctypes.c_void_p, (ctypes.c_size_t,)
extension.give.argtypes = (ctypes.c_void_p, ctypes.c_void_p)
extension.use(runtime.cudaMalloc)
first, second = extension.take(3 << 30), extension.take(1 << 30)
assert first and second and not extension.give(runtime.cudaFree, second)
assert extension.take(512 << 20)
pluggable = torch.cuda.memory.CUDAPluggableAllocator(sys.argv[1], "for_pool", "from_pool")
pool = torch.cuda.MemPool(pluggable.allocator())
with torch.cuda.use_mem_pool(pool):
    torch.ones(1 << 28, device="cuda")
"""


def test_memory_that_an_extension_allocates_counts_by_library(tmp_path: Path) -> None:
    """At most 4 GiB at once. What it allocates for PyTorch's allocator is PyTorch's."""
    Path("extension.c").write_text(EXTENSION)
    Path("extended.py").write_text(EXTENDED)
    library = str(tmp_path / "libextension.so")
    compiler = os.environ.get("CC", "gcc")
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, "extension.c"], check=True)
    command = ("--", python(), "extended.py", library)
    fitted = asked(*FIT, "--device", "null:l4", *command)
    (row,) = json.loads(fitted.stdout)
    assert (row["libraries"], row["card"]) == (4 << 30, "RTX 3070 8GB")
    said = "note: libextension.so held 4.00 GiB of the GPU's memory outside of PyTorch"
    assert said in fitted.stderr
    assert said in asked("check", "--device", "l4", *command).stderr
    (answer,) = json.loads(asked("check", "--device", "l4", "--json", "-", *command).stdout)
    assert answer["capacity"] == cards.find("l4")[0].free - (4 << 30)


READS = """
import sys, torch
mean = torch.empty(8, device="cuda").geometric_(0.5).mean().item()
exec(*sys.argv[1:] or [""])
assert mean < 0.5 or mean > 2
print("scaled", 1 / mean)
"""


def test_a_program_that_needs_a_value_says_so_and_gets_one() -> None:
    Path("reads.py").write_text(READS)
    failed = asked(*FIT, "--", python(), "reads.py", code=2).stderr.splitlines()[-1]
    expected = "If a computed value caused this, set it with --value: 1 read of a computed value,"
    assert f"{expected} which was 0; 1 at reads.py:3 mean" in failed
    for line in ("open('missing')", "torch.missing", "raise RuntimeError('CUDA error: invalid')"):
        failed = asked(*FIT, "--", python(), "reads.py", line, code=2).stderr.splitlines()[-1]
        assert failed.endswith(": exit code 1; what it printed is above")
    failed = asked(*FIT, "--", python(), "reads.py", "None.missing", code=2).stderr
    assert expected in failed.splitlines()[-1]
    given = asked(*FIT, "--value", "mean=4", "--", python(), "reads.py").stderr
    assert "scaled 0.25" in given
    assert "1 read of a computed value, set by --value" in given
    again = asked(*FIT, "--", python(), "reads.py", "mean /= 4").stderr
    assert "scaled 4.0" in again
    assert "1 read of a computed value, which was 1" in again


MASKED = """
import torch
g, h = torch.nn.Linear(64, 1, device="cuda"), torch.randn(1 << 20, 64, device="cuda")
kept = h[g(h)[:, 0] > 0]
"""


def test_a_mask_of_computed_values_gives_a_range() -> None:
    Path("masked.py").write_text(MASKED)
    told = asked("check", "--device", "null:l4", "--", python(), "masked.py").stdout
    told = " ".join(told.split())
    assert "if the masks of computed values at masked.py:4 select half of their elements" in told
    assert "--value masked.py:4=NUMBER sets it." in told
    given = ("--value", "masked.py:4=1000")
    told = asked("check", "--device", "null:l4", *given, "--", python(), "masked.py").stdout
    assert "masks" not in told


POINTWISE = """
import torch
layer = torch.nn.Conv2d({channels}, 48, 1).cuda()
layer(torch.zeros(64, {channels}, 40, 40, device="cuda")).sum().backward()
"""


def test_a_convolution_of_few_channels_gives_a_range_on_a_card_without_measurements() -> None:
    def told(channels: int, device: str) -> str:
        Path("pointwise.py").write_text(POINTWISE.format(channels=channels))
        said = asked("fit", "--device", device, "--", python(), "pointwise.py")
        return " ".join((said.stderr + said.stdout).split())

    # Five times an input of 6,553,600 bytes, an output of 3 times as many, and 3,072 of filters.
    some = told(16, "null:rtx-3060")
    assert "if cuDNN chooses a kernel with a workspace for convolutions of one pixel" in some
    assert "has no workspace for convolutions that may ask for up to 125 MiB" in some
    assert "if cuDNN chooses" not in told(16, "null:h100")


def test_a_program_that_fails_later_can_be_asked_about_its_first_steps() -> None:
    Path("train.py").write_text(MODEL.replace("range(20)", "range(4)") + "sys.exit(1)")
    failed = asked(*FIT, "--", python(), "train.py", code=2).stderr.splitlines()[-1]
    assert failed.endswith("It had made 4 optimizer steps: --steps 3 ends it after these")
    assert (
        "on null:h200-141gb: 4 optimizer steps"
        in asked(*FIT, "--steps", "3", "--", python(), "train.py").stderr
    )


def test_an_allocation_has_the_line_of_the_program_that_made_it() -> None:
    Path("lines.py").write_text("import torch\nones = torch.ones(1 << 20, device='cuda')\n")
    line = ("record", "--labels", "lines", "--device", "null:l4", "-o", "lines.parquet")
    asked(*line, "--", python(), "lines.py")
    trace = read("lines.parquet")
    assert trace.label is not None
    assert {trace.labels[label] for label in trace.label[trace.op == 0]} == {"lines.py:2 <module>"}


RESUMED = """
import io, torch
from torch import nn
first, second = nn.Linear(8, 8).cuda(), nn.Linear(8, 8).cuda()
first.weight.data.geometric_(0.5)  # unknown
optimizers = [torch.optim.Adam(model.parameters(), foreach=False) for model in (first, second)]
for step in range(4):
    for optimizer, model in zip(optimizers, (first, second)):
        model(torch.ones(8, 8, device="cuda")).pow(2).sum().backward()
        optimizer.step()
        print("made a step of", optimizers.index(optimizer))
    file = io.BytesIO()
    torch.save(optimizers[0].state_dict(), file)
    file.seek(0)
    optimizers[0].load_state_dict(torch.load(file, map_location="cuda"))
"""


def test_only_steps_of_the_first_optimizer_count_and_checkpoints_continue() -> None:
    Path("resumed.py").write_text(RESUMED)
    line = ("record", "--device", "null:h100", "--steps", "3", "-o", "resumed.parquet", "--")
    done = asked(*line, python(), "resumed.py")
    assert done.stdout.splitlines() == ["made a step of 0", "made a step of 1"] * 2
    assert "torch.save" in done.stderr  # which reads values
    assert "optimizer.step()" not in done.stderr  # its count of steps is known


FEATURES = """
import torch, custom_all_reduce
from torch.cuda.memory import MemPool
torch.zeros(1, device="cuda").untyped_storage()._share_cuda_()
torch.cuda.memory._set_allocator_settings("garbage_collection_threshold:0.8")
if hasattr(torch.cuda, "MemPool"):
    MemPool()
"""


def test_a_recording_names_the_features_that_settings_can_break(tmp_path: Path) -> None:
    Path("features.py").write_text(FEATURES)
    Path("custom_all_reduce.py").touch()
    line = ("record", "--device", "null:h100", "-o", "features.parquet", "--")
    asked(*line, python(), "features.py")
    extra = read("features.parquet").provenance.extra
    assert extra["features"] == ["cuda_ipc", "custom_all_reduce", "sets_allocator"]
    asked(*line, python(), "train.py")
    assert read("features.parquet").provenance.extra["features"] == []


POOL_ALLOCATOR = """
#include <sys/types.h>
extern "C" void* take(ssize_t size, int, void*) {
  static char* next = reinterpret_cast<char*>(0x500000000000);
  return (next += size) - size;
}
extern "C" void give(void*, ssize_t, int, void*) {}
"""
POOL = """
import torch
from torch.cuda.memory import CUDAPluggableAllocator
torch.empty(1, device="cuda")
made = CUDAPluggableAllocator("./pool.so", "take", "give")
made = made.allocator() if hasattr(made, "allocator") else made._allocator
try:
    with torch.cuda.use_mem_pool(torch.cuda.MemPool(made)):
        own = torch.empty(1 << 25, device="cuda").data_ptr() >> 40 == 0x50
        print("seen", "its own" if own else "not its own")
except RuntimeError as error:
    print("seen", error)
"""


@pytest.mark.parametrize("version", VERSIONS)
def test_a_pool_with_its_own_allocator(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What `questions.hazards` says of expandable segments is what PyTorch does."""
    Path("pool.cpp").write_text(POOL_ALLOCATOR)
    Path("pool.py").write_text(POOL)
    subprocess.run(["c++", "-shared", "-fPIC", "-o", "pool.so", "pool.cpp"], check=True)
    monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")
    line = ("record", "--device", "null:h100", "-o", "pool.parquet", "--")
    shown = asked(*line, python(version), "pool.py").stdout
    trace = read("pool.parquet")
    assert trace.provenance.extra["features"] == ["mem_pool"]
    works = breaks("caching:expandable_segments=true", trace) is None
    assert ("seen its own" in shown) == works


def test_a_program_that_records_its_own_history_is_recorded_as_well() -> None:
    text = MODEL.replace("    optimizer.step()\n", "    optimizer.step(); own(step)\n")
    own = """
def own(step):
    torch.cuda.memory._record_memory_history(**({"enabled": None} if step == 2 else {}))
    if step == 1:
        torch.cuda.memory._dump_snapshot("own.pickle")
"""
    plain = json.loads(asked(*FIT, "--", python(), "train.py").stdout)
    Path("train.py").write_text(text.replace("import sys, torch", "import sys, torch" + own))
    (row,) = json.loads(asked(*FIT, "--", python(), "train.py").stdout)
    assert row == plain[0]
    assert Path("own.pickle").exists()


def test_a_module_has_its_name() -> None:
    Path("folder").mkdir()
    Path("folder/__main__.py").write_text(MODEL)
    (row,) = json.loads(asked(*FIT, "--", python(), "-m", "folder").stdout)
    assert row["workload"] == "folder"


GROWS = """
import torch
blocks = [torch.empty(110 << 20, dtype=torch.uint8, device="cuda") for _ in range(300)]
"""


@pytest.mark.parametrize("conf", ["", "expandable_segments:True"])
def test_a_program_that_needs_more_than_the_card(
    conf: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", conf)
    Path("grows.py").write_text(GROWS)
    done = asked(*FIT, "--device", "null:l4", "--", python(), "grows.py")
    assert "it ran out of memory on null:l4-24gb, and was recorded again" in done.stderr
    assert "its later requests are not known" not in done.stderr
    (row,) = json.loads(done.stdout)
    assert row["max_load"] == 300 * (110 << 20)


TAKES_ALL = """
import torch
blocks, size = [], 1 << 30
while size >> 20:
    try:
        blocks.append(torch.empty(size, dtype=torch.uint8, device="cuda"))
        size *= 2
    except torch.cuda.OutOfMemoryError:
        size //= 2
"""


def test_a_program_that_takes_all_that_there_is() -> None:
    Path("takes.py").write_text(TAKES_ALL)
    done = asked(*FIT, "--device", "null:l4", "--", python(), "takes.py")
    assert "and with 1.00 PiB, too" in done.stderr
    (row,) = json.loads(done.stdout)
    assert row["max_load"] < 25 << 30
    assert "ends with a request" in row["coverage"]


def test_a_program_with_the_pool_of_the_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", "backend:cudaMallocAsync")
    done = asked(*FIT, "--", python(), "train.py", code=2)
    assert "its setting backend:cudaMallocAsync hands each request to the driver" in done.stderr


def test_libraries_are_made_and_loaded_only_where_nobody_else_can_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And making them imports nothing from the current folder."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "own"))
    Path("train.py").write_text("import torch\ntorch.empty(1 << 20, device='cuda')\n")
    for module in ("collections", "elftools", "tempfile"):
        Path(f"{module}.py").write_text("open('imported', 'w')\nraise SystemExit\n")
    line = ("inspect", "--rerun", "--", python(), "-P", "train.py")
    interpreter, *called = allocbench()
    subprocess.run([interpreter, "-P", *called, *line], check=True, capture_output=True)
    assert not Path("imported").exists()
    (folder,) = (tmp_path / "own" / "allocbench" / "null-gpu").iterdir()
    assert folder.stat().st_mode & 0o777 == 0o700
    driver = folder / "libcuda.so.1"
    whole = driver.read_bytes()
    for open_to_others in (folder, driver):
        driver.write_bytes(b"of somebody else")
        open_to_others.chmod(0o777)
        subprocess.run([interpreter, "-P", *called, *line], check=True, capture_output=True)
        assert driver.read_bytes() == whole
        assert open_to_others.stat().st_mode & 0o022 == 0


RANKS = """
import os
import torch
import torch.distributed as dist

dist.init_process_group("nccl")
whole = torch.empty(dist.get_world_size() << 20, device="cuda")
dist.all_gather_into_tensor(whole, torch.empty(1 << 20, device="cuda"))
print("rank", dist.get_rank(), os.environ["LOCAL_WORLD_SIZE"], whole.numel() >> 20, flush=True)
"""


def test_a_launcher_starts_the_one_rank_that_runs() -> None:
    Path("ranks.py").write_text(RANKS)
    launcher = [str(Path(python()).with_name("torchrun")), "--nproc-per-node", "8", "--nnodes", "9"]
    done = asked(*FIT, "--device", "null:l4,rank=3,world=72", "--", *launcher, "ranks.py")
    assert [line for line in done.stderr.splitlines() if line.startswith("rank")] == ["rank 3 1 72"]
