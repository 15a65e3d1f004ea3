# SPDX-License-Identifier: Apache-2.0
"""Llama-3.2-1B serving requests with KV caches in pages that are allocated one by one.

Interesting for an allocator because it takes the role of the cache's page table: blocks of exactly
512 KiB, hundreds at a time when a prompt is processed and then one per sixteen tokens, live as long
as their request, among the temporaries of every pass. Since all pages have the same size, a free
page fits any request; the risk is that temporaries are placed in the holes.
"""

from collections import deque
from dataclasses import dataclass

import torch
from torch import Tensor

from benchmarks.workshop.models.llama import TINY, DecoderShape, frozen
from benchmarks.workshop.models.llm_decode import SEED, DecodeRequest, admitted, draw_requests
from benchmarks.workshop.models.paged import PagedSequence, make_pages, write_next
from benchmarks.workshop.models.program import Mark, ModelProgram

LLAMA32_1B = DecoderShape(16, 2048, heads=32, kv_heads=8, hidden=8192, vocabulary=128256, tied=True)


@dataclass(frozen=True)
class Config:
    """The model, the maximum number of running requests, and the requests in order of arrival."""

    shape: DecoderShape
    slots: int
    requests: tuple[DecodeRequest, ...]


def serve(config: Config, device: str, mark: Mark) -> None:
    """Answer all of `config.requests`; a step prefills new requests, then decodes one token."""
    mark("init")
    model = frozen(config.shape, device)

    def write(sequences: list[PagedSequence[Tensor]], tokens: list[Tensor]) -> None:
        for sequence, new in zip(sequences, tokens, strict=True):
            for _ in range(sequence.lacks(len(new))):
                sequence.pages.append(make_pages(1, config.shape.layers, config.shape, device))
        pages = [page for sequence in sequences for page in sequence.pages]
        write_next(model, sequences, tokens, lambda layer: (pages, layer), [*range(len(pages))])

    waiting, sequences, step = deque(config.requests), list[PagedSequence[Tensor]](), 0
    while waiting or sequences:
        mark("step")
        for request in admitted(waiting, step, config.slots - len(sequences)):
            mark("prefill")
            prompt = torch.randint(config.shape.vocabulary, (request.prompt,), device=device)
            sequences.append(PagedSequence(request.prompt, request.answer))
            write(sequences[-1:], [prompt])
            del prompt
        if sequences:
            mark("decode")
            write(sequences, [s.token for s in sequences if s.token is not None])
        for sequence in sequences:
            sequence.answer -= 1
        sequences = [sequence for sequence in sequences if sequence.answer]
        step += 1
    mark("teardown")


PROGRAM = ModelProgram(
    run=torch.no_grad()(serve),
    full=Config(
        shape=LLAMA32_1B,
        slots=6,
        requests=draw_requests(count=12, longest_prompt=4096, longest_answer=24),
    ),
    tiny=Config(
        shape=TINY,
        slots=3,
        requests=draw_requests(count=4, longest_prompt=40, longest_answer=12),
    ),
    model="Llama-3.2-1B shape, bfloat16, 12 requests, at most 6 at once, KV cache in pages of 16"
    " tokens allocated one by one",
    seed=SEED,
)

if __name__ == "__main__":
    PROGRAM.main()
