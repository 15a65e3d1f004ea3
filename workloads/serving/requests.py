# SPDX-License-Identifier: Apache-2.0
"""Requests to a language model: prompt and output tokens, and arrival times."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from allocbench.workloads.generator import SEED, Option

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

PREFIX_TOKENS = 512
"""Tokens per prefix id, as in Mooncake's logs, unless a log says otherwise."""


@dataclass(frozen=True, eq=False)
class Requests:
    """n requests in order of arrival.

    arrival: float64 (n,), seconds since the first arrival.
    prompt, output: int64 (n,), tokens, at least 1.
    prefix: for each request, the ids of its prompt's blocks of `tokens_per_id` tokens, from the
        first; requests whose ids begin with the same values have a common prefix. None if unknown.
    skipped: requests of a log without prompt or output tokens.
    rule: how the columns of a log were recognized, if their names are not those of a known log.
    """

    arrival: NDArray[np.float64]
    prompt: NDArray[np.int64]
    output: NDArray[np.int64]
    prefix: Sequence[Sequence[int]] | None = None
    tokens_per_id: int = PREFIX_TOKENS
    skipped: int = 0
    rule: str = ""

    def __len__(self) -> int:
        return len(self.arrival)

    def first(self, count: int, speed: float) -> Requests:
        """The first `count` requests (0: all), arriving `speed` times as fast."""
        end = count or len(self)
        return replace(
            self,
            arrival=self.arrival[:end] / speed,
            prompt=self.prompt[:end],
            output=self.output[:end],
            prefix=None if self.prefix is None else self.prefix[:end],
        )


OPTIONS = (
    Option("count", "count", 200, "requests"),
    Option("rate", "number", 4.0, "mean number of requests per second", least=1e-6),
    Option(
        "burstiness",
        "number",
        1.0,
        "coefficient of variation of the gamma-distributed time between arrivals; 1 is a"
        " Poisson process",
        least=0.01,
        most=100,
    ),
    Option("prompt", "count", 700, "median prompt length in tokens; lengths are log-normal"),
    Option(
        "prompt_spread",
        "number",
        0.9,
        "standard deviation of the log of the prompt length",
        least=0,
        most=5,
    ),
    Option("output", "count", 150, "median output length in tokens; lengths are log-normal"),
    Option(
        "output_spread",
        "number",
        0.8,
        "standard deviation of the log of the output length",
        least=0,
        most=5,
    ),
    Option("longest", "count", 8192, "longest prompt and longest output, in tokens"),
    Option(
        "prefixes",
        "count",
        0,
        "number of common prompt prefixes; the k-th is chosen in proportion to 1/k; 0 for none",
        least=0,
    ),
    Option(
        "prefix_tokens",
        "count",
        4096,
        f"tokens of each common prefix, a multiple of {PREFIX_TOKENS}, added before the prompt",
        least=PREFIX_TOKENS,
    ),
    SEED,
)


def draw(
    count: int,
    rate: float,
    burstiness: float,
    prompt: int,
    prompt_spread: float,
    output: int,
    output_spread: float,
    longest: int,
    prefixes: int,
    prefix_tokens: int,
    seed: int,
) -> Requests:
    """Draw requests as the values of OPTIONS say."""
    import numpy as np
    from numpy.random import RandomState  # frozen streams: reproducible seeds

    random = RandomState(seed)
    shape = burstiness**-2
    gaps = random.gamma(shape, 1 / (rate * shape), count)
    gaps[0] = 0

    def lengths(median: int, spread: float) -> NDArray[np.int64]:
        drawn = median * np.exp(spread * random.standard_normal(count))
        whole: NDArray[np.int64] = np.clip(np.rint(drawn), 1, longest).astype(np.int64)
        return whole

    asked, answered = lengths(prompt, prompt_spread), lengths(output, output_spread)
    if not prefixes:
        return Requests(np.cumsum(gaps), asked, answered)
    weights = 1 / np.arange(1, prefixes + 1)
    text = np.searchsorted(np.cumsum(weights / weights.sum()), random.random_sample(count))
    blocks = prefix_tokens // PREFIX_TOKENS
    shared = [range(first, first + blocks) for first in (text * blocks).tolist()]
    return Requests(np.cumsum(gaps), asked + blocks * PREFIX_TOKENS, answered, prefix=shared)
