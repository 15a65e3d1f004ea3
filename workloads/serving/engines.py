# SPDX-License-Identifier: Apache-2.0
"""What vLLM and SGLang allocate: their defaults, their profiling pass, their captured graphs.

Read from the sources of vLLM 0.7.3, 0.11.2 and 0.21.0 (`arg_utils.py`, `gpu_worker.py`, sampler)
and of SGLang 0.5 (`server_args.py`, `model_runner.py`). The requests of vLLM's pass were compared
with recordings of all three versions on a null GPU; SGLang's were not.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from allocbench.workloads.events import Events
from allocbench.workloads.serving.architectures import Architecture

VLLM, VLLM_17, VLLM_11, VLLM_0 = "vllm", "vllm-0.17", "vllm-0.11", "vllm-v0"
SGLANG = "sglang"
ENGINES = (VLLM, VLLM_17, VLLM_11, VLLM_0, SGLANG)
"""vllm: from 0.21 on. vllm-0.17: from 0.17 on. vllm-0.11: V1 before that. vllm-v0: before V1."""
V1 = (VLLM, VLLM_17, VLLM_11)
SELECTING = (VLLM, VLLM_17)
"""Those that select tokens without a sort.

Qwen3-14B took 5.64 GiB of activations with vLLM 0.16.0 and 2.23 GiB with 0.17.0 in
llm-d-incubation/llm-d-planner, accuracy/accuracy_report.md.
"""
_MIB, _GIB = 1 << 20, 1 << 30
_LARGE_CARD = 70 * _GIB
_VLLM_SHARES = {VLLM: 0.92, VLLM_17: 0.9, VLLM_11: 0.9, VLLM_0: 0.9}
_SGLANG_ROWS = 256
"""SGLang itself stops at 2,048 sequences or more, by the size of its KV cache."""
_SGLANG_CARDS = (
    (20, 2048, 8, 8),
    (35, 2048, 24, 80),
    (60, 4096, 32, 160),
    (160, 8192, 256, 512),
    (1 << 20, 16384, 512, 512),
)
"""Below how many GiB: chunked_prefill_size, cuda_graph_max_bs up to 3 GPUs, and with more."""
_FLOAT, _INDEX = 4, 8  # bytes
_SPLITS = 32
"""vLLM's limit for captured passes with FlashAttention 3."""
_FEW_ROWS = 128
"""PyTorch sorts fewer rows than this in another way (`SortStable.cu`)."""


@dataclass(frozen=True)
class Batch:
    """The largest batch of an engine.

    tokens: of a pass (max_num_batched_tokens; SGLang: chunked_prefill_size). rows: sequences that
    get a token in a pass (max_num_seqs, max_running_requests). captured: numbers of sequences for
    which there is a graph.
    """

    tokens: int
    rows: int
    captured: tuple[int, ...]

    @property
    def sampled(self) -> int:
        """Rows of logits of the largest pass."""
        return min(self.rows, self.tokens)


def batch(
    engine: str,
    card_bytes: int,
    positions: int,
    *,
    ranks: int = 1,
    small_batches: bool = False,
    tokens: int | None = None,
    rows: int | None = None,
    captured: tuple[int, ...] | None = None,
) -> Batch:
    """The largest batch of a server with an engine's defaults where nothing is given.

    card_bytes: memory of the card. positions: the longest sequence (max_model_len). ranks: GPUs
    that share the model. small_batches: whether vLLM counts the card among those for small batches,
    as it does the A100.
    """
    largest_graph = 0
    if engine in V1:
        large = card_bytes >= _LARGE_CARD and not small_batches
        default = (8192, 1024) if large else (2048, 256)
    elif engine == VLLM_0:
        default = (max(positions, 2048) if positions <= 32768 else 2048), 256
    else:
        chunk, largest_graph = _sglang_limits(card_bytes, ranks)
        default = chunk, _SGLANG_ROWS
    most_tokens = tokens or default[0]
    most_rows = rows or min(default[1], most_tokens)
    if captured is None:
        captured = _captured(engine, most_tokens, most_rows, largest_graph)
    return Batch(most_tokens, most_rows, captured)


