# SPDX-License-Identifier: Apache-2.0
"""The allocations of a language-model server with continuous batching.

Scheduling follows vLLM: running sequences come first, and the rest of the token budget goes to
prompts, in chunks, first come, first served. If there is no room for the keys and values of a
running sequence, the sequence that arrived last is preempted, and no sequence is admitted in that
step. A preempted sequence is either recomputed, or swapped out and back in.

Granularity: a recorded step stands for up to `decode_tokens` passes, in each of which a running
sequence gets a token. The activations of the first pass are recorded, for `activation_layers` of
the layers. (vLLM called this multi-step scheduling.)

Time is virtual. A pass takes the longer of two times: reading the weights and the necessary keys
and values at `bandwidth`, and its arithmetic, two operations per weight and token, at `flops`; both
at `efficiency`. A swap transfers its bytes at `link`. The events of a step have the time at which
it begins.
"""

from collections import deque
from dataclasses import dataclass

from allocbench.workloads.events import Events
from allocbench.workloads.generator import option, options_of
from allocbench.workloads.serving.caches import Cache, Contiguous, Held, Paged
from allocbench.workloads.serving.models import Model
from allocbench.workloads.serving.requests import PREFIX_TOKENS, Requests
from allocbench.workloads.vocabulary import Provenance, TraceError

_LOGIT_BYTES = 4


def run_pass(events: Events, model: Model, tokens: int, rows: int, layers: int) -> None:
    """Write the activations of a pass over `tokens` tokens with `rows` rows of logits.

    An eager pass over T tokens keeps the hidden state (T, hidden) from layer to layer, allocates
    and frees the tensors of each layer in turn, and ends with float32 logits for the sequences that
    get a token. All layers allocate the same sizes, so a few can stand for all of them.

    layers: number of layers to write.
    """
    per_feature = tokens * model.dtype_bytes
    routed = per_feature * model.experts_per_token

    def take(features: int, label: str) -> int:
        return events.alloc(per_feature * features, label)

    hidden = take(model.hidden, "embedding")
    for _ in range(layers):
        normed = take(model.hidden, "norm")
        qkv = take(model.query + model.key_value, "qkv")
        events.free(normed)
        attended = take(model.query, "attention")
        events.free(qkv)
        projected = take(model.hidden, "o_proj")
        events.free(attended)
        normed = take(model.hidden, "norm")  # of the sum with the hidden state
        events.free(hidden)
        hidden = projected
        gate_up = events.alloc(routed * 2 * model.ffn_rows, "gate_up")
        activated = events.alloc(routed * model.ffn_rows, "silu_mul")
        events.free(gate_up)
        down = take(model.hidden, "down")
        events.free_each((activated, normed, hidden))
        hidden = down
    normed = take(model.hidden, "norm")
    events.free(hidden)
    if rows:
        chosen = events.alloc(rows * model.hidden * model.dtype_bytes, "last_tokens")
        logits = events.alloc(rows * model.vocabulary * _LOGIT_BYTES, "logits")
        events.free(chosen)
        shares = events.alloc(rows * model.vocabulary * _LOGIT_BYTES, "softmax")
        events.free(logits)
        events.free(shares)
    events.free(normed)


GIB = 1 << 30


