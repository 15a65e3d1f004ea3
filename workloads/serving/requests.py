# SPDX-License-Identifier: Apache-2.0
"""Requests to a language model: prompt and output tokens, and arrival times."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from allocbench.workloads.generator import SEED, option, options_of

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


@dataclass(frozen=True)
class RandomRequests:
    """What requests are drawn at random."""

    count: int = option("count", 200, "requests")
    rate: float = option("number", 4.0, "mean number of requests per second", least=1e-6)
    burstiness: float = option(
        "number",
        1.0,
        "coefficient of variation of the gamma-distributed time between arrivals; 1 is a"
        " Poisson process",
        least=0.01,
        most=100,
    )
    prompt: int = option("count", 700, "median prompt length in tokens; lengths are log-normal")
    prompt_spread: float = option(
        "number", 0.9, "standard deviation of the log of the prompt length", least=0, most=5
    )
    output: int = option("count", 150, "median output length in tokens; lengths are log-normal")
    output_spread: float = option(
        "number", 0.8, "standard deviation of the log of the output length", least=0, most=5
    )
    longest: int = option("count", 8192, "longest prompt and longest output, in tokens")
    prefixes: int = option(
        "count",
        0,
        "number of common prompt prefixes; the k-th is chosen in proportion to 1/k; 0 for none",
        least=0,
    )
    prefix_tokens: int = option(
        "count",
        4096,
        f"tokens of each common prefix, a multiple of {PREFIX_TOKENS}, added before the prompt",
        least=PREFIX_TOKENS,
    )
    seed: int = SEED

    def draw(self) -> Requests:
        """Draw them; the same options always give the same requests."""
        import numpy as np
        from numpy.random import RandomState  # frozen streams: reproducible seeds

        random = RandomState(self.seed)
        shape = self.burstiness**-2
        gaps = random.gamma(shape, 1 / (self.rate * shape), self.count)
        gaps[0] = 0
        arrival = np.cumsum(gaps)

        def lengths(median: int, spread: float) -> NDArray[np.int64]:
            drawn = median * np.exp(spread * random.standard_normal(self.count))
            whole: NDArray[np.int64] = np.clip(np.rint(drawn), 1, self.longest).astype(np.int64)
            return whole

        asked = lengths(self.prompt, self.prompt_spread)
        answered = lengths(self.output, self.output_spread)
        if not self.prefixes:
            return Requests(arrival, asked, answered)
        weights = 1 / np.arange(1, self.prefixes + 1)
        chosen = random.random_sample(self.count)
        text = np.searchsorted(np.cumsum(weights / weights.sum()), chosen)
        blocks = self.prefix_tokens // PREFIX_TOKENS
        shared = [range(first, first + blocks) for first in (text * blocks).tolist()]
        return Requests(arrival, asked + blocks * PREFIX_TOKENS, answered, prefix=shared)


OPTIONS = options_of(RandomRequests)
