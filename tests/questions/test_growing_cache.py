# SPDX-License-Identifier: Apache-2.0
"""A KV cache that grows in pages: which blocks a request gets, and which pages have memory."""

import random
from collections import Counter

import pytest

from allocbench.questions.serving_load import GrowingCache


def test_five_pages_more_than_have_a_block_are_mapped() -> None:
    cache = GrowingCache(8, 2, 100)
    assert cache.mapped == 5
    assert cache.alloc(9) == [*range(8), 8]  # four blocks in each page
    assert cache.mapped == 3 + 5


def test_up_to_ten_pages_without_a_block_stay_mapped() -> None:
    cache = GrowingCache(8, 2, 100)
    blocks = cache.alloc(4 * 12)
    assert blocks is not None
    assert cache.mapped == 17
    cache.free(blocks[:20])
    assert cache.mapped == 17  # five pages are kept, now ten
    cache.free(blocks[20:])
    assert cache.mapped == 10


def test_the_page_with_the_fewest_blocks_that_are_enough_gives_them() -> None:
    cache = GrowingCache(8, 2, 100)
    blocks = cache.alloc(12)
    assert blocks is not None
    cache.free([1, 2, 3, 6, 8, 9])  # three, one and two are free
    assert cache.alloc(1) == [6]
    assert cache.alloc(2) == [8, 9]
    assert cache.alloc(5) == [1, 2, 3, 12, 13]  # none has five, so first all of the fullest


def test_a_block_that_would_straddle_pages_does_not_exist() -> None:
    cache = GrowingCache(8, 3, 3)
    assert cache.alloc(6) == [0, 1, 3, 4, 6, 7]  # 2 begins at 6 and ends at 9, 5 at 15 and 18
    assert cache.alloc(1) is None
    assert cache.mapped == 3


def test_a_request_for_too_many_blocks_changes_nothing() -> None:
    cache = GrowingCache(8, 2, 3)
    assert cache.alloc(13) is None
    assert cache.alloc(12) == list(range(12))


@pytest.mark.parametrize("seed", range(20))
def test_blocks_and_pages_follow_from_those_in_use(seed: int) -> None:
    """Judged by which blocks are in use alone."""
    draw = random.Random(seed)
    page, block, pages = 64, draw.choice([1, 4, 7, 24]), draw.randrange(4, 40)
    lies_in = {n: n * block // page for n in range(page * pages // block)}
    lies_in = {n: at for n, at in lies_in.items() if (n * block + block - 1) // page == at}
    whole = Counter(lies_in.values())
    cache = GrowingCache(page, block, pages)
    used = set[int]()
    for _ in range(600):
        if used and draw.random() < 0.5:
            freed = draw.sample(sorted(used), draw.randrange(1, len(used) + 1))
            cache.free(freed)
            used.difference_update(freed)
        else:
            in_use = Counter(lies_in[n] for n in used)
            (block_found,) = cache.alloc(1) or (None,)
            if block_found is None:
                assert len(used) == len(lies_in)
                continue
            assert block_found not in used
            partly = [at for at, count in in_use.items() if count < whole[at]]
            fullest = max((in_use[at] - whole[at] for at in partly), default=None)
            place = lies_in[block_found]
            assert fullest in (None, in_use[place] - whole[place])
            assert bool(partly) == (place in in_use)
            used.add(block_found)
        kept = cache.mapped - len({lies_in[n] for n in used})
        assert 0 <= kept <= 10
        assert kept >= 5 or cache.mapped == pages
