# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: E501  lines of logs are as long as programs print them
"""Texts of errors with what their numbers prove. The numbers are made up, and the words are real.

Each text is one that only this table has: the wording of a version, around numbers of our own. The
verdicts were computed by hand.
"""

import pytest

from allocbench.questions.error_text import verdict
from allocbench.workloads import TraceError
from allocbench.workloads.error_texts import Amount, ErrorText, parse

GIB, MIB = 1 << 30, 1 << 20

TORCH_1_0 = (
    "RuntimeError: CUDA out of memory. Tried to allocate {x} (GPU 0; 10.00 GiB total capacity;"
    " {a} already allocated; {f} free; {r} cached)"
)
TORCH_1_4 = (
    "RuntimeError: CUDA out of memory. Tried to allocate {x} (GPU 0; 10.00 GiB total capacity;"
    " {a} already allocated; {f} free; {total} reserved in total by PyTorch)"
)
TORCH_1_11 = (
    TORCH_1_4 + " If reserved memory is >> allocated memory try setting max_split_size_mb to avoid"
    " fragmentation.  See documentation for Memory Management and PYTORCH_CUDA_ALLOC_CONF"
)
TORCH_2_1 = (
    "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate {x}. GPU 0 has a total"
    " capacty of 10.00 GiB of which {f} is free. Including non-PyTorch memory, this process has"
    " {p} memory in use. Of the allocated memory {a} is allocated by PyTorch, and {r} is reserved by"
    " PyTorch but unallocated. If reserved but unallocated memory is large try setting"
    " max_split_size_mb to avoid fragmentation."
)
TORCH_2_13 = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {x}. GPU 0 has a total"
    " capacity of 10.00 GiB of which {f} is free. Including non-PyTorch memory, this process has"
    " {p} memory in use. Of the allocated memory {a} is allocated by PyTorch, and {r} is reserved by"
    " PyTorch but unallocated. If reserved but unallocated memory is large try setting"
    " PYTORCH_ALLOC_CONF=expandable_segments:True to avoid fragmentation."
)
XPU = (
    "torch.OutOfMemoryError: XPU out of memory. Tried to allocate {x}. GPU 0 has a total capacity of"
    " 10.00 GiB. Of the allocated memory {a} is allocated by PyTorch, and {r} is reserved by PyTorch"
    " but unallocated. Please use `empty_cache` to release all unoccupied cached memory."
)
NPU = (
    "RuntimeError: NPU out of memory. Tried to allocate {x} (NPU 0; 10.00 GiB total capacity; {a}"
    " already allocated; {a} current active; {f} free; {total} reserved in total by PyTorch) If"
    " reserved memory is >> allocated memory try setting max_split_size_mb to avoid fragmentation."
)
# What is requested, free, unallocated, allocated, in use by the process, and the verdict.
NUMBERS = {
    "full": ("3.00 GiB", "1.00 GiB", "1.50 GiB", "7.00 GiB", "9.00 GiB", "full", True, 512 * MIB),
    "pieces": ("2.00 GiB", "1.00 GiB", "1.50 GiB", "7.00 GiB", "9.00 GiB", "pieces", False, GIB),
    "enough": ("1.00 GiB", "2.00 GiB", "0 bytes", "7.00 GiB", "8.00 GiB", "enough", True, None),
    "undecided": (
        "2.50 GiB",
        "1.00 GiB",
        "1.50 GiB",
        "7.00 GiB",
        "9.00 GiB",
        "unknown",
        False,
        None,
    ),
    "a small request": (
        *("20.00 MiB", "6.00 MiB", "4.00 MiB", "9.00 GiB", "9.90 GiB"),
        *("full", False, 10 * MIB),
    ),
    "nothing free": ("2.00 MiB", "0 bytes", "0 bytes", "9.00 GiB", "10.00 GiB", "full", True, None),
}