@dataclass(frozen=True)
class ServerSettings:
    """How a server works."""

    kv: str = option(
        "choice",
        "contiguous",
        "keys and values of a sequence: one block per group of layers, or pages",
        choices=("contiguous", "paged"),
    )
    growth: str = option(
        "choice",
        "concat",
        "growth of a full contiguous block: by `chunk` tokens, or to twice its size",
        choices=("concat", "double"),
    )
    chunk: int = option("count", 32, "growth of a contiguous block in tokens", most=10**6)
    layer_group: int = option(
        "count",
        8,
        "layers per contiguous block; smaller groups give a finer and longer trace",
        most=10**4,
    )
    page: int = option(
        "count",
        16,
        f"tokens per page; must divide {PREFIX_TOKENS} (16 for logs of Qwen-Bailian)",
        most=PREFIX_TOKENS,
    )
    token_budget: int = option("count", 8192, "maximum number of tokens per step", most=10**6)
    max_sequences: int = option("count", 256, "maximum number of running sequences", most=10**5)
    memory: int = option("bytes", 80 * GIB, "memory of the GPU in bytes")
    utilization: float = option(
        "number", 0.9, "fraction of the memory that the server uses", least=0.01, most=1
    )
    kv_budget: int = option(
        "bytes",
        0,
        "bytes of keys and values; 0: all that weights and the activations of a full step leave",
        least=0,
    )
    preemption: str = option(
        "choice",
        "recompute",
        "what happens to the keys and values of a preempted sequence",
        choices=("recompute", "swap"),
    )
    decode_tokens: int = option("count", 8, "tokens generated per sequence and step", most=1024)
    activation_layers: int = option(
        "count", 1, "number of layers whose activations are recorded", least=0, most=10**4
    )
    bandwidth: float = option(
        "number", 3.35e12, "memory bandwidth in bytes per second; default: H100"
    )
    flops: float = option("number", 989e12, "16-bit operations per second; default: H100")
    efficiency: float = option(
        "number", 0.5, "fraction of both that is achieved", least=0.001, most=1
    )
    link: float = option("number", 50e9, "bytes per second between GPU and host")
    sleep: float = option(
        "number",
        0.0,
        "seconds without requests after which the server sleeps: it returns all memory until the"
        " next request; 0: never",
        least=0,
    )


OPTIONS = options_of(ServerSettings)


@dataclass(slots=True, eq=False)
class _Sequence:
    """A running request: `target` tokens of its text are known, `computed` of them are cached."""

    target: int
    remaining: int  # tokens of the answer
    held: Held
    computed: int = 0


@dataclass
class Counts:
    """Outcomes of the requests."""

    requests: int = 0
    skipped: int = 0
    rejected: int = 0
    preemptions: int = 0
    prefix_tokens: int = 0
    seconds: float = 0.0


def serve(events: Events, model: Model, settings: ServerSettings, requests: Requests) -> Counts:
    """Write the events of a server that answers all requests.

    Marks: init, step, preemption, sleep, wake, teardown. A request that could never fit in the
    budget is rejected. Raises TraceError if the settings contradict each other, if the model leaves
    no room for keys and values, or if that room is too small for every request.
    """
    return _Server(events, model, settings, requests.tokens_per_id).run(requests)


