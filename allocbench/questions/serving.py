# SPDX-License-Identifier: Apache-2.0
"""What fills a card on which vLLM or SGLang serves a model, and how much is left for its KV cache.

The weights, the activations of the largest batch, the pool of the captured graphs and what the
allocator wastes are replays of the engine's requests through `caching`. What is outside of PyTorch
is estimated (`Outside`, and the constants here).
"""

import math
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from allocbench import allocators
from allocbench.base import units
from allocbench.base.cards import Card
from allocbench.errors import UsageError
from allocbench.questions.occupancy import Outside
from allocbench.workloads import Provenance
from allocbench.workloads.events import Events
from allocbench.workloads.serving import architectures, engines, model_configs
from allocbench.workloads.serving.architectures import Architecture
from allocbench.workloads.serving.engines import SELECTING, SGLANG, V1, VLLM, Batch
from allocbench.workloads.vocabulary import TraceError

REPLAYED, MODELLED, GIVEN = "replayed", "modelled", "given"
REST = "the rest"
_MIB, _GIB = 1 << 20, 1 << 30
_LATE, _LATE_NOW = 164 * _MIB, 256 * _MIB
"""Of the context and the libraries: what appears only while an engine profiles, now from 0.17 on.

vLLM printed "non_torch_memory takes 0.16GiB" with one GPU in vllm-project/vllm#12126, and vLLM
0.18.0 and 0.19.0 0.25 GiB in llm-d-incubation/llm-d-planner, accuracy/accuracy_report.md.
"""
_GRAPH_LAYER, _COMPILED_LAYER, _COMPILED_EXPERTS = 353_000, 183_000, 244_000
"""Bytes of the driver for one layer in one graph.

vLLM printed "Graph capturing finished in 14 secs, took 0.21 GiB" for 35 graphs of the 16 layers of
Llama-3.2-1B in vllm-project/vllm#11349; less 22 MiB for their pool. Since V1, compiled layers have
fewer kernels, and half of the graphs leave attention out. Those two are the medians of 26 logs of
vLLM 0.19.0 without experts and 2 with them, in llm-d-incubation/llm-d-planner at d3121e0,
accuracy/results/v0.19.0/logs; less the replayed pools.
"""
_WORKSPACE, _HOPPER_WORKSPACE = 8_519_680, 32 * _MIB
"""Bytes of cuBLAS's workspace in PyTorch (`CUDABlas.cpp`, `getChosenWorkspaceSize`)."""
_HOPPER = 90
_UNLIMITED = "sim:8TiB"
_ALLOCATOR = "caching"
_HUNDREDTHS = 100
_STAYS_ASLEEP = (
    "other processes",
    "context and libraries",
    "NCCL",
    "graphs: pool",
    "graphs: driver",
)
_SHRINKING = 4  # passes after the largest one, each of half the tokens


@dataclass(frozen=True)
class Asked:
    """A server.

    share: gpu_memory_utilization, a share of the card; SGLang: mem-fraction-static, a share of what
    is free when it starts. block_tokens: tokens of a block of the KV cache.
    """

    model: Architecture
    engine: str
    card: Card
    batch: Batch
    block_tokens: int
    share: float
    outside: Outside


@dataclass(frozen=True)
class Line:
    """A part of a card: its bytes, and how they are known.

    how: replayed, modelled, given, or the rest: what an engine's rule leaves.
    """

    name: str
    size: int
    how: str
    note: str = ""


@dataclass(frozen=True)
class Asleep:
    """The card while the engine sleeps (vLLM: --enable-sleep-mode, SGLang: --enable-memory-saver).

    stays: bytes that are used all the same; the rest of the lines is given back. host: bytes of the
    host that hold the weights, if the engine keeps them (vLLM: level 1; SGLang:
    --enable-weights-cpu-backup).
    """

    stays: int
    host: int


