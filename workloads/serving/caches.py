# SPDX-License-Identifier: Apache-2.0
"""Two ways to keep the keys and values of sequences that grow: in one piece, or in pages.

Both stay within a budget of bytes: what does not fit is refused, and nothing has changed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field

from allocbench.workloads.events import Events
from allocbench.workloads.serving.models import Model
from allocbench.workloads.serving.requests import PREFIX_TOKENS

_SHARED = -1


@dataclass(slots=True)
class Held:
    """What a cache holds for one sequence.

    capacity: tokens that there is room for. blocks: allocated ones, in order; -1 for a page
    that belongs to a shared prefix. prefix: ids of the prompt's blocks that may be shared.
    shared: those of them that are.
    """

    prefix: Sequence[int] = ()
    capacity: int = 0
    blocks: list[int] = field(default_factory=list)
    shared: list[int] = field(default_factory=list)


class Cache(ABC):
    """Keys and values of sequences within a budget; `used` are the bytes allocated."""

    used = 0

    @abstractmethod
    def most(self, tokens: int) -> int:
        """Bytes that a sequence of so many tokens may come to hold."""

    @abstractmethod
    def reserve(self, held: Held, tokens: int, text: int) -> bool:
        """Make room for so many tokens, `text` of which are known already.

        False when the budget has no room; nothing has changed then.
        """

    @abstractmethod
    def release(self, held: Held) -> None:
        """Drop what is held for a sequence."""

    @abstractmethod
    def begin(self, held: Held, text: int) -> int:
        """Take over what is there of a text; the tokens that need no computing."""

    @abstractmethod
    def computed(self, held: Held, tokens: int) -> None:
        """So many tokens of the sequence have been computed."""

    @abstractmethod
    def clear(self) -> None:
        """Drop what is kept beyond the sequences."""


class Contiguous(Cache):
    """A sequence's keys and values in one block for each group of layers.

    The prompt gets room for exactly itself. A block that is full is replaced by a larger one, by
    `chunk` tokens (growth=concat) or of twice the size (growth=double): group by group a new block
    is allocated, the old one copied and freed.
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
        """Its tokens, and what the last growth may add."""
        return self._token * (2 * tokens if self._double else tokens + self._chunk)

    def reserve(self, held: Held, tokens: int, text: int) -> bool:
        """One block for each group of layers, replaced when it is full."""
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
        """Free all blocks."""
        for block in held.blocks:
            self._events.free(block)
        self.used -= held.capacity * self._token
        held.blocks, held.capacity = [], 0

    def begin(self, held: Held, text: int) -> int:
        """Nothing: a text is computed as a whole."""
        return 0

    def computed(self, held: Held, tokens: int) -> None:
        """Nothing: what is in one piece cannot be shared."""

    def clear(self) -> None:
        """Nothing: there is nothing beyond the sequences."""


class Paged(Cache):
    """Pages of some tokens, each a block that holds the keys and values of all layers.

    Full blocks of PREFIX_TOKENS of a prompt with a prefix id are shared from when they are
    computed. With no user left they stay, the last used last, until their pages are needed.
    """

    def __init__(self, events: Events, model: Model, budget: int, page: int) -> None:
        self.used = 0
        self._events = events
        self._page = page
        self._bytes = page * model.layers * model.token_bytes
        self._pages = budget // self._bytes
        self._per_prefix = PREFIX_TOKENS // page
        self._prefixes: dict[int, list[int]] = {}
        self._users: dict[int, int] = {}
        self._idle: OrderedDict[int, None] = OrderedDict()

    def most(self, tokens: int) -> int:
        """Whole pages."""
        return -(-tokens // self._page) * self._bytes

    def begin(self, held: Held, text: int) -> int:
        """Share the pages of the prefixes there are, in order up to the first that is not."""
        for prefix in held.prefix[: (text - 1) // PREFIX_TOKENS]:  # a token is left to compute
            if prefix not in self._prefixes:
                break
            self._users[prefix] += 1
            self._idle.pop(prefix, None)
            held.shared.append(prefix)
            held.blocks += [_SHARED] * self._per_prefix
        held.capacity = len(held.blocks) * self._page
        return held.capacity

    def reserve(self, held: Held, tokens: int, text: int) -> bool:
        """As many pages as are missing; idle prefixes make room for them."""
        needed = -(-tokens // self._page) - len(held.blocks)
        if needed <= 0:
            return True
        lacking = self.used // self._bytes + needed - self._pages
        if lacking > len(self._idle) * self._per_prefix:
            return False
        for _ in range(-(-lacking // self._per_prefix)):
            self._evict()
        held.blocks += [self._events.alloc(self._bytes, "kv_page") for _ in range(needed)]
        held.capacity = len(held.blocks) * self._page
        self.used += needed * self._bytes
        return True

    def computed(self, held: Held, tokens: int) -> None:
        """Share the full blocks of the prompt from now on."""
        full = min(tokens // PREFIX_TOKENS, len(held.prefix))
        while len(held.shared) < full:
            prefix = held.prefix[len(held.shared)]
            if prefix in self._prefixes:
                return  # computed twice at a time: this copy stays private, and what follows it
            begin = len(held.shared) * self._per_prefix
            pages = held.blocks[begin : begin + self._per_prefix]
            held.blocks[begin : begin + self._per_prefix] = [_SHARED] * self._per_prefix
            self._prefixes[prefix] = pages
            self._users[prefix] = 1
            held.shared.append(prefix)

    def release(self, held: Held) -> None:
        """Free the pages that are not shared."""
        for page in held.blocks:
            if page != _SHARED:
                self._events.free(page)
                self.used -= self._bytes
        for prefix in reversed(held.shared):  # so that the end of a text goes before its begin
            self._users[prefix] -= 1
            if not self._users[prefix]:
                self._idle[prefix] = None
        held.blocks, held.shared, held.capacity = [], [], 0

    def clear(self) -> None:
        """Free the prefixes without a user."""
        while self._idle:
            self._evict()

    def _evict(self) -> None:
        prefix, _ = self._idle.popitem(last=False)
        for page in self._prefixes.pop(prefix):
            self._events.free(page)
            self.used -= self._bytes
        del self._users[prefix]
