# SPDX-License-Identifier: Apache-2.0
"""What fills a card: the sums, and the byte at which a program no longer fits."""

from dataclasses import replace

import pytest

from allocbench.base import cards
from allocbench.questions.check import check
from allocbench.questions.occupancy import Outside, occupancy, ranks_of
from allocbench.replays.runner import Runner, beside, outside_of
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
    nothing = {"libraries": 0, "nccl": 0, "other": 0}
    assert Outside().parts(L4) == {"context": L4.context} | nothing
    two = Outside(ranks=2).parts(L4)["nccl"]
    assert two == L4.nccl(2) > 0
    assert Outside(context=0, nccl=0, ranks=8).free(L4) == L4.usable


def test_libraries_hold_memory_beside_the_allocator() -> None:
    """The load is 1,001 MiB, and a library holds all of the L4's free bytes but 1,002 MiB."""
    for more in (0, 2 * MIB):
        held = L4.free - 1002 * MIB + more
        extra = {"outside": {"libother.so": held - 1, "libext.so": 1}}
        trace = replace(TRACE, provenance=Provenance(extra=extra))
        run = Runner(trace, beside(L4.device, trace))
        assert run.capacity == 1002 * MIB - more
        assert run.completes("naive") == (more == 0)
        assert (run.card("naive") == L4.name) == (more == 0)
        assert check(trace, L4.device, allocator="naive").exit_code == (0 if more == 0 else 1)
        assert Outside(libraries=outside_of(trace)).free(L4) == run.capacity
    assert beside(L4.device, TRACE) == L4.device
    full = replace(TRACE, provenance=Provenance(extra={"outside": {"libext.so": 1 << 50}}))
    assert Runner(full, beside(L4.device, full)).capacity == 1


@pytest.mark.parametrize(
    ("world", "ranks"), [("8", 8), ("1", 1), ("0", 1), ("", 1), ("many", 1), ("-2", 1)]
)
def test_the_ranks_of_a_recording(world: str, ranks: int) -> None:
    assert ranks_of(replace(TRACE, provenance=Provenance(extra={"world": world}))) == ranks
    assert ranks_of(TRACE) == 1


@pytest.mark.parametrize("told", [{"x": "y"}, {"x": None, "y": 1.5}, {"x": -5, "y": 2**70}, [1], 3])
def test_what_is_no_number_of_bytes_is_not_held(told: object) -> None:
    trace = replace(TRACE, provenance=Provenance(extra={"outside": told}))
    assert outside_of(trace) == {}
    assert beside("sim:1GiB", trace) == "sim:1GiB"
