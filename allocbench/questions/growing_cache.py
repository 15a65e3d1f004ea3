# SPDX-License-Identifier: Apache-2.0
"""A KV cache in virtual memory: pages are mapped when a block needs them, as kvcached does it.

The rules are those of `KVCacheManager` and `PageAllocator` in kvcached of August 2026. The pages of
one number, for keys and for values of each layer, are mapped and unmapped together.
"""

from collections import deque
from collections.abc import Iterable

_FEWEST_KEPT, _MOST_KEPT = 5, 10  # pages without a block that stay mapped


class GrowingCache:
    """A cache of so many pages. A page has the blocks that lie in it as a whole.

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
