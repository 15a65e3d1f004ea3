"""What each function of PyTorch's memory API returns or raises."""

import contextlib
import ctypes.util
import json
import sys
import warnings

import torch

MIB = 1 << 20
warnings.simplefilter("ignore")
memory = torch.cuda.memory
kept = [torch.empty(size, dtype=torch.uint8, device="cuda") for size in (1000, 5 * MIB, 30 * MIB)]
del kept[1]
for _ in range(2):
    with contextlib.suppress(torch.OutOfMemoryError):
        torch.empty(1 << 45, dtype=torch.uint8, device="cuda")


def raw():
    address = memory.caching_allocator_alloc(3000)
    memory.caching_allocator_delete(address)
    return address != 0


def pool():
    made = torch.cuda.MemPool()
    with torch.cuda.use_mem_pool(made):
        return torch.ones(3, device="cuda").numel()


def fraction():
    torch.cuda.set_per_process_memory_fraction(0.5)
    return None


def again():
    """A second allocator, after memory was requested."""
    torch.cuda.memory.change_current_allocator(
        memory.CUDAPluggableAllocator(ctypes.util.find_library("c"), "malloc", "free")
    )


def settings():
    memory._set_allocator_settings("max_split_size_mb:100")


def uncached():
    with memory.caching_allocator_disabled():
        return torch.ones(3, device="cuda").numel()


CALLS = {
    "caching_allocator_alloc": raw,
    "caching_allocator_delete": raw,
    "caching_allocator_enable": lambda: memory.caching_allocator_enable(True),
    "set_per_process_memory_fraction": fraction,
    "change_current_allocator": again,
    "CUDAPluggableAllocator": again,
    "_set_allocator_settings": settings,
    "_dump_snapshot": lambda: memory._dump_snapshot(sys.argv[1]),
    "memory_snapshot": lambda: len(memory.memory_snapshot()) > 0,
    "_snapshot": lambda: len(memory._snapshot()["segments"]) > 0,
    "list_gpu_processes": lambda: memory.list_gpu_processes() is not None,
}
PRIVATE = ("_record_memory_history", "_snapshot", "_dump_snapshot", "_set_allocator_settings")


def plain(value):
    if isinstance(value, dict):
        return {str(key): plain(each) for key, each in value.items()}
    return value if isinstance(value, (int, float, str, list, tuple, type(None))) else repr(value)


def called(function):
    try:
        return {"value": plain(function())}
    except Exception as error:
        return {"raises": f"{type(error).__name__}: {str(error).splitlines()[0]}"}


seen = {}
names = sorted({*memory.__all__, *PRIVATE} & set(dir(memory)))
names.sort(key=lambda name: "reset" in name)
LAST = {"caching_allocator_disabled": uncached, "MemPool": pool, "use_mem_pool": pool}
for name in names:
    if name not in LAST:
        seen[f"torch.cuda.{name}"] = called(CALLS.get(name, getattr(memory, name)))
accelerator = getattr(torch, "accelerator", None)
if hasattr(accelerator, "memory"):
    for name in sorted(accelerator.memory.__all__, key=lambda name: "reset" in name):
        seen[f"torch.accelerator.{name}"] = called(getattr(accelerator, name))
seen["Tensor.untyped_storage()._share_cuda_"] = called(
    lambda: len(kept[0].untyped_storage()._share_cuda_())
)
seen["Tensor.pin_memory"] = called(lambda: torch.ones(3).pin_memory().is_pinned())
for name, function in LAST.items():  # they change other numbers where they have an effect
    if hasattr(memory, name):
        seen[f"torch.cuda.{name}"] = called(function)
print(json.dumps(seen))