def share(engine: str, card_bytes: int, ranks: int, largest: Batch) -> float:
    """The share of the card that a server takes by default.

    SGLang leaves 512 MiB, 1.5 MiB for each token of a pass, 2 MiB for each sequence of the largest
    graph and 128 MiB for each GPU, on large cards at least 10 GiB.
    """
    if engine != SGLANG:
        return _VLLM_SHARES[engine]
    graph = max(largest.captured, default=0)
    left = 512 + 1.5 * max(largest.tokens, 2048) + 2 * graph + 128 * ranks
    if card_bytes > 60 * _GIB:
        left = max(left, 10 * 1024)
    return round(1 - left * _MIB / card_bytes, 3)


def _sglang_limits(card_bytes: int, ranks: int) -> tuple[int, int]:
    """Tokens of a pass, and sequences of the largest graph."""
    _, tokens, few, many = next(row for row in _SGLANG_CARDS if card_bytes < row[0] * _GIB)
    return tokens, many if ranks >= 4 else few


def _captured(engine: str, tokens: int, rows: int, largest_graph: int) -> tuple[int, ...]:
    """The numbers of sequences for which an engine captures a graph by default."""
    if engine in V1:
        most = min(2 * rows, 512, tokens)
        sizes = [1, 2, 4, *range(8, 256, 8), *range(256, 513, 16)]
    elif engine == VLLM_0:
        most = min(rows, 256)
        sizes = [1, 2, 4, *range(8, 257, 8)]
    else:
        most = largest_graph
        sizes = [1, 2, 4, 8, 12, *range(16, 257, 8), *range(272, 513, 16)]
    return tuple(size for size in sizes if size <= most)


def expert_workspaces(model: Architecture, tokens: int, engine: str) -> list[int]:
    """Bytes of what experts compute in, which vLLM keeps for all passes; none before 0.17.

    As `workspace_shapes` of vLLM's `TritonExperts`, for passes of so many tokens.
    """
    shapes = model.model
    if shapes.experts == 1 or engine not in SELECTING:
        return []
    routed = tokens * shapes.experts_per_token * shapes.dtype_bytes
    return [routed * max(width * shapes.ffn_rows, shapes.hidden) for width in (1, 2)]


def write_pass(events: Events, model: Architecture, tokens: int, engine: str) -> int:
    """Write a forward pass through one layer; returns the block with the final hidden states.

    The largest moment is that of the feed-forward network: the gate and up projections and their
    product are alive, and three tensors of the hidden size. `expert_workspaces` are not written.
    """
    shapes = model.model
    feature = tokens * shapes.dtype_bytes
    residual = events.alloc(feature * shapes.hidden, "embedding")
    normed = events.alloc(feature * shapes.hidden, "norm")
    qkv = events.alloc(feature * (shapes.query + shapes.key_value), "qkv")
    events.free(normed)
    attended = events.alloc(feature * shapes.query, "attention")
    projected = events.alloc(feature * shapes.hidden, "o_proj")
    events.free(attended)
    events.free(qkv)
    normed = events.alloc(feature * shapes.hidden, "norm")
    held = [normed, projected, residual]
    if not expert_workspaces(model, tokens, engine):
        routed = feature * shapes.experts_per_token
        gate_up = events.alloc(2 * routed * shapes.ffn_rows, "gate_up")
        held.insert(0, events.alloc(routed * shapes.ffn_rows, "silu_mul"))
        events.free(gate_up)
        if shapes.experts > 1:
            experts = events.alloc(routed * shapes.hidden, "experts")
            events.free(held[0])
            held[0] = experts
    down = events.alloc(feature * shapes.hidden, "down")
    events.free_each(held)
    return down


