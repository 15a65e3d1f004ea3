# SPDX-License-Identifier: Apache-2.0
"""Any sequence of calls on any strategy: all rules hold after each call."""

from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from allocbench import allocators
from tests.conftest import CASES, MIB, Case
from tests.oracle import Watched

POWERS = [1 << power for power in range(8, 24)]
SIZES = sorted(
    {1, 2, 100, 768, 3 * MIB, 5 * MIB} | {p + d for p in (*POWERS, MIB) for d in (-1, 0, 1)}
)


class Calls(RuleBasedStateMachine):
    """Small devices, so that requests are refused; faulty ones, so that they are refused early."""

    case: Case
    watched: Watched
    freed: list[int]

    @initialize(
        capacity=st.sampled_from([MIB, 3 * MIB + 77, 8 * MIB, 16 * MIB]),
        faults=st.sampled_from(
            [{}, {}, {"fail_rate": 0.3}, {"fail_call": 2}, {"fail_above": 2 * MIB}]
        ),
        seed=st.integers(0, 3),
    )
    def begin(self, capacity: int, faults: dict[str, Any], seed: int) -> None:
        self.watched = self.case.make(capacity, seed=seed, **faults)
        self.freed = []

    @rule(size=st.sampled_from(SIZES))
    def allocate(self, size: int) -> None:
        self.watched.allocate(size)

    @rule(less=st.sampled_from([-1, 0, 1, 256, MIB]))
    def allocate_about_the_capacity(self, less: int) -> None:
        self.watched.allocate(max(1, self.watched.judge.capacity - less))

    @rule(count=st.integers(1, 6), size=st.sampled_from(SIZES))
    def allocate_alike(self, count: int, size: int) -> None:
        for _ in range(count):
            self.watched.allocate(size)

    @precondition(lambda self: self.watched.live)
    @rule(pick=st.integers(0, 99))
    def free(self, pick: int) -> None:
        live = self.watched.live
        self.freed.append(self.watched.free(live[pick % len(live)]))

    @precondition(lambda self: self.watched.live)
    @rule()
    def free_all(self) -> None:
        self.watched.free_all()

    @rule()
    def trim(self) -> None:
        self.watched.trim()

    @rule()
    def step(self) -> None:
        self.watched.step()

    @rule(pick=st.integers(0, 99), shift=st.sampled_from([0, 1, -1, 256, 1024]))
    def free_what_is_not_allocated(self, pick: int, shift: int) -> None:
        known = [live.address for live in self.watched.judge.live.values()]
        known += self.freed
        address = known[pick % len(known)] + shift if known else 1 << 41
        if address not in {live.address for live in self.watched.judge.live.values()}:
            with pytest.raises(allocators.BadFree):
                self.watched.allocator.deallocate(address)

    @invariant()
    def all_rules_hold(self) -> None:
        if hasattr(self, "watched"):
            self.watched.verify()

    def teardown(self) -> None:
        if hasattr(self, "watched"):
            self.watched.free_all()
            self.watched.trim()
            assert self.watched.allocator.device.reserved == 0


@pytest.mark.parametrize("case", CASES, ids=str)
def test_no_sequence_of_calls_breaks_a_rule(case: Case) -> None:
    machine = type("CallsOf", (Calls,), {"case": case})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=30 if case.spec == case.info.name else 15,
            stateful_step_count=40,
            suppress_health_check=[HealthCheck.too_slow],
        ),
    )
