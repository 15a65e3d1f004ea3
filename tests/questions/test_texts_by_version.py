# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: E501  lines of logs are as long as programs print them
"""Texts as programs of many versions print them, with what is provable: a table.

The wording is that of the program, the numbers are our own, and the verdicts were computed by hand
from them: X requested, F free, R reserved but not allocated, in MiB.
"""

import random
from dataclasses import dataclass

import pytest

from allocbench.allocators import OutOfMemory, Segment, make, make_device, replay
from allocbench.base.cards import find
from allocbench.questions.error_text import explained, on_card, verdict
from allocbench.reports.advice.error_text import sentences
from allocbench.workloads.error_texts import ErrorText, parse, state

GIB, MIB = 1 << 30, 1 << 20


@dataclass(frozen=True)
class Labelled:
    """A text. missing: MiB; None if the answer has no such number."""

    text: str
    kind: str
    certain: bool
    missing: float | None = None
    limited: bool = False


TEXTS = {
    "PyTorch 1.8, F + R = 310.75 + 123": Labelled(
        "RuntimeError: CUDA out of memory. Tried to allocate 392.00 MiB (GPU 1; 15.78 GiB total"
        " capacity; 13.90 GiB already allocated; 310.75 MiB free; 14.02 GiB reserved in total by"
        " PyTorch)",
        *("pieces", False, 81.25),
    ),
    "PyTorch 1.8 in a log of two ranks, the second is full": Labelled(
        "0: RuntimeError: CUDA out of memory. Tried to allocate 392.00 MiB (GPU 0; 15.78 GiB total"
        " capacity; 13.90 GiB already allocated; 310.75 MiB free; 14.02 GiB reserved in total by PyTorch)\n"
        "1: RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB (GPU 1; 15.78 GiB total"
        " capacity; 12.01 GiB already allocated; 1.10 GiB free; 12.30 GiB reserved in total by PyTorch)\n",
        *("full", True, 625),
    ),
    "PyTorch 1.13 on ROCm, to the last digit of R": Labelled(
        "torch.cuda.OutOfMemoryError: HIP out of memory. Tried to allocate 64.00 MiB (GPU 0; 15.98 GiB"
        " total capacity; 15.90 GiB already allocated; 12.00 MiB free; 15.93 GiB reserved in total by"
        " PyTorch) If reserved memory is >> allocated memory try setting max_split_size_mb to avoid"
        " fragmentation.  See documentation for Memory Management and PYTORCH_HIP_ALLOC_CONF",
        *("full", True, 21.3),
    ),
    "PyTorch 2.0 below the card, at a limit of the program": Labelled(
        "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 256.00 MiB (GPU 0; 23.69 GiB"
        " total capacity; 5.90 GiB already allocated; 17.01 GiB free; 6.00 GiB allowed; 5.98 GiB reserved"
        " in total by PyTorch)",
        *("full", True, 153.6, True),
    ),
    "PyTorch 2.2, whose number of the GPU is no letter": Labelled(
        "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 600.00 MiB. GPU \x01 has a"
        " total capacity of 11.00 GiB of which 512.50 MiB is free. Including non-PyTorch memory, this"
        " process has 10.40 GiB memory in use. Of the allocated memory 9.90 GiB is allocated by PyTorch,"
        " and 61.20 MiB is reserved by PyTorch but unallocated.",
        *("full", True, 26.3),
    ),
    "PyTorch 2.6 with graphs, F + R + private = 1.20 + 0.68 + 0.59 GiB": Labelled(
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 3 has a total"
        " capacity of 79.10 GiB of which 1.20 GiB is free. Process 4411 has 30.00 GiB memory in use."
        " Process 4412 has 47.88 GiB memory in use. Of the allocated memory 46.00 GiB is allocated by"
        " PyTorch, with 600.00 MiB allocated in private pools (e.g., CUDA Graphs), and 700.00 MiB is"
        " reserved by PyTorch but unallocated.",
        *("pieces", False, 819.2),
    ),
    "PyTorch 2.9 in color, wrapped, with ranks": Labelled(
        "\x1b[31m[rank2]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 3.10 GiB. GPU 2\n"
        "[rank2]: has a total capacity of 23.53 GiB of which 1.90 GiB is free. Including non-PyTorch\n"
        "[rank2]: memory, this process has 21.62 GiB memory in use. Of the allocated memory 20.80 GiB is\n"
        "[rank2]: allocated by PyTorch, and 310.00 MiB is reserved by PyTorch but unallocated. If\n"
        "[rank2]: reserved but unallocated memory is large try setting\n"
        "[rank2]: PYTORCH_ALLOC_CONF=expandable_segments:True to avoid fragmentation.\x1b[0m\n",
        *("full", True, 918.8),
    ),
    "PyTorch, a segment of 14 MiB, whose request may have 1 MiB": Labelled(
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 14.00 MiB. GPU 0 has a total"
        " capacity of 7.78 GiB of which 11.12 MiB is free. Including non-PyTorch memory, this process has"
        " 7.77 GiB memory in use. Of the allocated memory 7.40 GiB is allocated by PyTorch, and 1.50 MiB"
        " is reserved by PyTorch but unallocated.",
        *("full", False, 1.38),
    ),
    "PyTorch, equal to the last digit": Labelled(
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has a total"
        " capacity of 79.25 GiB of which 15.00 GiB is free. Including non-PyTorch memory, this process"
        " has 64.24 GiB memory in use. Of the allocated memory 58.80 GiB is allocated by PyTorch, and"
        " 4.99 GiB is reserved by PyTorch but unallocated.",
        *("unknown", False),
    ),
    "PyTorch, refused with enough free": Labelled(
        "torch.OutOfMemoryError: HIP out of memory. Tried to allocate 2.00 MiB. GPU 5 has a total"
        " capacity of 191.98 GiB of which 120.10 GiB is free. Of the allocated memory 60.40 GiB is"
        " allocated by PyTorch, and 9.81 GiB is reserved by PyTorch but unallocated.",
        *("enough", True),
    ),
    "MPS in GB": Labelled(
        "RuntimeError: MPS backend out of memory (MPS allocated: 8.02 GB, other allocations: 384.00 KB,"
        " max allowed: 9.07 GB). Tried to allocate 1.55 GB on private pool. Use"
        " PYTORCH_MPS_HIGH_WATERMARK_RATIO=0.0 to disable upper limit for memory allocations (may cause"
        " system failure).",
        *("short", False, 512.4),
    ),
    "JAX, more than what it preallocated": Labelled(
        "I0101 10:00:00.000000 7 gpu_helpers.cc:136] XLA backend allocating 12884901888 bytes on device 0"
        " for BFCAllocator.\njaxlib._jax.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to"
        " allocate 13958643712 bytes.\n",
        *("full", True, 1024, True),
    ),
    "JAX, less than what it preallocated": Labelled(
        "XLA backend allocating 12884901888 bytes on device 0 for BFCAllocator.\njaxlib.xla_extension."
        "XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 3958643712 bytes.\n",
        *("unknown", False),
    ),
    "TensorFlow with nothing but its statistics": Labelled(
        "2025-01-01 10:00:00.1: W tsl/framework/bfc_allocator.cc:497] Allocator (GPU_1_bfc) ran out of"
        " memory trying to allocate 3.40GiB (rounded to 3650722816)requested by op gradients/conv\n"
        "2025-01-01 10:00:00.2: I tsl/framework/bfc_allocator.cc:1112] Stats: \n"
        "Limit:                      3456106496\nInUse:                      3000000000\n",
        *("full", True, 3046.6, True),
    ),
    "TensorFlow 1.8 on Windows, holes of 192 and 320 MiB": Labelled(
        "W T:\\src\\bfc_allocator.cc:279] Allocator (GPU_0_bfc) ran out of memory trying to allocate"
        " 384.0MiB.  Current allocation summary follows.\n"
        "I T:\\src\\bfc_allocator.cc:665] Chunk at 0000000503A00000 of size 268435456\n"
        "I T:\\src\\bfc_allocator.cc:665] Free  at 0000000513A00000 of size 201326592\n"
        "I T:\\src\\bfc_allocator.cc:665] Chunk at 000000051FA00000 of size 268435456\n"
        "I T:\\src\\bfc_allocator.cc:665] Free  at 000000052FA00000 of size 335544320\n"
        "I T:\\src\\bfc_allocator.cc:680] Stats:\nLimit: 1073741824\nInUse: 536870912\n",
        *("pieces", True, 384),
    ),
    "ONNX Runtime": Labelled(
        "onnxruntime::BFCArena::AllocateRawInternal(size_t, bool, Stream*) Failed to allocate memory for"
        " requested buffer of size 805306368",
        *("unknown", False),
    ),
    "vLLM whose weights are above its share": Labelled(
        "(EngineCore_DP0 pid=77) INFO 11-01 10:00:00 [gpu_worker.py:356] Available KV cache memory: -1.75"
        " GiB\n(EngineCore_DP0 pid=77) ERROR 11-01 10:00:00 [core.py:843] ValueError: No available memory"
        " for the cache blocks. Try increasing `gpu_memory_utilization` when initializing the engine.\n",
        *("full", True, 1792),
    ),
    "vLLM that was started again": Labelled(
        "INFO [gpu_worker.py:356] Available KV cache memory: -1.75 GiB\nINFO [gpu_worker.py:356] Available"
        " KV cache memory: 3.10 GiB\n",
        *("unknown", False),
    ),
    "JAX on two cards, whose limits differ": Labelled(
        "XLA backend allocating 12884901888 bytes on device 0 for BFCAllocator.\nXLA backend allocating"
        " 17179869184 bytes on device 1 for BFCAllocator.\njaxlib.xla_extension.XlaRuntimeError:"
        " RESOURCE_EXHAUSTED: Out of memory while trying to allocate 13958643712 bytes.\n",
        *("unknown", False),
    ),
    "vLLM, 5.00 GiB or less are needed": Labelled(
        "(VllmWorker rank=1 pid=23) ERROR 06-01 10:00:00 [multiproc_executor.py:522] ValueError: To serve"
        " at least one request with the models's max seq len (40960), (5.00 GiB KV cache is needed, which"
        " is larger than the available KV cache memory (2.13 GiB).",
        *("full", True, 2938.9),
    ),
    "vLLM counts tokens": Labelled(
        "ValueError: The model's max seq len (32768) is larger than the maximum number of tokens that can"
        " be stored in KV cache (17056). Try increasing `gpu_memory_utilization` or decreasing"
        " `max_model_len` when initializing the engine.",
        *("full", True),
    ),
    "SGLang while it captures graphs": Labelled(
        "[2026-01-01 10:00:00 TP0] Load weight end. elapsed=9.00 s, type=X, dtype=torch.bfloat16, avail"
        " mem=61.20 GB, mem usage=16.10 GB.\n[2026-01-01 10:00:02 TP0] KV Cache is allocated. #tokens:"
        " 400000, K size: 24.40 GB, V size: 24.40 GB\n[2026-01-01 10:00:02 TP0] Memory pool end. avail"
        " mem=11.20 GB\n[2026-01-01 10:00:09 TP0] Exception: Capture cuda graph failed: CUDA out of memory."
        " Tried to allocate 1.00 GiB. GPU 0 has a total capacity of 79.10 GiB of which 600.00 MiB is free."
        " Including non-PyTorch memory, this process has 78.51 GiB memory in use. Of the allocated memory"
        " 76.20 GiB is allocated by PyTorch, with 90.00 MiB allocated in private pools (e.g., CUDA Graphs),"
        " and 130.00 MiB is reserved by PyTorch but unallocated.",
        *("full", True, 204),
    ),
    "llama.cpp where a comma ends the whole numbers": Labelled(
        "llama_model_load_from_file_impl: using device CUDA0 (NVIDIA T4) - 1500 MiB free\n"
        "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 1900,00 MiB on device 0: cudaMalloc failed:"
        " out of memory\n",
        *("full", True, 399.5),
    ),
    "llama.cpp on its second card": Labelled(
        "0.01 I llama_model_load_from_file_impl: using device CUDA0 (A) - 24000 MiB free\n"
        "0.02 I llama_model_load_from_file_impl: using device CUDA1 (B) - 15800 MiB free\n"
        "0.03 I load_tensors:        CUDA0 model buffer size = 20100.10 MiB\n"
        "0.04 I load_tensors:        CUDA1 model buffer size =  9100.50 MiB\n"
        "0.05 E ggml_backend_cuda_buffer_type_alloc_buffer: allocating 5100.00 MiB on device 1: cudaMalloc"
        " failed: out of memory\n0.06 E ggml_gallocr_reserve_n_impl: failed to allocate CUDA1 buffer of"
        " size 5347737600\n",
        *("unknown", False),
    ),
    "CuPy at its limit": Labelled(
        "cupy.cuda.memory.OutOfMemoryError: Out of memory allocating 3,221,225,472 bytes (allocated so"
        " far: 9,663,676,416 bytes, limit set to: 2,147,483,648 bytes).",
        *("full", True, 1024, True),
    ),
    "RMM at the end of its pool": Labelled(
        "MemoryError: std::bad_alloc: out_of_memory: RMM failure at:/include/rmm/mr/pool_memory_resource"
        ".hpp:277: Maximum pool size exceeded (failed to allocate 2.000000 GiB): Not enough room to grow,"
        " current/max/try size = 3.000000 GiB, 4.000000 GiB, 1.000000 GiB",
        *("short", False, 1024),
    ),
    "RMM, refused by the driver": Labelled(
        "MemoryError: std::bad_alloc: out_of_memory: CUDA error (failed to allocate 4294967296 bytes) at:"
        " /include/rmm/mr/cuda_memory_resource.hpp:62: cudaErrorMemoryAllocation out of memory",
        *("unknown", False),
    ),
}