@dataclass(frozen=True)
class CardParts:
    """What fills the card. Bytes.

    lines: disjoint parts, with `left`, which can be negative, add up to the card. blocks: of the KV
    cache. largest_share: the largest share, in hundredths, with which everything fits.
    """

    asked: Asked
    lines: tuple[Line, ...]
    blocks: int
    left: int
    largest_share: float
    asleep: Asleep

    @property
    def tokens(self) -> int:
        """Tokens that fit into the KV cache."""
        return self.blocks * self.asked.block_tokens

    def share_for(self, tokens: int) -> float:
        """The smallest share, in hundredths, with which so many tokens fit into the KV cache."""
        asked = self.asked
        blocks = -(-tokens // asked.block_tokens)
        wanted = sum(kv_sizes(asked, blocks))
        graphs = self.size("graphs: pool") + self.size("graphs: driver")
        fixed = _fixed(asked, self.size("weights"), self.size("activations"), graphs)
        return math.ceil((wanted + fixed) / _base(asked) * _HUNDREDTHS) / _HUNDREDTHS

    def size(self, name: str) -> int:
        """Bytes of a line."""
        return next(line.size for line in self.lines if line.name == name)


def answer(asked: Asked) -> CardParts:
    """What fills the card, line by line.

    Raises TraceError if nothing is left for the KV cache.
    """
    lines, blocks = _filled(asked)
    return CardParts(
        asked, lines, blocks, _left(asked, lines), _largest_share(asked), _asleep(asked, lines)
    )


def longest_sequence(asked: Callable[[int], Asked], most: int) -> int:
    """The most tokens, up to a number, of a sequence for which the KV cache has room; 0 if none.

    asked: the server for sequences of so many tokens.
    """

    def room(tokens: int) -> int:
        server = asked(tokens)
        try:
            return _filled(server)[1] * server.block_tokens
        except TraceError:
            return 0

    # The room shrinks as sequences grow, but grows where vLLM begins to divide their prefill.
    most = min(most, room(most))
    if room(most) >= most:
        return most
    return bisect_left(range(1, most), True, key=lambda tokens: room(tokens) < tokens)


@dataclass(frozen=True)
class Server:
    """A server. None: what the engine or the model itself says.

    model: a listed one, or its config.json or the folder of this file. quantization, fp8_cache: how
    weights and the KV cache are stored. positions: tokens of the longest sequence. tokens, rows,
    captured: as in `engines.Batch`. The others are as in `Asked`.
    """

    model: str
    engine: str
    card: Card
    outside: Outside
    share: float | None = None
    quantization: str | None = None
    fp8_cache: bool = False
    block_tokens: int | None = None
    positions: int | None = None
    tokens: int | None = None
    rows: int | None = None
    captured: tuple[int, ...] | None = None

    def answer(self) -> tuple[CardParts, int]:
        """What fills its card, and the tokens of its longest sequence.

        Raises UsageError if the engine would refuse to start, and TraceError for a model that is
        not known.
        """
        architecture = self._architecture()
        longest = self.positions or architecture.positions
        if longest > architecture.positions:
            raise UsageError(
                f"--max-model-len {longest:,}: the model has {architecture.positions:,} positions"
            )
        found = answer(self._asked(architecture, longest))
        if self.engine != engines.SGLANG and found.tokens < longest:
            fits = longest_sequence(lambda most: self._asked(architecture, most), longest)
            raise UsageError(
                f"{self.engine} would refuse to start: its KV cache holds {found.tokens:,} tokens,"
                f" fewer than a sequence of {longest:,}; the largest --max-model-len that fits is"
                f" {fits:,}"
            )
        return found, longest

    def _architecture(self) -> Architecture:
        if self.model in architectures.LISTED or not Path(self.model).exists():
            whole = architectures.listed(self.model)
        else:
            whole = model_configs.read(Path(self.model), quantized=self.quantization is None)
        stored = architectures.Stored(
            tensor_parallel=self.outside.ranks,
            quantization=self.quantization,
            kv_bytes=1 if self.fp8_cache else None,
        )
        return architectures.divided(whole, stored)

    def _asked(self, architecture: Architecture, positions: int) -> Asked:
        card, ranks = self.card, self.outside.ranks
        batch = engines.batch(
            self.engine,
            card.usable,
            positions,
            ranks=ranks,
            small_batches="a100" in card.name.lower(),
            tokens=self.tokens,
            rows=self.rows,
            captured=self.captured,
        )
        share = self.share or engines.share(self.engine, card.usable, ranks, batch)
        blocks = self.block_tokens or (1 if self.engine == engines.SGLANG else 16)
        return Asked(architecture, self.engine, card, batch, blocks, share, self.outside)


def _filled(asked: Asked) -> tuple[tuple[Line, ...], int]:
    """The parts of the card, and the blocks of the KV cache; raises as `answer` does."""
    weights = _replayed(asked, _write_weights).peak_allocated
    activations = _replayed(asked, _write_profile).peak_allocated
    pool = _replayed(asked, _write_graphs).peak_reserved if asked.batch.captured else 0
    driver = _graph_layer(asked) * asked.model.model.layers * graphs(asked)
    base = _base(asked)
    room = int(base * asked.share) - _fixed(asked, weights, activations, pool + driver)
    blocks = engines.kv_blocks(asked.model, asked.block_tokens, max(0, room))
    if not blocks:
        raise TraceError(
            f"no room for the KV cache: {asked.share:g} of {base / _GIB:.2f} GiB is"
            f" {int(base * asked.share) / _GIB:.2f} GiB; the weights take {weights / _GIB:.2f} GiB,"
            f" the activations {activations / _GIB:.2f} GiB"
        )
    cache = sum(kv_sizes(asked, blocks))
    served = _replayed(asked, lambda events, asked: _write_server(events, asked, blocks))
    wasted = served.peak_reserved - weights - cache - activations
    parts = asked.outside.parts(asked.card)
    batch = f"{asked.batch.tokens:,} tokens, {asked.batch.sampled:,} rows of logits"
    lines = (
        Line("other processes", parts["other"], GIVEN),
        Line("context and libraries", parts["context"], _told(asked.outside.context)),
        Line(
            "NCCL",
            parts["nccl"],
            _told(asked.outside.nccl),
            units.count(asked.outside.ranks, "GPU"),
        ),
        Line("weights", weights, REPLAYED),
        Line("activations", activations, REPLAYED, batch),
        Line("KV cache", cache, REST, f"{blocks:,} blocks of {asked.block_tokens:,}"),
        Line("graphs: pool", pool, REPLAYED, units.count(len(asked.batch.captured), "size")),
        Line("graphs: driver", driver, MODELLED, units.count(graphs(asked), "graph")),
        Line("allocator's waste", wasted, REPLAYED),
    )
    return lines, blocks


def _asleep(asked: Asked, lines: Sequence[Line]) -> Asleep:
    """Weights and KV cache are in virtual memory, which is unmapped; cached memory is returned.

    The workspace of cuBLAS stays, and the pool of the graphs, which lies outside of that memory.
    """
    stays = sum(line.size for line in lines if line.name in _STAYS_ASLEEP)
    workspace = _replayed(asked, lambda events, asked: _alloc(events, [_workspace(asked)]))
    weights = _replayed(asked, _write_weights)
    return Asleep(stays + workspace.peak_reserved, weights.peak_reserved)


def _left(asked: Asked, lines: Sequence[Line]) -> int:
    return asked.card.usable - sum(line.size for line in lines)


def _largest_share(asked: Asked) -> float:
    """The largest share in hundredths with which everything fits; 0 if none does."""
    for hundredths in range(_HUNDREDTHS, 0, -1):
        tried = replace(asked, share=hundredths / _HUNDREDTHS)
        try:
            lines, _ = _filled(tried)
        except TraceError:  # nothing is left for the KV cache, and less would not help
            return 0.0
        if _left(tried, lines) >= 0:
            return tried.share
    return 0.0


def kv_sizes(asked: Asked, blocks: int) -> list[int]:
    """Bytes of the tensors of a KV cache with so many blocks."""
    return engines.kv_tensors(asked.engine, asked.model, asked.block_tokens, blocks)


def graphs(asked: Asked) -> int:
    """How many times the layers are captured: vLLM captures pieces, and whole passes as well."""
    return len(asked.batch.captured) * (2 if asked.engine in V1 else 1)


def _graph_layer(asked: Asked) -> int:
    if asked.engine not in V1:
        return _GRAPH_LAYER
    return _COMPILED_LAYER if asked.model.model.experts == 1 else _COMPILED_EXPERTS


def _base(asked: Asked) -> int:
    """Bytes that the share refers to: the card, or what is free before SGLang loads the weights."""
    if asked.engine != SGLANG:
        return asked.card.usable
    return asked.outside.free(asked.card) + _late(asked)


def _late(asked: Asked) -> int:
    late = _LATE_NOW if asked.engine in SELECTING else _LATE
    return min(late, asked.outside.parts(asked.card)["context"])


def _fixed(asked: Asked, weights: int, activations: int, graphs: int) -> int:
    """What an engine subtracts from its share before the rest becomes the KV cache; bytes."""
    if asked.engine == SGLANG:
        return weights
    nccl = asked.outside.parts(asked.card)["nccl"]
    counted = graphs if asked.engine == VLLM else 0
    return weights + activations + _late(asked) + nccl + counted


def _told(given: int | None) -> str:
    return MODELLED if given is None else GIVEN


def _workspace(asked: Asked) -> int:
    compute = asked.card.compute
    return _HOPPER_WORKSPACE if compute and compute.capability >= _HOPPER else _WORKSPACE


def _write_pass(events: Events, asked: Asked, tokens: int) -> None:
    hidden = engines.write_pass(events, asked.model, tokens, asked.engine)
    rows = min(asked.batch.sampled, tokens)
    compute = asked.card.compute
    multiprocessors = compute.multiprocessors if compute else 0
    engines.write_sampling(events, asked.model, rows, asked.engine, multiprocessors)
    events.free(hidden)


def _write_weights(events: Events, asked: Asked) -> None:
    _alloc(events, [size for _, size in asked.model.weights])


def _write_profile(events: Events, asked: Asked) -> None:
    events.alloc(_workspace(asked), "cublas workspace")
    _alloc(events, engines.expert_workspaces(asked.model, asked.batch.tokens, asked.engine))
    _write_pass(events, asked, asked.batch.tokens)


def _write_graphs(events: Events, asked: Asked) -> None:
    compute = asked.card.compute
    splits = asked.engine in V1 and compute is not None and compute.capability == _HOPPER
    engines.write_graphs(
        events, asked.model, asked.batch.captured, asked.engine, _workspace(asked), splits
    )


def _write_server(events: Events, asked: Asked, blocks: int) -> None:
    """Loading, profiling, the KV cache, and passes that get smaller and then large again."""
    _write_weights(events, asked)
    _write_profile(events, asked)
    events.trim()
    _alloc(events, kv_sizes(asked, blocks))
    tokens = [max(1, asked.batch.tokens >> n) for n in range(_SHRINKING + 1)]
    for count in (*tokens, asked.batch.tokens):
        _write_pass(events, asked, count)


def _alloc(events: Events, sizes: Sequence[int]) -> None:
    for size in sizes:
        events.alloc(size)


Write = Callable[[Events, Asked], None]


def _replayed(asked: Asked, write: Write) -> allocators.Stats:
    events = Events()
    write(events, asked)
    allocator = allocators.make(_ALLOCATOR, allocators.make_device(_UNLIMITED))
    return allocators.replay(events.trace(Provenance()), allocator).stats