@pytest.mark.parametrize(
    "wording", [TORCH_1_0, TORCH_1_4, TORCH_1_11, TORCH_2_1, TORCH_2_13, NPU], ids=range(6)
)
@pytest.mark.parametrize("numbers", NUMBERS)
def test_pytorch(wording: str, numbers: str) -> None:
    x, f, r, a, p, kind, certain, missing = NUMBERS[numbers]
    total = {"1.50 GiB": "8.50 GiB", "4.00 MiB": "9.00 GiB"}.get(r, a)
    found = verdict(_parsed(wording.format(x=x, f=f, r=r, a=a, p=p, total=total)))
    if "{total}" in wording and numbers == "nothing free":  # as far as the digits of a sum show
        assert (found.kind, found.certain) == ("unknown", False)
        return
    assert (found.kind, found.certain) == (kind, certain)
    if missing is not None:
        assert found.missing is not None
        assert abs(found.missing.middle - missing) < 20 * MIB


def _parsed(text: str) -> ErrorText:
    error = parse(text)
    assert error is not None
    return error


def test_every_number_of_a_message() -> None:
    text = TORCH_2_13.replace(
        "Including", "Process 17 has 1.00 GiB memory in use. 9.50 GiB allowed; Including"
    ).replace(
        "by PyTorch, and",
        "by PyTorch, with 512.00 MiB allocated in private pools (e.g., CUDA Graphs), and",
    )
    error = _parsed(
        text.format(x="3.00 GiB", f="1.00 GiB", r="1.00 GiB", a="6.50 GiB", p="8.00 GiB")
    )
    assert error.requested == Amount(int(2.995 * GIB) + 1, int(3.005 * GIB))
    assert [number for number, _ in error.others] == ["17"]
    amounts = error.free, error.total, error.allowed, error.process, error.allocated, error.private
    middles = [amount.middle / GIB for amount in amounts if amount is not None]
    assert middles == pytest.approx([1, 10, 9.5, 8, 6.5, 0.5], abs=1e-6)
    assert (error.hint, error.device) == ("expandable_segments", "GPU 0")
    found = verdict(error)
    assert (found.kind, found.certain) == ("full", True)
    assert found.others is not None
    assert found.others.middle / GIB == pytest.approx(1, abs=0.01)
    assert found.outside is not None
    assert found.outside.middle / GIB == pytest.approx(0.5, abs=0.01)


def test_private_pools_may_hold_what_is_missing() -> None:
    text = TORCH_2_13.replace(
        "by PyTorch, and", "by PyTorch, with {} allocated in private pools, and"
    )
    numbers = {"x": "3.00 GiB", "f": "1.00 GiB", "r": "1.00 GiB", "a": "7.00 GiB", "p": "9.00 GiB"}
    for private, kind in (("0.50 GiB", "full"), ("2.00 GiB", "pieces")):
        found = verdict(_parsed(text.replace("{}", private).format(**numbers)))
        assert (found.kind, found.certain) == (kind, kind == "full")


def test_a_limit_counts_like_the_card() -> None:
    text = TORCH_2_13.replace("Including", "4.00 GiB allowed; Including")
    numbers = {"f": "6.00 GiB", "r": "0.50 GiB", "a": "3.00 GiB", "p": "4.00 GiB"}
    full = verdict(_parsed(text.format(x="2.00 GiB", **numbers)))
    assert (full.kind, full.certain, full.limited) == ("full", True, True)
    pieces = verdict(_parsed(text.format(x="0.90 GiB", **numbers)))
    assert (pieces.kind, pieces.certain, pieces.limited) == ("pieces", False, True)


def test_nonsense_of_a_container_is_left_out() -> None:
    numbers = {"x": "3.00 GiB", "f": "1.00 GiB", "r": "1.00 GiB", "a": "6.50 GiB"}
    error = _parsed(TORCH_2_13.format(p="17179869184.00 GiB", **numbers))
    assert error.process is None
    assert verdict(error).together is not None


def test_a_device_without_a_number_of_free_bytes() -> None:
    for x, kind in (("4.00 GiB", "full"), ("2.00 GiB", "unknown")):
        found = verdict(_parsed(XPU.format(x=x, a="7.00 GiB", r="0.50 GiB")))
        assert (found.kind, found.certain) == (kind, kind == "full")