@pytest.mark.parametrize("name", TEXTS)
def test_what_a_text_proves(name: str) -> None:
    labelled = TEXTS[name]
    error = _parsed(labelled.text)
    found = verdict(error)
    assert (found.kind, found.certain) == (labelled.kind, labelled.certain)
    assert found.limited == labelled.limited
    if labelled.missing is not None:
        assert found.missing is not None
        assert found.missing.middle / MIB == pytest.approx(labelled.missing, abs=0.6)
        assert found.missing.low <= labelled.missing * MIB + MIB / 2
        assert found.missing.high >= labelled.missing * MIB - MIB / 2


def _parsed(text: str) -> ErrorText:
    error = parse(text)
    assert error is not None
    return error


JAX = "jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate {} bytes."


@pytest.mark.parametrize(
    ("text", "card", "kind", "certain", "limit"),
    [
        (JAX.format(13 * GIB), 16 * GIB, "full", False, 12 * GIB),  # JAX takes 12 GiB
        (JAX.format(17 * GIB), 16 * GIB, "full", True, 12 * GIB),
        (JAX.format(11 * GIB), 16 * GIB, "unknown", False, 12 * GIB),
        (
            "export XLA_PYTHON_CLIENT_MEM_FRACTION=.90\n" + JAX.format(13 * GIB),
            *(16 * GIB, "unknown", False, int(14.4 * GIB)),
        ),
        (
            "XLA_PYTHON_CLIENT_ALLOCATOR=platform\n" + JAX.format(13 * GIB),
            *(16 * GIB, "unknown", False, None),
        ),
    ],
)
def test_jax_takes_a_share_of_the_card(
    text: str, card: int, kind: str, certain: bool, limit: int | None
) -> None:
    error = on_card(_parsed(text), card)
    found = verdict(error)
    assert (found.kind, found.certain) == (kind, certain)
    assert (None if error.allowed is None else error.allowed.low) == limit


