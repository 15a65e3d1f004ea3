# SPDX-License-Identifier: Apache-2.0
"""Llama-3-8B with continuous batching: a preallocated pool of KV pages and a token budget.

Interesting for an allocator because it only serves temporaries: the cache is one block per layer
that never moves, while a pass allocates and frees some twenty blocks in every layer. Their sizes
are all proportional to the number of tokens in the pass, which differs in every step: each running
request generates one token, and the rest of the budget is filled with chunks of waiting prompts.
When the pool is full, the newest request is preempted and recomputed later.
"""

from collections import deque
from dataclasses import dataclass

import torch
from torch import Tensor

from benchmarks.workshop.models.llama import LLAMA3_8B, TINY, DecoderShape, frozen
from benchmarks.workshop.models.llm_decode import SEED, DecodeRequest, draw_requests
from benchmarks.workshop.models.paged import PagedSequence, make_pages, write_next
from benchmarks.workshop.models.program import Mark, ModelProgram


@dataclass(frozen=True)
class Config:
    """The model, its pool of pages, and the requests in order of arrival."""

    shape: DecoderShape
    pages: int
    budget: int  # maximum number of tokens in a pass
    slots: int  # maximum number of running requests
    requests: tuple[DecodeRequest, ...]


class Schedule:
    """Which requests run, how many of their tokens the next pass has, and which pages they use."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.free = [*range(config.pages)]
        self.arriving, self.step = deque(config.requests), 0
        self.waiting = deque[PagedSequence[int]]()
        self.running: list[PagedSequence[int]] = []  # in order of admission

    @property
    def done(self) -> bool:
        """Whether all requests have been answered."""
        return not (self.arriving or self.waiting or self.running)

    def next_pass(self) -> list[tuple[PagedSequence[int], int]]:
        """The sequences of the next pass, and how many tokens of each it processes."""
        for sequence in [sequence for sequence in self.running if not sequence.answer]:
            self._stop(sequence)
        while self.arriving and self.arriving[0].arrival <= self.step:
            request = self.arriving.popleft()
            self.waiting.append(PagedSequence(request.prompt, request.answer + 1))
        self.step += 1
        batch, budget, full = list[tuple[PagedSequence[int], int]](), self.config.budget, False
        for sequence in list(self.running):
            count = min(budget, max(1, sequence.prompt - sequence.read))
            while sequence in self.running and sequence.lacks(count) > len(self.free):
                self._put_back(self.running[-1])
                full = True
            if sequence in self.running and count:
                batch.append((sequence, self._extend(sequence, count)))
                budget -= count
        while self.waiting and budget and not full and len(self.running) < self.config.slots:
            count = min(budget, self.waiting[0].prompt)
            if self.waiting[0].lacks(count) > len(self.free):
                break
            self.running.append(self.waiting.popleft())
            batch.append((self.running[-1], self._extend(self.running[-1], count)))
            budget -= count
        return batch

    def _extend(self, sequence: PagedSequence[int], tokens: int) -> int:
        """Give a sequence pages for more tokens; returns the number of tokens."""
        sequence.pages += [self.free.pop() for _ in range(sequence.lacks(tokens))]
        return tokens

    def _put_back(self, sequence: PagedSequence[int]) -> None:
        """Preempt a sequence: requeue it at the front, to be recomputed up to its position."""
        self._stop(sequence)
        again = PagedSequence[int](max(sequence.prompt, sequence.read), sequence.answer)
        self.waiting.appendleft(again)

    def _stop(self, sequence: PagedSequence[int]) -> None:
        self.running.remove(sequence)
        self.free += reversed(sequence.pages)


def serve(config: Config, device: str, mark: Mark) -> None:
    """Answer all of `config.requests`, one pass per step."""
    mark("init")
    shape, schedule = config.shape, Schedule(config)
    model = frozen(shape, device)
    pools = [make_pages(config.pages, 1, shape, device) for _ in range(shape.layers)]
    while not schedule.done:
        batch = schedule.next_pass()
        if not batch:
            continue
        mark("step")
        mark("forward")
        write_next(
            model,
            [sequence for sequence, _ in batch],
            [tokens_of(sequence, count, shape, device) for sequence, count in batch],
            lambda layer: ([pools[layer]], 0),
            [page for sequence, _ in batch for page in sequence.pages],
        )
        for sequence, _ in batch:
            sequence.answer -= sequence.read >= sequence.prompt
    mark("teardown")


def tokens_of(sequence: PagedSequence[int], count: int, shape: DecoderShape, device: str) -> Tensor:
    """The next tokens of a sequence: random tokens of its prompt, or the one it generated."""
    if sequence.read >= sequence.prompt and sequence.token is not None:
        return sequence.token
    return torch.randint(shape.vocabulary, (count,), device=device)


PROGRAM = ModelProgram(
    run=torch.no_grad()(serve),
    full=Config(
        shape=LLAMA3_8B,
        pages=340,
        budget=2048,
        slots=16,
        requests=draw_requests(count=12, longest_prompt=3072, longest_answer=9),
    ),
    tiny=Config(
        shape=TINY,
        pages=7,
        budget=24,
        slots=4,
        requests=draw_requests(count=6, longest_prompt=60, longest_answer=8),
    ),
    model="Llama-3-8B shape, bfloat16, 12 requests, passes of at most 2048 tokens with chunked"
    " prefill, a pool of 340 KV pages of 16 tokens, preemption",
    seed=SEED,
)

if __name__ == "__main__":
    PROGRAM.main()
