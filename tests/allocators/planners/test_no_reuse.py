# SPDX-License-Identifier: Apache-2.0
"""no_reuse: every block has its own memory."""

from __future__ import annotations

from tests.allocators.planners.judge import plan


def test_blocks_are_stacked_in_the_order_given() -> None:
    result = plan([(100, 5, 6), (1, 0, 1), (64, 1, 2)], "no_reuse", 64)
    assert result.offsets.tolist() == [0, 128, 192]
    assert result.height == 256