def test_all_that_a_program_needs_and_the_smallest_card() -> None:
    """14.00 GiB need 18.7 GiB where 75 % are taken; the cards with 16 GiB have too little."""
    stats = "\nBufferAssignment stats:\n total allocation: 14.00GiB\n"
    error = _parsed(JAX.format(4 * GIB) + stats)
    (_, least, *_) = sentences(error, verdict(error), "")
    assert "at least 14.0 GiB" in least
    (card,) = find(least.rpartition(": ")[2].removesuffix("."))
    assert 14 / 0.75 * GIB <= card.usable < 24 * GIB
    found = verdict(on_card(error, 16 * GIB))
    assert (found.kind, found.certain, found.limited) == ("full", False, True)


def test_what_logs_of_servers_hold() -> None:
    error = _parsed(
        TEXTS["SGLang while it captures graphs"].text.partition("[2026-01-01 10:00:09")[0]
    )
    assert [(one.name, round(one.size.middle / GIB, 2)) for one in error.buffers] == [
        ("weights", 16.1),
        ("keys in the cache", 24.4),
        ("values in the cache", 24.4),
    ]
    assert [name for name, _ in error.parts] == ["free after the weights", "free after the cache"]


def test_a_summary_counts_failed_requests() -> None:
    text = (
        "| PyTorch CUDA memory summary, device ID 1 |\n| CUDA OOMs: 3 | cudaMalloc retries: 4 |\n"
        "| Allocated memory | 6.50 GiB | 7 GiB |\n| Allocated memory | 6656 MiB | 7168 MiB |\n"
        "| GPU reserved memory | 8192 MiB | 8192 MiB |\n"
    )
    error = _parsed(text)
    assert (error.message, error.failures) == (False, 3)
    (headline, *_) = sentences(error, verdict(error), "")
    assert "3 requests that failed" in headline


