# SPDX-License-Identifier: Apache-2.0
"""What fills a card: the sums, and the byte at which a program no longer fits."""

from __future__ import annotations

from dataclasses import replace

import pytest

from allocbench.base import cards
from allocbench.questions.occupancy import Outside, occupancy, ranks_of
from allocbench.replays.runner import Runner
from allocbench.workloads import ALLOC, FREE, Provenance
from tests.traces import make

MIB = 1 << 20
(L4,) = cards.find("l4")
TRACE = make([(ALLOC, 0, 700 * MIB), (ALLOC, 1, 301 * MIB), (FREE, 0, 0), (ALLOC, 2, MIB)])
NEED = 1001 * MIB
"""The largest load, which naive also reserves."""


@pytest.mark.parametrize("left", [NEED + 1, NEED, NEED - 1, 1, 0, -1])
def test_the_byte_at_which_a_program_no_longer_fits(left: int) -> None:
    outside = Outside(context=100 * MIB, nccl=3 * MIB, other=L4.usable - 103 * MIB - left)
    assert outside.free(L4) == max(0, left)
    found = occupancy(Runner(TRACE, "sim:80GiB"), "naive", L4, outside)
    assert found.fits == (left >= NEED)
    assert found.needed == 1002 * MIB  # a multiple of 2 MiB
    assert found.reserved == (NEED if found.fits else 1002 * MIB)
    assert found.in_use == found.reserved + L4.usable - left


def test_what_is_not_given_is_estimated() -> None:
    assert Outside().parts(L4) == {"context": L4.context, "nccl": 0, "other": 0}
    two = Outside(ranks=2).parts(L4)["nccl"]
    assert two == L4.nccl(2) > 0
    assert Outside(context=0, nccl=0, ranks=8).free(L4) == L4.usable


@pytest.mark.parametrize(
    ("world", "ranks"), [("8", 8), ("1", 1), ("0", 1), ("", 1), ("many", 1), ("-2", 1)]
)
def test_the_ranks_of_a_recording(world: str, ranks: int) -> None:
    assert ranks_of(replace(TRACE, provenance=Provenance(extra={"world": world}))) == ranks
    assert ranks_of(TRACE) == 1
