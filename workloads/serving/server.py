# SPDX-License-Identifier: Apache-2.0
"""A language-model server with continuous batching, as what it asks of an allocator.

Scheduling follows vLLM: running sequences come first; what is left of the token budget goes to
prompts, in chunks, first come, first served; when a running sequence finds no room for its keys and
values, the one that came last is preempted, and nothing is admitted in that step. A preempted
sequence is computed again, or swapped out and in.

Granularity: a recorded step stands for up to `decode_tokens` passes, in each of which a running
sequence gets a token; the activations of the first pass are recorded, for `activation_layers` of
the layers. (vLLM called this multi-step scheduling.)

Time is virtual. A pass takes the longer of two times: reading the weights and the keys and values
it needs at `bandwidth`, and its arithmetic, two operations for each weight and token, at `flops`;
both at `efficiency`. A swap takes its bytes at `link`. The events of a step have the time at which
it begins.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from allocbench.workloads.events import Events
from allocbench.workloads.generator import Option
from allocbench.workloads.serving.activations import run_pass
from allocbench.workloads.serving.caches import Cache, Contiguous, Held, Paged
from allocbench.workloads.serving.models import Model
from allocbench.workloads.serving.requests import PREFIX_TOKENS, Requests
from allocbench.workloads.vocabulary import Provenance, TraceError

GIB = 1 << 30

OPTIONS = (
    Option(
        "kv",
        "choice",
        "contiguous",
        "keys and values of a sequence: one block for each group of layers, or pages",
        choices=("contiguous", "paged"),
    ),
    Option(
        "growth",
        "choice",
        "concat",
        "a full contiguous block grows by `chunk` tokens, or to twice its size",
        choices=("concat", "double"),
    ),
    Option("chunk", "count", 32, "tokens by which a contiguous block grows", most=10**6),
    Option(
        "layer_group",
        "count",
        8,
        "layers that share a contiguous block; fewer make a finer and longer trace",
        most=10**4,
    ),
    Option("page", "count", 16, f"tokens of a page; divides {PREFIX_TOKENS}", most=PREFIX_TOKENS),
    Option("token_budget", "count", 8192, "tokens that a step may process", most=10**6),
    Option("max_sequences", "count", 256, "sequences that run at a time", most=10**5),
    Option("memory", "bytes", 80 * GIB, "bytes of the card that the server is set up for"),
    Option("utilization", "number", 0.9, "share of it that the server uses", least=0.01, most=1),
    Option(
        "kv_budget",
        "bytes",
        0,
        "bytes of keys and values; 0: what weights and the activations of a full step leave",
        least=0,
    ),
    Option(
        "preemption",
        "choice",
        "recompute",
        "what becomes of the keys and values of a preempted sequence",
        choices=("recompute", "swap"),
    ),
    Option("decode_tokens", "count", 8, "tokens that a sequence gets in a step", most=1024),
    Option("activation_layers", "count", 1, "layers whose activations are recorded", 0, most=10**4),
    Option("bandwidth", "number", 3.35e12, "bytes a second of the card's memory: an H100's"),
    Option("flops", "number", 989e12, "operations a second in 16 bits: an H100's"),
    Option("efficiency", "number", 0.5, "share of both that is reached", least=0.001, most=1),
    Option("link", "number", 50e9, "bytes a second to the host and back"),
)


@dataclass(frozen=True)
class Settings:
    """The values of OPTIONS."""

    kv: str
    growth: str
    chunk: int
    layer_group: int
    page: int
    token_budget: int
    max_sequences: int
    memory: int
    utilization: float
    kv_budget: int
    preemption: str
    decode_tokens: int
    activation_layers: int
    bandwidth: float
    flops: float
    efficiency: float
    link: float


@dataclass(slots=True, eq=False)
class _Sequence:
    """A request being served: `target` tokens of its text are known, `computed` are cached."""

    target: int
    remaining: int  # of the answer
    held: Held
    computed: int = 0


@dataclass
class Counts:
    """What became of the requests."""

    requests: int = 0
    skipped: int = 0
    rejected: int = 0
    preemptions: int = 0
    prefix_tokens: int = 0
    seconds: float = 0.0


def serve(events: Events, model: Model, settings: Settings, requests: Requests) -> Counts:
    """Write the events of a server that answers all requests.

    Marks: init, step, preemption, teardown. A request that could never fit in the budget is
    rejected. Raises TraceError when the settings contradict each other, the model leaves no room
    for keys and values, or that room is too small for every request.
    """
    return _Server(events, model, settings).run(requests)


class _Server:
    def __init__(self, events: Events, model: Model, settings: Settings) -> None:
        if settings.token_budget < settings.max_sequences:
            raise TraceError(
                f"token_budget={settings.token_budget} is less than"
                f" max_sequences={settings.max_sequences}, of which each takes a token"
            )
        if PREFIX_TOKENS % settings.page:
            raise TraceError(f"page={settings.page} does not divide {PREFIX_TOKENS}")
        self.events, self.model, self.settings = events, model, settings
        self.budget = settings.kv_budget or self._left_by_the_model()
        self.cache: Cache = (
            Paged(events, model, self.budget, settings.page)
            if settings.kv == "paged"
            else Contiguous(
                events, model, self.budget, settings.growth, settings.chunk, settings.layer_group
            )
        )
        self.waiting: deque[_Sequence] = deque()
        self.swapped: deque[_Sequence] = deque()
        self.running: list[_Sequence] = []
        self.counts = Counts()
        self.now = 0.0  # seconds

    def run(self, requests: Requests) -> Counts:
        """Answer all requests."""
        events, counts = self.events, self.counts
        events.mark("init")
        weights = [events.alloc(size, f"weights.{name}") for name, size in self.model.weights()]
        arriving = deque(self._sequences(requests))
        counts.requests, counts.skipped = len(requests), requests.skipped
        if not arriving:
            room = f"{self.budget:,} bytes of keys and values"
            raise TraceError(f"none of the {len(requests):,} requests fits in {room}")
        while arriving or self.waiting or self.swapped or self.running:
            if not (self.waiting or self.swapped or self.running):
                self.now = max(self.now, arriving[0][0])
            while arriving and arriving[0][0] <= self.now:
                self.waiting.append(arriving.popleft()[1])
            events.now_ns = round(self.now * 1e9)
            events.mark("step")
            self.now += self._step()
        events.now_ns = round(self.now * 1e9)
        events.mark("teardown")
        self.cache.clear()
        for block in weights:
            events.free(block)
        counts.seconds = self.now
        return counts

    def _left_by_the_model(self) -> int:
        """Bytes that the weights and the activations of a full step leave to keys and values."""
        scratch = Events()
        settings = self.settings
        run_pass(scratch, self.model, settings.token_budget, settings.max_sequences, 1)
        activations = scratch.trace(Provenance()).max_load
        usable = int(settings.utilization * settings.memory)
        left = usable - self.model.weight_bytes - activations
        if left <= 0:
            raise TraceError(
                f"no room for keys and values: weights of {self.model.weight_bytes / GIB:.1f} GiB"
                f" and activations of {activations / GIB:.1f} GiB in {usable / GIB:.1f} GiB"
                f" ({settings.utilization:g} of memory={settings.memory / GIB:g}GiB)"
            )
        return left

    def _sequences(self, requests: Requests) -> list[tuple[float, _Sequence]]:
        """Arrival and sequence of the requests that can be served."""
        found = []
        prefixes = requests.prefix or [()] * len(requests)
        columns = (requests.arrival.tolist(), requests.prompt.tolist(), requests.output.tolist())
        for arrival, prompt, output, prefix in zip(*columns, prefixes, strict=True):
            if self.cache.most(prompt + output) > self.budget:
                self.counts.rejected += 1
                continue
            held = Held(prefix=prefix[: prompt // PREFIX_TOKENS])
            found.append((arrival, _Sequence(prompt, output, held)))
        return found

    def _step(self) -> float:
        """One step; returns the seconds it takes."""
        settings = self.settings
        preempted = self.counts.preemptions
        decoding, chunks = self._schedule()
        swapped = 0
        if self.counts.preemptions == preempted:
            swapped = self._swap_in()
            room = settings.token_budget - len(decoding) - sum(chunk for _, chunk in chunks)
            chunks += self._admit(room)

        tokens = len(decoding) + sum(chunk for _, chunk in chunks)
        context = sum(sequence.computed for sequence in decoding)
        answered = sum(s.computed + chunk == s.target for s, chunk in chunks)
        rows = len(decoding) + answered
        if tokens:  # else sequences were swapped in, for the next step
            run_pass(self.events, self.model, tokens, rows, settings.activation_layers)
        seconds = self._pass_seconds(tokens, context) if tokens else 0.0
        passes = 1
        for sequence in decoding:
            made = min(settings.decode_tokens, sequence.remaining)
            passes = max(passes, made)
            sequence.computed += made
            sequence.target += made
            sequence.remaining -= made
        for sequence, chunk in chunks:
            sequence.computed += chunk
            sequence.remaining -= sequence.computed == sequence.target  # its next token
            self.cache.computed(sequence.held, sequence.computed)
        seconds += (passes - 1) * self._pass_seconds(len(decoding), context)
        for sequence in [s for s in self.running if not s.remaining]:
            self.running.remove(sequence)
            self.cache.release(sequence.held)
        return seconds + swapped / settings.link

    def _schedule(self) -> tuple[list[_Sequence], list[tuple[_Sequence, int]]]:
        """Room for the running sequences, first come first, preempting from the end.

        Returns those that get tokens, and those whose text is computed, with how much of it.
        """
        decoding, chunks = list[_Sequence](), list[tuple[_Sequence, int]]()
        room = self.settings.token_budget
        at = 0
        while at < len(self.running) and room:
            sequence = self.running[at]
            chunk = min(sequence.target - sequence.computed, room)
            made = 0 if chunk else min(self.settings.decode_tokens, sequence.remaining)
            while not self._reserve(sequence, chunk + made):
                last = self.running[-1]
                self._preempt(last)
                if last is sequence:
                    return decoding, chunks
            if chunk:
                chunks.append((sequence, chunk))
            else:
                decoding.append(sequence)
            room -= chunk or 1
            at += 1
        return decoding, chunks

    def _preempt(self, sequence: _Sequence) -> None:
        self.events.mark("preemption")
        self.counts.preemptions += 1
        self.running.remove(sequence)
        self.cache.release(sequence.held)
        if self.settings.preemption == "swap":
            self.swapped.append(sequence)
        else:
            sequence.computed = 0
            self.waiting.appendleft(sequence)

    def _swap_in(self) -> int:
        """Bring back what was swapped out, as far as it fits; returns the bytes moved, twice."""
        before = self.cache.used
        while self.swapped and len(self.running) < self.settings.max_sequences:
            sequence = self.swapped[0]
            if not self.cache.reserve(sequence.held, sequence.computed, sequence.target):
                break
            self.running.append(self.swapped.popleft())
        return 2 * (self.cache.used - before)

    def _admit(self, room: int) -> list[tuple[_Sequence, int]]:
        """Begin waiting sequences, as far as there is room; how much of their text is computed."""
        chunks = []
        while room and self.waiting and not self.swapped:
            if len(self.running) == self.settings.max_sequences:
                break
            sequence = self.waiting[0]
            sequence.computed = known = self.cache.begin(sequence.held, sequence.target)
            chunk = min(sequence.target - known, room)
            if not self._reserve(sequence, chunk):
                self.cache.release(sequence.held)
                sequence.computed = 0
                break
            self.counts.prefix_tokens += known
            self.running.append(self.waiting.popleft())
            chunks.append((sequence, chunk))
            room -= chunk
        return chunks

    def _reserve(self, sequence: _Sequence, more: int) -> bool:
        return self.cache.reserve(sequence.held, sequence.computed + more, sequence.target)

    def _pass_seconds(self, tokens: int, context: int) -> float:
        """Seconds of a pass over some tokens with so many others in the cache."""
        read, multiplications = self.model.touched(tokens)
        cached = context * self.model.layers * self.model.token_bytes
        settings = self.settings
        longest = max((read + cached) / settings.bandwidth, 2 * multiplications / settings.flops)
        return longest / settings.efficiency