def _dump(segments: list[Segment], limit: int, requested: int) -> str:
    """What TensorFlow prints of such a state when a request fails."""
    lines = [
        f"W bfc_allocator.cc:485] Allocator (GPU_0_bfc) ran out of memory trying to allocate 1.0MiB"
        f" (rounded to {requested})requested by op last"
    ]
    for segment in segments:
        lines.append(f"I bfc_allocator.cc:1075] Next region of size {segment.size}")
        for block in segment.blocks:
            kind = "InUse" if block.requested else "Free "
            by = f" by op op{block.address} action_count 1 step 0" if block.requested else ""
            lines.append(
                f"I bfc_allocator.cc:1095] {kind} at {block.address:x} of size {block.size}{by} next 1"
            )
    used = sum(b.size for segment in segments for b in segment.blocks if b.requested)
    return "\n".join([*lines, "I cc] Stats:", f"Limit: {limit}", f"InUse: {used}", ""])


@pytest.mark.parametrize("seed", range(4))
def test_a_dump_is_taken_over_block_by_block(seed: int) -> None:
    """`bfc` fails in a random program; from the text of its state it continues as from itself."""
    rng, limit = random.Random(seed), 64 * MIB
    original = make("bfc", make_device(f"sim:{limit}"))
    live: list[int] = []
    requested = 0
    while not requested:
        size = rng.choice((rng.randrange(1, 4000), rng.randrange(1, 3 * MIB)))
        try:
            live.append(original.allocate(size))
        except OutOfMemory:
            requested = -(-size // 256) * 256
        if live and not requested and rng.random() < 0.4:
            original.deallocate(live.pop(rng.randrange(len(live))))
    error = _parsed(_dump(original.snapshot(), limit, requested))
    trace = state(error)
    assert trace is not None
    copy = make("bfc", make_device(f"sim:{limit}"))
    result = replay(trace, copy, keep=True)
    assert result.device.malloc_calls == 0
    assert result.stats.failures == 1
    copy.check()
    shape = [(s.address, s.size, [(b.address, b.size) for b in s.blocks]) for s in copy.snapshot()]
    assert shape == [
        (s.address, s.size, [(b.address, b.size) for b in s.blocks]) for s in original.snapshot()
    ]
    for size in (256, MIB // 2):
        places = []
        for allocator in (original, copy):
            try:
                places.append(allocator.allocate(size))
            except OutOfMemory:
                places.append(0)
        assert places[0] == places[1]
    found = explained(error)
    assert found is not None
    assert found.failure.largest_free < requested <= limit == found.failure.capacity


def test_segments_of_one_allocator_are_not_taken_over_by_another() -> None:
    error = _parsed(TEXTS["TensorFlow 1.8 on Windows, holes of 192 and 320 MiB"].text)
    trace = state(error)
    assert trace is not None
    for spec, takes in (("bfc", True), ("limit:bytes=1GiB,of=bfc", True), ("caching", False)):
        made = make(spec, make_device("sim:1GiB"))
        assert (replay(trace, made, keep=True).device.malloc_calls == 0) == takes


def test_what_would_serve_the_request_of_a_dump() -> None:
    """384 MiB fit where the 256 MiB between the holes are not, or in pieces of virtual memory."""
    found = explained(_parsed(TEXTS["TensorFlow 1.8 on Windows, holes of 192 and 320 MiB"].text))
    assert found is not None
    assert (found.kind, found.failure.largest_free) == ("fragmentation", 320 * MIB)
    assert [int(found.failure.workload.size[pin]) for pin in found.failure.pins] == [256 * MIB]
    assert "expandable" in [change.spec for change in found.saved_by]