MPS = (
    "RuntimeError: MPS backend out of memory (MPS allocated: 17.00 GiB, other allocations: 1.00 GiB,"
    " max allowed: 18.13 GiB). Tried to allocate {} on private pool. Use"
    " PYTORCH_MPS_HIGH_WATERMARK_RATIO=0.0 to disable upper limit for memory allocations"
)
POOL_OF_DRIVER = """torch.OutOfMemoryError: Allocation on device 0 would exceed allowed memory. (out of memory)
Currently allocated     : 21.80 GiB
Requested               : {}
Device limit            : 22.02 GiB
Free (according to CUDA): 19.60 MiB
PyTorch limit (set by user-supplied memory fraction)
                        : 17179869184.00 GiB
"""
BFC = """W tsl/framework/bfc_allocator.cc:485] Allocator (GPU_0_bfc) ran out of memory trying to allocate 1.00GiB (rounded to 1073741824)requested by op model/dense/MatMul
I tsl/framework/bfc_allocator.cc:1075] Next region of size {region}
I tsl/framework/bfc_allocator.cc:1095] InUse at 7f0000000000 of size 536870912 next 2
I tsl/framework/bfc_allocator.cc:1095] Free  at 7f0020000000 of size {free} next 3
I tsl/framework/bfc_allocator.cc:1095] InUse at {third:x} of size {used} next 18446744073709551615
I tsl/framework/bfc_allocator.cc:1110] Stats:
Limit:                {limit}
InUse:                {in_use}
MaxInUse:             {in_use}
"""


def dump(region: int, free: int, used: int, limit: int, in_use: int) -> str:
    """The text of a request for 1 GiB, with three blocks: 512 MiB in use, `free`, `used`."""
    third = 0x7F0020000000 + free
    return BFC.format(region=region, free=free, used=used, limit=limit, in_use=in_use, third=third)


