# SPDX-License-Identifier: Apache-2.0
"""The rules of XNNPACK's memory planner, as the report on it describes them."""

from collections.abc import Sequence


def height(blocks: Sequence[tuple[int, int, int]], uses_leading_gap: bool) -> int:
    """The bytes of a plan for blocks of (size, first, last), both ends of a lifetime included.

    The largest block first, each into the smallest gap between live blocks that is large enough, or
    else above the last one. The gap below the first one counts if `uses_leading_gap`.
    """
    placed: list[tuple[int, int, int, int]] = []  # offset, end, first, last
    for size, first, last in sorted(blocks, reverse=True):
        live = sorted(one for one in placed if one[2] <= last and first <= one[3])
        top, gaps = 0, list[tuple[int, int]]()  # size, offset
        for number, (offset, end, _, _) in enumerate(live):
            if offset - top >= size and (number or uses_leading_gap):
                gaps.append((offset - top, top))
            top = max(top, end)
        offset = min(gaps)[1] if gaps else top
        placed.append((offset, offset + size, first, last))
    return max(end for _, end, _, _ in placed)
