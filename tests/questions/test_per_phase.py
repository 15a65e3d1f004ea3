# SPDX-License-Identifier: Apache-2.0
"""allocbench tune --per-phase: the search, the calls that it prints, and the output."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from allocbench import allocators, api
from allocbench.allocators import Change, SpecError
from allocbench.allocators.replays import CALL_KINDS
from allocbench.questions.per_phase import Choice, Phase, calls, changes, frame, tune
from allocbench.replays.runner import Runner
from allocbench.workloads import ALLOC, FREE, MARK, Provenance, Trace, write
from tests.commands import error, folder, output
from tests.traces import Event, make

__all__ = ["folder"]  # the fixture, by its import

DEVICE = "sim:80GiB"
MIB = 1 << 20
PHASES = (Phase("load", 0, 4), Phase("steady", 4, 32))


def divided() -> Trace:
    """Blocks that fill segments of 12 MiB, and then, on another stream, blocks for 20 MiB.

    The program shares memory between processes, which expandable segments would break.
    """
    weights: list[Event] = [(ALLOC, block, 3 * MIB) for block in range(4)]
    step: list[Event] = [(MARK, 0, 0), *((ALLOC, block, 6 * MIB) for block in (4, 5, 6))]
    step += [(FREE, block, 0) for block in (4, 5, 6)]
    stream = np.array([0] * 4 + [1] * 28, np.uint16)
    told = Provenance(name="divided", torch="2.13.0", extra={"features": ["cuda_ipc"]})
    return make([*weights, *(step * 4)], labels=("step",), stream=stream, provenance=told)


def test_settings_by_phase_save_what_no_single_setting_can() -> None:
    found = tune(divided(), "caching", DEVICE, PHASES, budget=60)
    assert found.helps
    assert found.single.least is not None
    assert found.best is not None
    # Segments of 12 MiB for the weights and of 20 MiB for the steps; one size wastes 6 or 10 MiB.
    assert found.best.capacity == 32 * MIB
    assert found.single.least.capacity == 36 * MIB
    assert [choice.spec for choice in found.best.plan] == [
        "caching:large_segment_size_mb=12",
        "caching",
    ]
    assert found.best.changes == (Change(4, settings="large_segment_size_mb:20"),)
    assert all("expandable" not in trial.spec for trial in found.trials)


def test_the_rows_are_those_of_replays_with_the_calls() -> None:
    trace = divided()
    run = Runner(trace, DEVICE)
    found = tune(trace, "caching", DEVICE, PHASES, budget=60, runner=run)
    table = frame(found, run)
    assert table["arrangement"].tolist() == ["default"] * 2 + ["one setting"] * 2 + ["by phase"] * 2
    assert table["best"].tolist() == [False] * 4 + [True] * 2
    assert table["peak_reserved"].tolist() == [size * MIB for size in (20, 40, 12, 36, 12, 32)]
    assert table["max_load"].tolist() == [size * MIB for size in (12, 30)] * 3
    assert (table["wasted"] == table["peak_reserved"] - table["max_load"]).all()
    assert table["calls"].tolist()[:5] == [""] * 5
    (line,) = table["calls"].tolist()[5:]
    assert line == 'torch.cuda.memory._set_allocator_settings("large_segment_size_mb:20")'
    assert table["min_capacity"].tolist() == [size * MIB for size in (40, 40, 36, 36, 32, 32)]


def test_one_setting_is_kept_where_it_is_as_good() -> None:
    trace = make(
        [(ALLOC, 0, 2 * MIB), *([(MARK, 0, 0), (ALLOC, 1, 4 * MIB), (FREE, 1, 0)] * 4)],
        labels=("step",),
    )
    found = tune(trace, "caching", DEVICE, [Phase("load", 0, 1), Phase("steady", 1, 13)], budget=15)
    assert not found.helps
    assert found.best is not None
    assert found.best.changes == ()
    table = frame(found, Runner(trace, DEVICE))
    assert set(table["arrangement"]) == {"default"}


def test_the_plans_are_always_the_same() -> None:
    one, other = (tune(divided(), "caching", DEVICE, PHASES, budget=30) for _ in range(2))
    assert one.trials == other.trials


@pytest.mark.parametrize(("of_plans", "after", "kept"), [(False, 5, 0), (True, 1, 0), (True, 4, 3)])
def test_an_interrupt_keeps_what_was_found(of_plans: bool, after: int, kept: int) -> None:
    begun: list[str] = []

    def begin(what: str) -> None:
        if what.startswith("load: ") == of_plans:
            begun.append(what)
        if len(begun) == after:
            raise KeyboardInterrupt

    run = Runner(divided(), DEVICE)
    found = tune(run.trace, "caching", DEVICE, PHASES, budget=9, begin=begin, runner=run)
    assert found.interrupted
    assert len(found.trials) >= kept
    assert bool(found.trials) == bool(kept)
    assert found.single.least is not None
    assert "default" in set(frame(found, run)["arrangement"])


def plan(*specs: str) -> list[Choice]:
    return [Choice(spec) for spec in specs]


def made(trace: Trace, *specs: str) -> list[str | None]:
    phases = [Phase(str(n), n, n + 1) for n in range(len(specs))]
    return [change.settings for change in changes(plan(*specs), phases, trace)]


def test_a_call_names_the_defaults_of_what_pytorch_does_not_reset() -> None:
    trace = divided()
    expandable = "caching:expandable_segments=true"
    assert made(trace, "caching", expandable) == ["expandable_segments:True"]
    assert made(trace, expandable, "caching") == ["expandable_segments:False"]
    assert made(trace, expandable, "caching:max_split_size_mb=64") == [
        "max_split_size_mb:64,expandable_segments:False"
    ]
    assert made(trace, "caching:max_split_size_mb=64", "caching") == [""]
    assert made(trace, expandable, expandable) == []
    assert made(trace, "caching:large_segment_size_mb=64", expandable, "caching") == [
        "expandable_segments:True,large_segment_size_mb:20",
        "expandable_segments:False",
    ]
    rounding = "caching:max_non_split_rounding_mb=64"
    assert made(trace, rounding, "caching") == [""]  # 2.13 resets it
    old = replace(trace, provenance=Provenance(torch="2.10.0"))
    assert made(old, rounding, "caching") == ["max_non_split_rounding_mb:20"]


def test_the_calls_put_a_plan_into_force() -> None:
    """After the calls, every setting is that of the plan, as the allocator behaves."""
    specs = [
        "caching:expandable_segments=true,roundup_power2_divisions=4",
        "caching:large_segment_size_mb=64",
        "caching",
    ]
    size = 5 * MIB + 1
    trace = make([(ALLOC, 0, size), (FREE, 0, 0), (ALLOC, 0, size), (FREE, 0, 0)] * 2)
    phases = [Phase("a", 0, 2), Phase("b", 2, 5), Phase("c", 5, 8)]
    found = changes(
        [Choice(specs[0]), Choice(specs[1], True), Choice(specs[2], True)], phases, trace
    )
    instance = allocators.make(specs[0], allocators.SimulatedDevice("1GiB"))
    result = allocators.replay(trace, instance, placements=True, changes=found, detail=True)
    assert result.placements["size"].tolist() == [6 * MIB, *[5 * MIB + 512] * 3]
    assert result.detail is not None
    device = result.detail["device_calls"]
    kinds = [CALL_KINDS[kind] for kind in device["kind"].tolist()]
    assert kinds == ["map", "unmap", "malloc"]
    assert device["size"].tolist()[-1] == 64 * MIB


def test_the_printed_lines_are_python() -> None:
    lines = calls(Change(3, True, "expandable_segments:True"))
    compile("\n".join(lines), "snippet", "exec")
    assert lines[0] == "torch.cuda.empty_cache()"
    assert calls(Change(3, settings="")) == ['torch.cuda.memory._set_allocator_settings("")']


@pytest.mark.parametrize("spec", ["bfc", "check:of=caching"])
def test_other_allocators_cannot_be_tuned_by_phase(spec: str) -> None:
    with pytest.raises(SpecError, match="no settings that can change"):
        tune(divided(), spec, DEVICE, PHASES)
    assert "only caching, without wrappers" in error(
        f"tune good.csv --per-phase --allocator {spec}"
    )


def test_the_command_prints_the_calls() -> None:
    write(divided(), "divided.parquet")
    shown = output("tune divided.parquet --per-phase --phases load=0,steady=step1 --budget 60")
    words = " ".join(shown.split())
    assert "With settings by phase, the program needs 32.0 MiB" in words
    assert "best single setting (36.0 MiB): 11.1% less memory" in words
    assert "before the program starts (load): export PYTORCH_CUDA_ALLOC_CONF=large" in words
    assert (
        "before step 1, event 4, where steady begins:\n"
        '    torch.cuda.memory._set_allocator_settings("large_segment_size_mb:20")\n'
    ) in shown
    rows: list[dict[str, Any]] = json.loads(
        output("tune divided.parquet --per-phase --budget 12 --json -")
    )
    assert {row["phase"] for row in rows} == {"load", "steady"}


def test_the_command_says_that_one_setting_is_as_good() -> None:
    shown = output("tune resnet50-train --per-phase --budget 8")
    assert re.search(r"Settings by phase do not help: (the default|one setting)", shown)
    assert "_set_allocator_settings" not in shown


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("--phases load=0,b=1", "--phases needs --per-phase"),
        ("--per-phase", "no steps and no captures"),
        ("--per-phase --phases load=0", "a single phase; settings by phase need two"),
        ("--per-phase --phases load=0,x=99", "there is no event 99"),
    ],
)
def test_bad_phases_are_one_line(line: str, said: str) -> None:
    assert said in error(f"tune good.csv {line}")


def test_from_python() -> None:
    table = api.tune_by_phase(divided(), phases="load=0,steady=4", budget=20)
    assert set(table["phase"]) == {"load", "steady"}
