# SPDX-License-Identifier: Apache-2.0
"""Llama-3-8B serving requests that come and go, each with a KV cache that grows by one token.

Interesting for an allocator because nothing fits what was freed before. Each token makes the keys
and values of every request one entry longer in every layer, by concatenation, so blocks of a few
MiB are replaced by ones 2 KiB larger while the old ones still live: the classic way to fragment a
heap. Requests join when there is room and leave when they are answered, so holes have every length.
Prompts, processed in one pass, add bursts of large short-lived blocks to a steady stream of small
ones.
"""

import random
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.nn import functional

from benchmarks.workshop.models.llama import (
    LLAMA3_8B,
    TINY,
    DecoderShape,
    Llama,
    causal,
    choose,
    frozen,
)
from benchmarks.workshop.models.program import Mark, ModelProgram

SEED = 0


@dataclass(frozen=True)
class DecodeRequest:
    """A request; prompt and answer are lengths in tokens."""

    arrival: int  # the first step in which it can be served
    prompt: int
    answer: int  # after the first token, which comes from processing the prompt


@dataclass(frozen=True)
class Config:
    """The model, the maximum number of running requests, and the requests in order of arrival."""

    shape: DecoderShape
    slots: int
    requests: tuple[DecodeRequest, ...]


@dataclass
class Sequence:
    """A running request: its newest token (1, 1) and a cache of keys and values per layer."""

    remaining: int
    token: Tensor
    keys: list[Tensor] = field(default_factory=list)
    values: list[Tensor] = field(default_factory=list)

    @property
    def length(self) -> int:
        """Number of tokens in the cache."""
        return self.keys[0].shape[2]

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """Append a token's key and value to a layer's cache, then attend to all of it."""
        keys = self.keys[layer] = torch.cat((self.keys[layer], key), dim=2)
        values = self.values[layer] = torch.cat((self.values[layer], value), dim=2)
        return functional.scaled_dot_product_attention(query, keys, values, enable_gqa=True)


def draw_requests(
    count: int, longest_prompt: int, longest_answer: int
) -> tuple[DecodeRequest, ...]:
    """Draw requests, on average one per step, with lengths spread over a factor of ten."""
    draw = random.Random(SEED)
    arrival, requests = 0, []
    for _ in range(count):
        prompt = round(longest_prompt * 10 ** -draw.random())
        answer = draw.randint(2, longest_answer)
        requests.append(DecodeRequest(arrival, prompt, answer))
        arrival += draw.choice((0, 1, 2))
    return tuple(requests)


def prefill(model: Llama, request: DecodeRequest, device: str) -> Sequence:
    """Process a prompt of random tokens: fill the cache and choose the first token."""
    prompt = torch.randint(model.shape.vocabulary, (1, request.prompt), device=device)
    sequence = Sequence(remaining=request.answer, token=prompt)

    def attend(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        sequence.keys.append(key)
        sequence.values.append(value)
        return causal(query, key, value)

    rotation = model.rotation(torch.arange(request.prompt, device=device))
    x = model.tokens(prompt)
    for layer in model.layers:
        x = layer(x, rotation, attend)
    sequence.token = choose(model, x[:, -1:])
    return sequence


def decode(model: Llama, sequences: list[Sequence], device: str) -> None:
    """Generate a token for every sequence: one pass for all, with attention one by one."""
    positions = torch.tensor([[sequence.length] for sequence in sequences], device=device)
    rotation = model.rotation(positions)
    x = model.tokens(torch.cat([sequence.token for sequence in sequences]))
    for index, layer in enumerate(model.layers):

        def attend(query: Tensor, key: Tensor, value: Tensor, index: int = index) -> Tensor:
            split = (tensor.chunk(len(sequences)) for tensor in (query, key, value))
            rows = zip(sequences, *split, strict=True)
            return torch.cat([sequence.attend(index, *row) for sequence, *row in rows])

        x = layer(x, rotation, attend)
    for sequence, token in zip(sequences, choose(model, x), strict=True):
        sequence.token = token[None]
        sequence.remaining -= 1


def admitted(waiting: deque[DecodeRequest], step: int, room: int) -> Iterator[DecodeRequest]:
    """Take the requests that have arrived from the queue, while there is room."""
    while waiting and room and waiting[0].arrival <= step:
        yield waiting.popleft()
        room -= 1


def serve(config: Config, device: str, mark: Mark) -> None:
    """Answer all of `config.requests`; a step prefills new requests, then decodes one token."""
    mark("init")
    model = frozen(config.shape, device)
    waiting, sequences, step = deque(config.requests), list[Sequence](), 0
    while waiting or sequences:
        mark("step")
        for request in admitted(waiting, step, config.slots - len(sequences)):
            mark("prefill")
            sequences.append(prefill(model, request, device))
        if sequences:
            mark("decode")
            decode(model, sequences, device)
        sequences = [sequence for sequence in sequences if sequence.remaining]
        step += 1
    mark("teardown")


PROGRAM = ModelProgram(
    run=torch.no_grad()(serve),
    full=Config(
        shape=LLAMA3_8B,
        slots=4,
        requests=draw_requests(count=10, longest_prompt=8192, longest_answer=9),
    ),
    tiny=Config(
        shape=TINY,
        slots=3,
        requests=draw_requests(count=4, longest_prompt=40, longest_answer=4),
    ),
    model="Llama-3-8B shape, bfloat16, continuous batching of 10 requests, at most 4 at once,"
    " KV cache grown by concatenation",
    seed=SEED,
)

if __name__ == "__main__":
    PROGRAM.main()