LLAMA = """llama_model_load_from_file_impl: using device CUDA0 (NVIDIA GeForce RTX 4090) - {free} MiB free
load_tensors:        CUDA0 model buffer size =  4403.49 MiB
llama_kv_cache:      CUDA0 KV buffer size =  1024.00 MiB
ggml_backend_cuda_buffer_type_alloc_buffer: allocating 2048.00 MiB on device 0: cudaMalloc failed: out of memory
"""
VLLM = (
    "ValueError: To serve at least one request with the models's max seq len (131072), (16.00 GiB KV"
    " cache is needed, which is larger than the available KV cache memory ({} GiB). Based on the"
    " available memory, the estimated maximum model length is 28432."
)
OTHERS = {
    "MPS above its limit": (MPS.format("19.00 GiB"), "full", True),
    "MPS": (MPS.format("1.50 GiB"), "short", False),
    "MPS, to the last digit": (MPS.format("0.13 GiB"), "unknown", False),
    "the host": (
        "RuntimeError: [enforce fail at alloc_cpu.cpp:75] err == 0. DefaultCPUAllocator: can't allocate"
        " memory: you tried to allocate 4294967296 bytes. Error code 12 (Cannot allocate memory)",
        *("unknown", False),
    ),
    "without its first words": (
        "Tried to allocate 20.00 MiB (GPU 0; 1.96 GiB total capacity; 1.94 GiB already allocated; 2.88"
        " MiB free; 1.95 GiB reserved in total by PyTorch)",
        *("unknown", False),
    ),
    "a block that is too large for the platform": (
        "RuntimeError: Current platform can NOT allocate memory block with size larger than 4GB! Tried"
        " to allocate 6.85 GiB (GPU  0; 15.56 GiB total capacity; 0 bytes already allocated; 0 bytes"
        " reserved in total by PyTorch)",
        *("unknown", False),
    ),
    "the pool of the driver, full": (POOL_OF_DRIVER.format("300.00 MiB"), "full", True),
    "the pool of the driver": (POOL_OF_DRIVER.format("110.50 MiB"), "short", False),
    "the driver": ("RuntimeError: CUDA error: out of memory", "unknown", False),
    "cuBLAS": ("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling", "unknown", False),
    "JAX": (
        "jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to"
        " allocate 4770354232 bytes.",
        *("unknown", False),
    ),
    "JAX of old": (
        "RuntimeError: Resource exhausted: Failed to allocate request for 32.00MiB (33554432B) on device"
        " ordinal 0",
        *("unknown", False),
    ),
    "TPU without numbers": (
        "RESOURCE_EXHAUSTED: Error loading program 'jit__f': Attempting to reserve 6.14G at the bottom"
        " of memory. That was not possible.",
        *("unknown", False),
    ),
    "the pool of the driver in JAX": (
        "E0000 gpu_cudamallocasync_allocator.cc:361] gpu_async_1 cuMemAllocAsync failed to allocate"
        " 1225195446464 bytes: CUDA_ERROR_OUT_OF_MEMORY: out of memory Reported by CUDA: Free"
        " memory/Total memory: 22635544576/85095874560\nE0000 cc:366] Stats: Limit: 0\nInUse: "
        " 61982909300\nMaxInUse: 61982909300\n",
        *("full", True),
    ),
    "TPU": (
        "RESOURCE_EXHAUSTED: XLA:TPU compile permanent error. Ran out of memory in memory space hbm."
        " Used 20.15G of 15.48G hbm. Exceeded hbm capacity by 4.66G.",
        *("full", False),
    ),
    "TPU with the gaps of its plan": (
        "RESOURCE_EXHAUSTED: Ran out of memory in memory space hbm. Used 20.15G of 15.48G hbm. Program"
        " hbm requirement 20.15G: HLO temp 19.95G (99.1% utilization: Unpadded (18.4G) Padded (18.4G),"
        " 0.9% fragmentation (185.33M))",
        *("full", True),
    ),
    "TPU within the gaps of its plan": (
        "RESOURCE_EXHAUSTED: Ran out of memory in memory space hbm. Used 15.60G of 15.48G hbm. HLO temp"
        " 15.50G (98.0% utilization, 2.0% fragmentation (300.00M))",
        *("full", False),
    ),
    "TPU without a place": (
        "RESOURCE_EXHAUSTED: Attempting to reserve 3.95G at the bottom of memory. That was not possible."
        " There are 1.92G free, 0B reserved, and 1.92G reservable.",
        *("full", True),
    ),
    "TPU in pieces": (
        "RESOURCE_EXHAUSTED: Attempting to reserve 3.95G at the bottom of memory. That was not possible."
        " There are 4.50G free, 0B reserved, and 1.92G reservable.",
        *("pieces", True),
    ),
    "BFC full": (
        dump(region=2 * GIB, free=GIB // 2, used=GIB, limit=2 * GIB, in_use=3 * GIB // 2),
        *("full", True),
    ),
    "BFC in pieces": (
        dump(
            region=3 * GIB,
            free=GIB - 256,
            used=3 * GIB // 2 + 256,
            limit=3 * GIB + 512,
            in_use=2 * GIB + 256,
        ),
        *("pieces", True),
    ),
    "BFC with a part of its dump": (
        dump(region=6 * GIB, free=GIB // 2, used=GIB, limit=6 * GIB, in_use=3 * GIB // 2),
        *("pieces", False),
    ),
    "BFC below its limit": (
        dump(region=2 * GIB, free=GIB // 2, used=GIB, limit=9 * GIB, in_use=3 * GIB // 2),
        *("enough", True),
    ),
    "BFC that goes on": (
        "Allocator (GPU_0_bfc) ran out of memory trying to allocate 2.55GiB with freed_by_count=0. The"
        " caller indicates that this is not a failure, but this may mean that there could be"
        " performance gains if more memory were available.",
        *("unknown", False),
    ),
    "BFC of old": (
        "Ran out of memory trying to allocate 1.00GiB. See logs for memory state.\n"
        "I bfc_allocator.cc:665] Chunk at 0xb03140000 of size 536870912\n"
        "I bfc_allocator.cc:665] Free  at 0xb23140000 of size 805306368\n"
        "I bfc_allocator.cc:680] Stats:\nLimit: 1342177280\nInUse: 536870912\n",
        *("full", True),
    ),
    "BFC without a limit": (
        dump(region=2 * GIB, free=GIB // 2, used=GIB, limit=0, in_use=3 * GIB // 2),
        *("unknown", False),
    ),
    "a tensor of TensorFlow": (
        "OOM when allocating tensor with shape[64,1024] and type float on"
        " /job:localhost/replica:0/task:0/device:GPU:0 by allocator GPU_0_bfc",
        *("unknown", False),
    ),
    "ONNX Runtime": (
        "BFCArena::AllocateRawInternal(size_t, bool) Available memory of 1000000 is smaller than"
        " requested bytes of 2000000",
        *("short", False),
    ),
    "CuPy above its limit": (
        "cupy.cuda.memory.OutOfMemoryError: Out of memory allocating 2,147,483,648 bytes (allocated"
        " so far: 536,870,912 bytes, limit set to: 1,073,741,824 bytes).",
        *("full", True),
    ),
    "CuPy": (
        "cupy.cuda.memory.OutOfMemoryError: Out of memory allocating 805,306,368 bytes (allocated so"
        " far: 536,870,912 bytes, limit set to: 1,073,741,824 bytes).",
        *("short", False),
    ),
    "CuPy below its limit": (
        "cupy.cuda.memory.OutOfMemoryError: Out of memory allocating 402,653,184 bytes (allocated so"
        " far: 536,870,912 bytes, limit set to: 1,073,741,824 bytes).",
        *("enough", True),
    ),
    "Paddle": (
        "Out of memory error on GPU 0. Cannot allocate 1.174316GB memory on GPU 0, 14.958557GB memory"
        " has been allocated and available memory is only 822.687500MB.",
        *("short", False),
    ),
    "NCCL": ("misc/cudawrap.cc:34 NCCL WARN Cuda failure 2 'out of memory'", "unknown", False),
    "Kubernetes": ("Last State: Terminated\nReason: OOMKilled\nExit Code: 137", "unknown", False),
    "the kernel": (
        "[12.3] Out of memory: Killed process 4 (python) total-vm:9kB, anon-rss:7kB",
        *("unknown", False),
    ),
    "a container": (
        "RuntimeError: DataLoader worker (pid 7) is killed by signal: Bus error. It is possible that"
        " dataloader's workers are out of shared memory.",
        *("unknown", False),
    ),
    "a shell": ("run.sh: line 3: 812 Killed   python train.py", "unknown", False),
    "torchrun": (
        "failed (exitcode: -9) local_rank: 1 (pid: 5) of binary: python",
        "unknown",
        False,
    ),
    "pinned memory": (
        "ggml_cuda_host_malloc: failed to allocate 700,50 MiB of pinned memory: invalid argument",
        *("unknown", False),
    ),
    "Triton": (
        "OutOfResources: out of resource: shared memory, Required: 163840, Hardware limit: 101376."
        " Reducing block sizes or `num_stages` may help.",
        *("full", True),
    ),
    "CuPy of old": (
        "cupy.cuda.memory.OutOfMemoryError: out of memory to allocate 200000000000 bytes (total"
        " 200000004096 bytes, limit set to 8000000000 bytes)",
        *("full", True),
    ),
    "RMM": (
        "MemoryError: std::bad_alloc: out_of_memory: RMM failure at:pool_memory_resource.hpp:257:"
        " Maximum pool size exceeded",
        *("unknown", False),
    ),
    "TensorRT": (
        "[W] Requested amount of GPU memory (8589934592 bytes) could not be allocated. There may not be"
        " enough free memory for allocation to succeed.",
        *("unknown", False),
    ),
    "vLLM": (VLLM.format("3.47"), "full", True),
    "vLLM, to the last digit": (VLLM.format("16.00"), "unknown", False),
    "vLLM counts tokens": (
        "ValueError: The model's max seq len (30000) is larger than the maximum number of tokens that"
        " can be stored in KV cache (3984).",
        *("full", True),
    ),
    "vLLM at its start": (
        "ValueError: Free memory on device (10.21/23.64 GiB) on startup is less than desired GPU memory"
        " utilization (0.9, 21.28 GiB). Decrease GPU memory utilization",
        *("full", True),
    ),
    "vLLM without a cache": (
        "ValueError: No available memory for the cache blocks. Try increasing"
        " `gpu_memory_utilization` when initializing the engine.",
        *("unknown", False),
    ),
    "SGLang": (
        "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static. Current value:"
        " self.server_args.mem_fraction_static=0.85",
        *("unknown", False),
    ),
    "llama.cpp, full": (LLAMA.format(free=7000), "full", True),
    "llama.cpp": (LLAMA.format(free=8000), "unknown", False),
    "llama.cpp replaces its compute buffer": (
        LLAMA.format(free=7800).replace(
            "ggml_b", "llama_context: CUDA0 compute buffer size = 500.00 MiB\nggml_b"
        ),
        *("unknown", False),
    ),
    "llama.cpp makes another context": (
        LLAMA.format(free=7000).replace("ggml_b", "llama_context: n_ctx = 4096\nggml_b"),
        *("unknown", False),
    ),
    "Ollama": (
        "Error: model requires more system memory (48.6 GiB) than is available (31.2 GiB)",
        *("full", True),
    ),
    "ComfyUI": ("torch.OutOfMemoryError: Allocation on device\nGot an OOM", "unknown", False),
}


@pytest.mark.parametrize("name", OTHERS)
def test_other_programs(name: str) -> None:
    text, kind, certain = OTHERS[name]
    for around in (
        "{}",
        'Traceback (most recent call last):\n  File "a.py", line 3\n{}\n[1] killed\n',
    ):
        found = verdict(_parsed(around.replace("{}", text)))
        assert (found.kind, found.certain) == (kind, certain)


def test_a_model_that_was_loaded_before_does_not_count() -> None:
    earlier = "llama_model_loader: loaded meta data with 30 key-value pairs\n" + LLAMA.format(
        free=7000
    )
    later = "llama_model_loader: loaded meta data with 30 key-value pairs\n" + LLAMA.format(
        free=8000
    )
    assert verdict(_parsed(earlier + later)).kind == "unknown"
    unlisted = LLAMA.format(free=7000).partition("\n")
    text = unlisted[2].replace("ggml_backend", f"{unlisted[0]}\nggml_backend")
    assert verdict(_parsed(text)).kind == "unknown"


def test_reports_without_an_error() -> None:
    summary = """
    |                  PyTorch CUDA memory summary, device ID 0                 |
    | Allocated memory      |    9216 MB |   14336 MB |   98304 MB |   89088 MB |
    | GPU reserved memory   |   15360 MB |   15360 MB |   15360 MB |       0 B  |
    """
    error = _parsed(summary)
    assert (error.message, error.device) == (False, "GPU 0")
    assert error.allocated == Amount(9216 * MIB, 9217 * MIB - 1)
    assert error.unallocated is not None
    assert error.unallocated.low < 6 * GIB < error.unallocated.high
    assert verdict(error).kind == "unknown"
    log = "INFO Available KV cache memory: 12.31 GiB\nINFO Model loading took 14.99 GiB and 4.1 seconds"
    assert [buffer.name for buffer in _parsed(log).buffers] == ["weights"]
    assert [name for name, _ in _parsed(log).parts] == ["available for the KV cache"]
    assert parse("everything is well; 3.00 GiB free") is None


@pytest.mark.parametrize(
    ("words", "program"),
    [("Out of memory: Killed process 4", "the host"), ("exit status 137", "PyTorch")],
)
def test_only_proof_of_an_ended_process_counts_more_than_a_report(words: str, program: str) -> None:
    report = "MA 4.88 GB         Max_MA 9.77 GB         CA 11.72 GB         Max_CA 16 GB"
    assert _parsed(f"{report}\n{words}").program == program


def test_the_last_error_counts() -> None:
    numbers = {"f": "1.00 GiB", "r": "1.50 GiB", "a": "7.00 GiB", "p": "9.00 GiB"}
    text = " ".join(TORCH_2_13.format(x=x, **numbers) for x in ("3.00 GiB", "2.00 GiB"))
    error = _parsed(text + "\nRuntimeError: CUDA error: out of memory")
    assert error.errors == 2
    assert error.requested is not None
    assert error.requested.middle // MIB == 2048


def test_more_bytes_than_fit_into_63_bits() -> None:
    text = "out of memory to allocate 1 bytes (total 2 bytes, limit set to {} bytes)"
    assert _parsed(text.format(2**63 - 1)).allowed == Amount(2**63 - 1, 2**63 - 1)
    with pytest.raises(TraceError, match="says 9,223,372,036,854,775,808 bytes: more than"):
        parse(text.format(2**63))


@pytest.mark.parametrize(
    "text",
    ["9" * 100_000, "1," * 100_000, "CUDA0 KV buffer size = " * 5_000, "Process 1 has " * 9_000],
)
def test_long_texts_without_an_error(text: str) -> None:
    assert parse(text) is None
