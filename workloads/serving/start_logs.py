# SPDX-License-Identifier: Apache-2.0
"""What vLLM and SGLang print when they start: their settings, and the memory that they measure."""

import re
from dataclasses import dataclass

from allocbench.workloads.vocabulary import TraceError

_GIB = 1 << 30
_VLLM = re.compile(r"nitializing a (?:V\d )?LLM engine \(v(\d+(?:\.\d+)*)")
_SGLANG = "server_args=ServerArgs("


@dataclass(frozen=True)
class ServerStart:
    """A start of a server. Bytes have the digits that it prints; None: it does not print them.

    engine: as it calls itself. version: its numbers; none for SGLang. model: as it was given.
    positions: tokens of the longest sequence. tensor_parallel: GPUs that share the model. share: of
    the card; tokens, rows: of the largest batch; None: the default. captured: batch sizes that have
    a graph. kv_dtype, quantization: as they were given. block_tokens: tokens of a block of the KV
    cache; None: the default. weights, activations, graphs, cache: bytes of one GPU. kv_tokens: for
    which the KV cache has room.
    """

    engine: str
    version: tuple[int, ...]
    model: str
    positions: int
    tensor_parallel: int
    share: float | None
    tokens: int | None
    rows: int | None
    captured: tuple[int, ...]
    kv_dtype: str
    quantization: str
    block_tokens: int | None
    weights: int | None
    activations: int | None
    graphs: int | None
    cache: int | None
    kv_tokens: int


def read(text: str) -> ServerStart:
    """What a server printed; raises TraceError if it is another, or did not get so far."""
    if _VLLM.search(text):
        return _vllm(text)
    if _SGLANG in text:
        return _sglang(text)
    raise TraceError("no line says that vLLM or SGLang starts")


def _vllm(text: str) -> ServerStart:
    lines = text.splitlines()
    number, config = next((found[1], line) for line in lines if (found := _VLLM.search(line)))
    given = next((line for line in lines if "non-default args:" in line), "")
    eager = "enforce_eager=True" in config
    batched = r"max_num_batched_tokens['\"]?[:=] ?(\d+)"
    blocks = _integer(given, r"'block_size': (\d+)")
    tokens = _integer(text, r"GPU KV cache size: ([\d,]+) tokens")
    if tokens is None:  # before V1
        counted = _integer(text, r"# (?:cuda|GPU) blocks: (\d+)")
        tokens = counted and counted * (blocks or 16)
    return ServerStart(
        engine="vLLM",
        version=tuple(map(int, number.split("."))),
        model=_found(config, r"\bmodel='([^']*)'") or "",
        positions=_integer(config, r"max_seq_len=(\d+)") or 1,
        tensor_parallel=_integer(config, r"tensor_parallel_size=(\d+)") or 1,
        share=_number(given, r"'gpu_memory_utilization': ([\d.]+)"),
        tokens=_integer(given, batched) or _integer(text, batched),
        rows=_integer(given, r"'max_num_seqs': (\d+)"),
        captured=() if eager else _sizes(config, r"cudagraph_capture_sizes['\"]: ?\[([^]]*)\]"),
        kv_dtype=_found(config, r"kv_cache_dtype=(\w+)") or "auto",
        quantization=_found(given, r"'quantization': '(\w+)'") or "",
        block_tokens=blocks,
        weights=_most(text, r"oading (?:model )?(?:weights )?took ([\d.]+) G"),
        activations=_most(text, r"([\d.]+) GiB for peak activation")
        or _most(text, r"activation peak memory takes ([\d.]+) ?GiB"),
        graphs=_most(text, r"Graph capturing finished in .*took (-?[\d.]+) GiB"),
        cache=_most(text, r"Available KV cache memory: ([\d.]+) GiB")
        or _most(text, r"reserved for KV Cache is ([\d.]+) ?GiB"),
        kv_tokens=_reached(tokens, "vLLM"),
    )


def _sglang(text: str) -> ServerStart:
    given = next(line for line in text.splitlines() if _SGLANG in line)
    line = next((line for line in text.splitlines() if "max_total_num_tokens=" in line), "")
    off = "disable_cuda_graph=True" in given
    kept = re.search(r"K size: ([\d.]+) GB, V size: ([\d.]+) GB|KV size: ([\d.]+) GB", text)
    return ServerStart(
        engine="SGLang",
        version=(),
        model=_found(given, r"model_path='([^']*)'") or "",
        positions=_integer(line, r"context_len=(\d+)") or 1,
        tensor_parallel=_integer(given, r"tp_size=(\d+)") or 1,
        share=_number(given, r"mem_fraction_static=([\d.]+)"),
        tokens=_integer(line, r"chunked_prefill_size=(\d+)"),
        rows=_integer(given, r"max_running_requests=(\d+)"),
        captured=() if off else _sizes(given, r"cuda_graph_bs=\[([^]]*)\]"),
        kv_dtype=_found(given, r"kv_cache_dtype='(\w+)'") or "auto",
        quantization=_found(given, r"quantization='(\w+)'") or "",
        block_tokens=_integer(given, r"page_size=(\d+)"),
        weights=_most(text, r"Load weight end\..*mem usage=([\d.]+) GB"),
        activations=None,
        graphs=_most(text, r"Capture cuda graph end\..*mem usage=(-?[\d.]+) GB"),
        cache=kept and sum(round(float(size) * _GIB) for size in kept.groups() if size),
        kv_tokens=_reached(_integer(line, r"max_total_num_tokens=(\d+)"), "SGLang"),
    )


def _reached(tokens: int | None, engine: str) -> int:
    if not tokens:
        raise TraceError(f"{engine} did not print how many tokens its KV cache holds")
    return tokens


def _found(text: str, pattern: str) -> str | None:
    found = re.search(pattern, text)
    return found and found[1]


def _integer(text: str, pattern: str) -> int | None:
    found = _found(text, pattern)
    return None if found is None else int(found.replace(",", ""))


def _number(text: str, pattern: str) -> float | None:
    found = _found(text, pattern)
    return None if found is None else float(found)


def _sizes(text: str, pattern: str) -> tuple[int, ...]:
    """Of the longest list: a part of the engine can have one of its own."""
    lists = [sorted(map(int, re.findall(r"\d+", found))) for found in re.findall(pattern, text)]
    longest: list[int] = max(lists, key=len, default=[])
    return tuple(longest)


def _most(text: str, pattern: str) -> int | None:
    """The largest of the GiB that the processes of a server print; bytes."""
    return max((round(float(size) * _GIB) for size in re.findall(pattern, text)), default=None)
