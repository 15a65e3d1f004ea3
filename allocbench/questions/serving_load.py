# SPDX-License-Identifier: Apache-2.0
"""How much load of a request log a KV cache survives: no sequence is preempted or refused.

The requests are served as the serving workloads do it (`workloads.serving.server`), with pages of
the size of a block. Passes take modelled time: the card's memory bandwidth, and the multiplications
that its tensor cores can do.
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from allocbench.base.cards import Card
from allocbench.questions.serving import Asked, CardParts
from allocbench.workloads.events import Events
from allocbench.workloads.generator import settle
from allocbench.workloads.serving import server
from allocbench.workloads.serving.requests import Requests
from allocbench.workloads.vocabulary import TraceError

_OPERATIONS = {75: 1024, 80: 2048, 86: 1024, 89: 1024, 90: 4096, 100: 8192, 120: 1024}
"""16-bit operations of a multiprocessor's tensor cores per clock, by compute capability.

From NVIDIA's architecture white papers: the peak of a data sheet, divided by clock and
multiprocessors. GeForce cards with 32-bit accumulation do half of it.
"""
_KV_PAGE = "kv_page"
_MAPPED = 2 << 20  # bytes that a page of kvcached has at least
_MOST, _LEAST = 1024.0, 1 / 1024  # relative arrival rates
_PRECISION = 1.02
_FEWEST_KEPT, _MOST_KEPT = 5, 10  # pages of kvcached without a block that stay mapped
_SMALLEST_PAGE = 16  # tokens: smaller blocks are not followed one by one


class _Pages(Events):
    """Keeps no events, only how many bytes of pages are and were alive at once."""

    def __init__(self) -> None:
        super().__init__()
        self.peak = 0
        self._blocks = 0
        self._held = dict[int, int]()
        self._bytes = 0

    def alloc(self, size: int, label: str = "", stream: int = 0) -> int:
        self._blocks += 1
        if label == _KV_PAGE:
            self._held[self._blocks] = size
            self._bytes += size
            self.peak = max(self.peak, self._bytes)
        return self._blocks

    def free(self, block: int, stream: int = 0) -> None:
        self._bytes -= self._held.pop(block, 0)

    def mark(self, label: str) -> None:
        pass

    def expect(self, allocs: int) -> None:
        pass


class GrowingCache:
    """A KV cache of so many pages in virtual memory, which are mapped when a block needs them.

    The rules are those of `KVCacheManager` and `PageAllocator` in kvcached of August 2026. The
    pages of one number, for keys and for values of each layer, are mapped and unmapped together. A
    page has the blocks that lie in it as a whole.

    page, block: bytes of keys or of values in one layer. kvcached maps the pages that it keeps in
    a thread; here, they are mapped at once.
    """

    def __init__(self, page: int, block: int, pages: int) -> None:
        self._page, self._block, self._pages = page, block, pages
        self._unmapped, self._kept = deque(range(pages)), deque[int]()
        self._free: dict[int, list[int]] = {}  # blocks, of pages with some; by the last change
        self._refill()

    @property
    def mapped(self) -> int:
        """The number of pages that have memory."""
        return self._pages - len(self._unmapped)

    def alloc(self, count: int) -> list[int] | None:
        """Take so many blocks; None, and none is taken, if there are too few.

        They come from the page that has enough free blocks and the fewest of them; if no page has
        enough, from the page with the most. If no page has a free block, a page is mapped.
        """
        pages = len(self._kept) + len(self._unmapped)
        free_blocks = sum(map(len, self._free.values()))
        if count > free_blocks + pages * (self._page // self._block):
            return None
        taken: list[int] = []
        while (missing := count - len(taken)) > 0:
            if not self._free and not self._open_page():
                self.free(taken)
                return None
            enough = [page for page, free in self._free.items() if len(free) >= missing]
            chosen = min if enough else max
            page = chosen(enough or self._free, key=lambda page: len(self._free[page]))
            free = self._free.pop(page)
            taken += free[:missing]
            if rest := free[missing:]:
                self._free[page] = rest
        return taken

    def free(self, blocks: Iterable[int]) -> None:
        """Give blocks back. Pages without a block are unmapped, except for a few."""
        by_page: dict[int, list[int]] = {}
        for block in blocks:
            by_page.setdefault(block * self._block // self._page, []).append(block)
        for page, freed in by_page.items():
            free = self._free.pop(page, []) + freed
            if len(free) < len(self._blocks(page)):
                self._free[page] = free
            else:
                (self._kept if len(self._kept) < _MOST_KEPT else self._unmapped).append(page)

    def _open_page(self) -> bool:
        """Give the next page its blocks; False if no page is left."""
        while self._kept or self._unmapped:
            page = (self._kept or self._unmapped).popleft()
            self._refill()
            if blocks := list(self._blocks(page)):
                self._free[page] = blocks
                return True
        return False

    def _blocks(self, page: int) -> range:
        begin = page * self._page
        return range(-(-begin // self._block), (begin + self._page) // self._block)

    def _refill(self) -> None:
        while self._unmapped and len(self._kept) < _FEWEST_KEPT:
            self._kept.append(self._unmapped.popleft())


class _Growing(_Pages):
    """Also follows the memory of a cache that grows in pages. Bytes."""

    def __init__(self, asked: Asked, cache_tokens: int) -> None:
        super().__init__()
        model, tokens = asked.model.model, _block_tokens(asked)
        block = tokens * model.token_bytes // 2
        page = -(-block // _MAPPED) * _MAPPED
        per_page = page // block - bool(page % block) or 1
        self._cache = GrowingCache(page, block, -(-cache_tokens // tokens // per_page))
        self._bytes_of_page = 2 * page * model.layers
        self._block_of = dict[int, int]()
        self._begin: int | None = None  # ns
        self._last = self._sum = 0  # ns; mapped pages, each for its ns
        self._most = self._cache.mapped

    def alloc_each(self, count: int, size: int, label: str = "") -> list[int]:
        taken = super().alloc_each(count, size, label)
        blocks = self._cache.alloc(count)
        assert blocks is not None, "as many blocks as the server has"
        self._block_of.update(zip(taken, blocks, strict=True))
        self._most = max(self._most, self._cache.mapped)
        return taken

    def free_each(self, blocks: Iterable[int]) -> None:
        blocks = list(blocks)
        super().free_each(blocks)
        self._cache.free([self._block_of.pop(block) for block in blocks if block in self._block_of])

    def at(self, now_ns: int) -> None:
        if self._begin is None:
            self._begin = now_ns
        else:
            self._sum += self._cache.mapped * (now_ns - self._last)
        self._last = now_ns

    def mapped(self) -> tuple[int, int]:
        """The most that was mapped at one time, and the mean over time."""
        seconds = self._last - (self._begin or 0)
        mean = self._sum / seconds if seconds else self._most
        return self._most * self._bytes_of_page, round(mean * self._bytes_of_page)


@dataclass(frozen=True)
class Served:
    """A log served at one arrival rate.

    peak_tokens: of the KV cache, in whole blocks. preemptions: of running sequences. rejected:
    requests that can never fit. seconds: until the last answer.
    """

    peak_tokens: int
    preemptions: int
    rejected: int
    seconds: float

    @property
    def survived(self) -> bool:
        """Whether every request was answered without interruption."""
        return not self.preemptions and not self.rejected


@dataclass(frozen=True)
class Load:
    """What a log asks of a server.

    requests: that are served; too_long: those longer than the longest sequence, which are not.
    seconds: between first and last arrival. needed_tokens: of the KV cache, with which nothing
    would be preempted at the log's own rate. at_rate: at that rate, with the server's KV cache.
    largest: the largest arrival rate that the server survives, relative to the log's; None: even
    1/1024 of it is too much; infinite: 1024 times as much is not too much. growing, growing_mean:
    the most and the mean bytes of a KV cache of the same size that grows in pages, at the log's own
    rate.
    """

    requests: int
    too_long: int
    seconds: float
    needed_tokens: int
    at_rate: Served
    largest: float | None
    growing: int
    growing_mean: int


def load(found: CardParts, asked: Requests, longest: int) -> Load:
    """Serve a log with the KV cache of an answer, at several arrival rates.

    longest: tokens of the longest sequence. Raises TraceError if no request is served, or if a
    block does not divide the log's blocks of prefixes.
    """
    kept, too_long = _shorter(asked, longest)
    cache = found.tokens
    plenty = int((kept.prompt + kept.output).sum()) + len(kept) * found.asked.block_tokens
    needed = _needed(found, kept, plenty)
    growing = _Growing(found.asked, cache)
    at_rate = _serve(found, kept, cache, 1.0, growing)
    largest = None if at_rate.rejected else _largest(found, kept, cache, at_rate.survived)
    seconds = float(kept.arrival[-1] - kept.arrival[0])
    return Load(len(kept), too_long, seconds, needed, at_rate, largest, *growing.mapped())


def _needed(found: CardParts, asked: Requests, plenty: int) -> int:
    """Tokens of the smallest KV cache that survives the log at its own rate."""
    enough = _serve(found, asked, plenty, 1.0).peak_tokens
    if asked.prefix is None:
        return enough
    least = int((asked.prompt + asked.output).max())
    while enough / least > _PRECISION:
        middle = round((enough * least) ** 0.5)
        if _serve(found, asked, middle, 1.0).survived:
            enough = middle
        else:
            least = middle
    return enough


def _largest(found: CardParts, asked: Requests, cache: int, survived: bool) -> float | None:
    """The largest relative rate that is survived, within 2 %."""

    def survives(speed: float) -> bool:
        return _serve(found, asked, cache, speed).survived

    tried, factor = 1.0, 2.0 if survived else 0.5
    while survives(tried * factor) == survived:
        tried *= factor
        if not _LEAST < tried < _MOST:
            return float("inf") if survived else None
    fits, fails = sorted((tried, tried * factor))
    while fails / fits > _PRECISION:
        middle = (fits * fails) ** 0.5
        if survives(middle):
            fits = middle
        else:
            fails = middle
    return fits


def _serve(
    found: CardParts, asked: Requests, cache_tokens: int, speed: float, pages: _Pages | None = None
) -> Served:
    server_asked = found.asked
    model = server_asked.model.model
    token = model.layers * model.token_bytes
    pages = _Pages() if pages is None else pages
    values: dict[str, Any] = {
        "kv": "paged",
        "page": _block_tokens(server_asked),
        "token_budget": max(server_asked.batch.tokens, server_asked.batch.rows),
        "max_sequences": server_asked.batch.rows,
        "kv_budget": cache_tokens * token,
        "activation_layers": 0,
        **_speed(server_asked.card),
    }
    settings = server.ServerSettings(**settle(server.OPTIONS, values))
    counts = server.serve(pages, model, settings, asked.first(0, speed))
    return Served(pages.peak // token, counts.preemptions, counts.rejected, counts.seconds)


def _block_tokens(asked: Asked) -> int:
    return max(asked.block_tokens, _SMALLEST_PAGE)


def _speed(card: Card) -> dict[str, float]:
    """Bytes and operations per second of a card; of an H100 for cards that are not NVIDIA's."""
    compute = card.compute
    if compute is None or compute.capability not in _OPERATIONS:
        return {}
    clock = compute.clock_mhz * 1e6
    return {
        "bandwidth": 2e6 * compute.memory_clock_mhz * compute.bus_bits / 8,
        "flops": _OPERATIONS[compute.capability] * compute.multiprocessors * clock,
    }


def _shorter(asked: Requests, longest: int) -> tuple[Requests, int]:
    """The requests of at most so many tokens, and how many are longer."""
    kept = np.flatnonzero(asked.prompt + asked.output <= longest)
    if not len(kept):
        raise TraceError(f"every request of the log is longer than {longest:,} tokens")
    prefix = asked.prefix and [asked.prefix[n] for n in kept.tolist()]
    chosen = replace(
        asked,
        arrival=asked.arrival[kept],
        prompt=asked.prompt[kept],
        output=asked.output[kept],
        prefix=prefix,
    )
    return chosen, len(asked) - len(kept)