class _Server:
    def __init__(
        self, events: Events, model: Model, settings: ServerSettings, tokens_per_id: int
    ) -> None:
        if settings.token_budget < settings.max_sequences:
            raise TraceError(
                f"token_budget={settings.token_budget} is less than"
                f" max_sequences={settings.max_sequences}, each of which needs a token"
            )
        if tokens_per_id % settings.page:
            raise TraceError(
                f"page={settings.page} does not divide {tokens_per_id}, the number of tokens of"
                " each prefix id"
            )
        self.events, self.model, self.settings = events, model, settings
        self.budget = settings.kv_budget or self._left_by_the_model()
        self.cache: Cache = (
            Paged(events, model, self.budget, settings.page, tokens_per_id)
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
        self._load()
        arriving = deque(self._sequences(requests))
        counts.requests, counts.skipped = len(requests), requests.skipped
        if not arriving:
            room = f"{self.budget:,} bytes of keys and values"
            raise TraceError(f"none of the {len(requests):,} requests fits in {room}")
        events.expect(self._least_allocs([sequence for _, sequence in arriving]))
        while arriving or self.waiting or self.swapped or self.running:
            if not (self.waiting or self.swapped or self.running):
                self._wait(arriving[0][0])
            while arriving and arriving[0][0] <= self.now:
                self.waiting.append(arriving.popleft()[1])
            events.at(round(self.now * 1e9))
            events.mark("step")
            self.now += self._step()
        events.at(round(self.now * 1e9))
        events.mark("teardown")
        self._unload()
        counts.seconds = self.now
        return counts

    def _load(self) -> None:
        self.weights = [
            self.events.alloc(size, f"weights.{name}") for name, size in self.model.weights()
        ]

    def _unload(self) -> None:
        self.cache.clear()
        self.events.free_each(self.weights)

    def _wait(self, until: float) -> None:
        """Nothing is running until the next request."""
        asleep = self.now + self.settings.sleep
        if self.now < asleep < until:
            self.events.at(round(asleep * 1e9))
            self.events.mark("sleep")
            self._unload()
            self.events.trim()
            self.events.at(round(until * 1e9))
            self.events.mark("wake")
            self._load()
        self.now = max(self.now, until)

    def _least_allocs(self, sequences: list[_Sequence]) -> int:
        """A lower bound of the allocs that answering these sequences takes."""
        settings = self.settings
        grown = steps = longest = 0
        for sequence in sequences:
            tokens = sequence.target + sequence.remaining - 1  # the last one is never cached
            grown += self.cache.least_allocs(
                sequence.held, sequence.target, tokens, settings.decode_tokens
            )
            own_steps = -(-sequence.remaining // settings.decode_tokens)
            steps += own_steps
            longest = max(longest, own_steps)
        scratch = Events()
        run_pass(scratch, self.model, 1, 1, settings.activation_layers)
        return grown + scratch.allocs * max(longest, -(-steps // settings.max_sequences))

    def _left_by_the_model(self) -> int:
        """Bytes for keys and values: what the weights and the activations of a full step leave."""
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
        """Arrival and sequence of each request that can be served."""
        sequences = []
        prefixes = requests.prefix or [()] * len(requests)
        columns = (requests.arrival.tolist(), requests.prompt.tolist(), requests.output.tolist())
        for arrival, prompt, output, prefix in zip(*columns, prefixes, strict=True):
            if self.cache.most(prompt + output) > self.budget:
                self.counts.rejected += 1
                continue
            held = Held(prefix=prefix[: prompt // requests.tokens_per_id])
            sequences.append((arrival, _Sequence(prompt, output, held)))
        return sequences

    def _step(self) -> float:
        """Run one step; returns its duration in seconds."""
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
        if tokens:  # otherwise sequences were only swapped in, for the next step
            run_pass(self.events, self.model, tokens, rows, settings.activation_layers)
        seconds = self._pass_seconds(tokens, context) if tokens else 0.0
        passes = 1
        for sequence in decoding:
            new_tokens = min(settings.decode_tokens, sequence.remaining)
            passes = max(passes, new_tokens)
            sequence.computed += new_tokens
            sequence.target += new_tokens
            sequence.remaining -= new_tokens
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
        """Reserve room for the running sequences, first come first, preempting from the end.

        Returns the sequences that get tokens, and those whose text is computed, with the token
        count.
        """
        decoding, chunks = list[_Sequence](), list[tuple[_Sequence, int]]()
        room = self.settings.token_budget
        index = 0
        while index < len(self.running) and room:
            sequence = self.running[index]
            chunk = min(sequence.target - sequence.computed, room)
            new_tokens = 0 if chunk else min(self.settings.decode_tokens, sequence.remaining)
            while not self._reserve(sequence, chunk + new_tokens):
                last = self.running[-1]
                self._preempt(last)
                if last is sequence:
                    return decoding, chunks
            if chunk:
                chunks.append((sequence, chunk))
            else:
                decoding.append(sequence)
            room -= chunk or 1
            index += 1
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
        """Swap in as many sequences as fit; returns the bytes moved, counted both ways."""
        before = self.cache.used
        while self.swapped and len(self.running) < self.settings.max_sequences:
            sequence = self.swapped[0]
            if not self.cache.reserve(sequence.held, sequence.computed, sequence.target):
                break
            self.running.append(self.swapped.popleft())
        return 2 * (self.cache.used - before)

    def _admit(self, room: int) -> list[tuple[_Sequence, int]]:
        """Admit waiting sequences while there is room; returns them with the tokens to compute."""
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
        """Seconds of a pass over `tokens` tokens with `context` tokens in the cache."""
        read, multiplications = self.model.touched(tokens)
        cached = context * self.model.layers * self.model.token_bytes
        settings = self.settings
        longest = max((read + cached) / settings.bandwidth, 2 * multiplications / settings.flops)
        return longest / settings.efficiency
