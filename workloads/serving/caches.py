# SPDX-License-Identifier: Apache-2.0
"""KV caches for growing sequences: contiguous blocks, or pages.

Both have the same methods, and stay within a budget of bytes, of which `used` are allocated.
"""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from allocbench.workloads.events import Events
from allocbench.workloads.serving.models import Model

_SHARED = -1


@dataclass(slots=True)
class Held:
    """The part of a cache that a sequence holds.

    capacity: tokens that fit. blocks: its blocks in order; -1 for a page that belongs to a shared
    prefix. prefix: ids of the prompt's blocks that can be shared. shared: those that are shared.
    """

    prefix: Sequence[int] = ()
    capacity: int = 0
    blocks: list[int] = field(default_factory=list)
    shared: list[int] = field(default_factory=list)


class Contiguous:
    """A sequence's keys and values in one block per group of layers.

    The prompt gets a block of exactly its size. A full block is replaced by a larger one, by
    `chunk` tokens (growth=concat) or of twice the size (growth=double): group by group, a new block
    is allocated, and the old one is copied and freed.
    """

    def __init__(
        self, events: Events, model: Model, budget: int, growth: str, chunk: int, group: int
    ) -> None:
        self.used = 0
        self._events = events
        self._budget = budget
        self._double = growth == "double"
        self._chunk = chunk
        full, rest = divmod(model.layers, group)
        self._groups = [group * model.token_bytes] * full + (
            [rest * model.token_bytes] if rest else []
        )
        self._token = model.layers * model.token_bytes

    def most(self, tokens: int) -> int:
        """The most bytes of a sequence of so many tokens, with what its last growth can add."""
        return self._token * (2 * tokens if self._double else tokens + self._chunk)

    def least_allocs(self, held: Held, text: int, tokens: int, step: int) -> int:
        """The fewest allocs of a sequence with a text of `text` tokens that grows to `tokens`.

        They are the blocks of the text, and of each growth unless the blocks double. step: tokens
        by which it grows at most at a time.
        """
        growths = 0 if self._double else -(-(tokens - text) // max(self._chunk, step))
        return len(self._groups) * (1 + growths)

    def reserve(self, held: Held, tokens: int, text: int) -> bool:
        """Make room for `tokens` tokens, the first `text` of which are known already.

        False, and nothing changes, if the budget has no room.
        """
        if tokens <= held.capacity:
            return True
        grown = 2 * held.capacity if self._double else held.capacity + self._chunk
        capacity = max(text, tokens, grown if held.capacity else 0)
        added = (capacity - held.capacity) * self._token
        if self.used + added > self._budget:
            return False
        self.used += added
        old, held.blocks = held.blocks, []
        for n, group in enumerate(self._groups):
            held.blocks.append(self._events.alloc(capacity * group, "kv"))
            if old:
                self._events.free(old[n])
        held.capacity = capacity
        return True

    def release(self, held: Held) -> None:
        """Free all that a sequence holds."""
        self._events.free_each(held.blocks)
        self.used -= held.capacity * self._token
        held.blocks, held.capacity = [], 0

    def begin(self, held: Held, text: int) -> int:
        """How many tokens of a text are cached: none, because nothing is shared."""
        return 0

    def computed(self, held: Held, tokens: int) -> None:
        """Does nothing with the tokens that have been computed: they cannot be shared."""

    def clear(self) -> None:
        """Does nothing: all blocks are held by sequences."""


class Paged:
    """Pages of a number of tokens, each a block with the keys and values of all layers.

    Full blocks of a prompt with prefix ids are shared once they are computed. Each has
    `tokens_per_id` tokens, a multiple of those of a page. Prefixes without a user are kept, in LRU
    order, until their pages are needed.
    """

    def __init__(
        self, events: Events, model: Model, budget: int, page: int, tokens_per_id: int
    ) -> None:
        self.used = 0
        self._events = events
        self._page, self._tokens_per_id = page, tokens_per_id
        self._bytes = page * model.layers * model.token_bytes
        self._pages = budget // self._bytes
        self._per_prefix = tokens_per_id // page
        self._prefixes: dict[int, list[int]] = {}
        self._users: dict[int, int] = {}
        self._idle: OrderedDict[int, None] = OrderedDict()

    def most(self, tokens: int) -> int:
        """The most bytes of a sequence of so many tokens: whole pages."""
        return -(-tokens // self._page) * self._bytes

    def least_allocs(self, held: Held, text: int, tokens: int, step: int) -> int:
        """The fewest allocs of a sequence: the pages that are not part of a prefix."""
        return max(0, -(-tokens // self._page) - len(held.prefix) * self._per_prefix)

    def begin(self, held: Held, text: int) -> int:
        """Share the pages of the cached prefixes, up to the first that is not cached.

        Returns how many tokens they cover: at least one token of the text is left to compute.
        """
        for prefix in held.prefix[: (text - 1) // self._tokens_per_id]:
            if prefix not in self._prefixes:
                break
            self._users[prefix] += 1
            self._idle.pop(prefix, None)
            held.shared.append(prefix)
            held.blocks += [_SHARED] * self._per_prefix
        held.capacity = len(held.blocks) * self._page
        return held.capacity

    def reserve(self, held: Held, tokens: int, text: int) -> bool:
        """Make room for `tokens` tokens, evicting idle prefixes if necessary.

        False, and nothing changes, if the budget has no room.
        """
        needed = -(-tokens // self._page) - len(held.blocks)
        if needed <= 0:
            return True
        lacking = self.used // self._bytes + needed - self._pages
        if lacking > len(self._idle) * self._per_prefix:
            return False
        for _ in range(-(-lacking // self._per_prefix)):
            self._evict()
        held.blocks += self._events.alloc_each(needed, self._bytes, "kv_page")
        held.capacity = len(held.blocks) * self._page
        self.used += needed * self._bytes
        return True

    def computed(self, held: Held, tokens: int) -> None:
        """Share the full blocks of the prompt that have been computed from now on."""
        full = min(tokens // self._tokens_per_id, len(held.prefix))
        while len(held.shared) < full:
            prefix = held.prefix[len(held.shared)]
            if prefix in self._prefixes:
                return  # computed twice at the same time: this copy and all after it stay private
            begin = len(held.shared) * self._per_prefix
            pages = held.blocks[begin : begin + self._per_prefix]
            held.blocks[begin : begin + self._per_prefix] = [_SHARED] * self._per_prefix
            self._prefixes[prefix] = pages
            self._users[prefix] = 1
            held.shared.append(prefix)

    def release(self, held: Held) -> None:
        """Free the pages that are not shared."""
        own = [page for page in held.blocks if page != _SHARED]
        self._events.free_each(own)
        self.used -= len(own) * self._bytes
        for prefix in reversed(held.shared):  # the end of a text is evicted before its beginning
            self._users[prefix] -= 1
            if not self._users[prefix]:
                self._idle[prefix] = None
        held.blocks, held.shared, held.capacity = [], [], 0

    def clear(self) -> None:
        """Free all prefixes without a user."""
        while self._idle:
            self._evict()

    def _evict(self) -> None:
        prefix, _ = self._idle.popitem(last=False)
        pages = self._prefixes.pop(prefix)
        self._events.free_each(pages)
        self.used -= len(pages) * self._bytes
        del self._users[prefix]


Cache: TypeAlias = Contiguous | Paged
