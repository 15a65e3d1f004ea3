# SPDX-License-Identifier: Apache-2.0
"""Random calls with private pools, streams and faults; and the driver that draws them."""

import pytest

from tests.conftest import Case
from tests.fuzz import sequences
from tests.oracle import Watched

ONCE_FAILED = [
    ("bfc:per_process_memory_fraction=0.5", 0),  # pools together exceeded the limit
    ("bfc:preset=jax", 3),
    ("binning:smallest=256,largest=1KiB,of=rmm_pool", 8),  # a bin served blocks of other pools
]


def test_no_sequence_breaks_a_rule(case: Case) -> None:
    figures = sequences.Figures()
    assert not sequences.one(case, 1_000_000, figures)
    assert figures.sequences == 1
    assert figures.calls > sequences.CALLS


@pytest.mark.parametrize(("spec", "seed"), ONCE_FAILED)
def test_sequences_that_once_failed(spec: str, seed: int) -> None:
    assert not sequences.one(Case(spec), seed, sequences.Figures())


def test_a_broken_rule_is_found_and_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    """A judge that counts every free twice disagrees with the allocator after the first one."""
    free = Watched.free

    def miscounting(watched: Watched, block: int, stream: int = 0) -> int:
        address = free(watched, block, stream)
        watched.judge.frees += 1
        return address

    monkeypatch.setattr(Watched, "free", miscounting)
    first, second = (sequences.one(Case("bfc"), 5, sequences.Figures()) for _ in range(2))
    assert first == second
    assert first is not None
    assert "served, freed and refused requests are counted" in str(first)
    assert "bfc, seed 5, call" in str(first)
