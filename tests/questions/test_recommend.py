# SPDX-License-Identifier: Apache-2.0
"""allocbench recommend: what it tries, and the command."""

import pytest

from allocbench.questions.best import stages
from allocbench.replays.runner import Runner
from allocbench.workloads import ALLOC, catalog, write
from tests.commands import folder, output
from tests.questions import studied
from tests.traces import make

__all__ = ["folder"]  # the fixture, by its import

MIB = 1 << 20
EXPANDABLE = "caching:conf=expandable_segments:True"


def test_a_study_runs_all_and_remembers() -> None:
    begun: list[str] = []
    run = Runner(catalog.load("gpt2-train"), "sim:8GiB")
    found = studied(run, orders=1, budget=0, begin=begun.append)
    assert found.advice.chosen == EXPANDABLE
    assert len(begun) <= stages(0)
    again = Runner(run.trace, "sim:8GiB")
    table = found.rows.set_index("allocator")
    assert dict(table["min_capacity"]) == {spec: again.min_capacity(spec) for spec in table.index}
    assert dict(table["failures"] == 0) == {spec: again.completes(spec) for spec in table.index}
    assert set(table["cost"].dropna().index) == {
        spec for spec in table.index if run.completes(spec)
    }
    assert table.index[0] == EXPANDABLE
    assert set(table["recommended"]) == set(table["best_setting"]) == {EXPANDABLE}


def test_a_load_that_exceeds_the_device_is_the_reason() -> None:
    write(make([(ALLOC, 0, 3 * MIB)]), "three.csv")
    shown = output("recommend three.csv --device sim:2MiB --orders 0 --budget 0")
    assert (
        "\nrecommended: none, because 3.00 MiB are in use at once, more than sim:2MiB has\n"
        in shown
    )
    shown = output("recommend three.csv --device sim:3MiB --orders 0 --budget 0")
    assert "recommended: none" not in shown


def test_an_interrupt_while_settings_are_tried_ends_it() -> None:
    begun: list[str] = []

    def begin(what: str) -> None:
        begun.append(what)
        if len(begun) == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        studied(Runner(make([(ALLOC, 0, 3 * MIB)]), "sim:20MiB"), orders=0, budget=20, begin=begin)
    assert len(begun) == 5