def write_sampling(
    events: Events, model: Architecture, rows: int, engine: str, multiprocessors: int
) -> None:
    """Write how the next tokens of `rows` sequences are sampled with top-k and top-p.

    multiprocessors: of the card. From 0.17 on, vLLM selects with a kernel that has a float32 buffer
    of the vocabulary for each of them. Before, PyTorch sorts all logits: see `_write_sort`.
    """
    shapes = model.model
    logits = rows * model.vocabulary
    held = [events.alloc(rows * shapes.hidden * shapes.dtype_bytes, "last_tokens")]
    if engine in V1:  # its profiling replaces the hidden states by random ones
        held.append(events.alloc(rows * shapes.hidden * shapes.dtype_bytes, "random"))
    held += [
        events.alloc(logits * shapes.dtype_bytes, "logits"),
        events.alloc(logits * _FLOAT, "float_logits"),
    ]
    if engine in SELECTING and multiprocessors:
        held.append(events.alloc(multiprocessors * model.vocabulary * _FLOAT, "top_k_top_p"))
    if engine in (VLLM_11, VLLM_0):
        held += _write_sort(events, logits, rows)
    held.append(events.alloc(logits * _FLOAT, "softmax"))
    if engine in SELECTING:
        held.append(events.alloc(logits * _FLOAT, "exponential"))
    events.free_each(held)


def _write_sort(events: Events, logits: int, rows: int) -> list[int]:
    """Write a sort of all logits by PyTorch; returns the blocks of its result.

    The values (4 bytes) and indices (8 bytes) of the result stay; while it sorts, there are 20 more
    bytes for each logit: the unsorted indices and a copy of both. Up to 127 rows are sorted in two
    stages, with 32 more bytes.
    """
    result = [events.alloc(logits * _FLOAT, "sort"), events.alloc(logits * _INDEX, "sort")]
    scratch = [events.alloc(logits * _INDEX, "sort")]
    if 1 < rows < _FEW_ROWS:
        scratch.append(events.alloc(logits * _INDEX, "sort"))
        scratch.append(events.alloc(logits * 2 * _INDEX, "sort"))
    else:
        scratch.append(events.alloc(logits * (_FLOAT + _INDEX), "sort"))
    events.free_each(scratch)
    return result


def write_graphs(
    events: Events,
    model: Architecture,
    sizes: Sequence[int],
    engine: str,
    workspace: int,
    splits: bool,
) -> None:
    """Write the requests in the private pool of the captured graphs, the largest graph first.

    workspace: bytes of cuBLAS's. splits: whether whole passes are captured as well with
    FlashAttention 3: their attention is divided among 32 blocks of keys, and each has a float32
    output and a float32 sum for each head.
    """
    shapes = model.model
    heads = shapes.query // shapes.head_dim
    kept = events.alloc(workspace, "cublas workspace")
    for size in sorted(sizes, reverse=True):
        events.free(write_pass(events, model, size, engine))
    for size in sorted(sizes, reverse=True) if splits else ():
        outputs = _SPLITS * heads * size * _FLOAT
        split = [events.alloc(outputs, "splits"), events.alloc(outputs * shapes.head_dim, "splits")]
        events.free(write_pass(events, model, size, engine))
        events.free_each(split)
    events.free(kept)


def kv_blocks(model: Architecture, block_tokens: int, room: int) -> int:
    """How many blocks of the KV cache fit in a number of bytes; SGLang's blocks are pages."""
    layer = block_tokens * model.token_bytes
    return max(0, room) // (layer * model.model.layers)


def kv_tensors(engine: str, model: Architecture, block_tokens: int, blocks: int) -> list[int]:
    """Bytes of each tensor of the KV cache: one for each layer; SGLang: keys and values apart."""
    layers, layer = model.model.layers, block_tokens * model.token_bytes
    if engine == SGLANG:  # and one page for the tokens that are not stored
        return [(blocks + 1) * layer // 2] * (2 * layers)
    return [blocks * layer] * layers
