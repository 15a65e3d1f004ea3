# SPDX-License-Identifier: Apache-2.0
"""What changed between two traces: parts by hand, and that they always add up."""

import json
from collections import Counter
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from allocbench import api
from allocbench.commands.diff import _parts, _words
from allocbench.questions.diff import Difference, FirstChange, Side, _alike, diff
from allocbench.workloads import ALLOC, FREE, MARK, Provenance, Trace, catalog, write
from tests.commands import folder, run
from tests.traces import make, valid_traces

__all__ = ["folder"]  # the fixture, by its import
MIB = 1 << 20
DEVICE = "sim:4GiB"
Row = tuple[int, int, int, str]  # op, block, bytes, line


def program(*rows: Row, **about: Any) -> Trace:
    """A trace whose allocs have lines, and whose marks begin steps."""
    lines = sorted({line for *_, line in rows} - {""})
    labels = ("", "step", *lines)
    column = np.array([labels.index(line) for *_, line in rows], np.uint32)
    events = [(op, 1 if op == MARK else block, size) for op, block, size, _ in rows]
    return make(events, labels=labels, label=np.zeros(len(rows), np.uint32), line=column, **about)


def between(old: Trace, new: Trace, spec: str = "caching", other: str = "") -> Difference:
    return diff(Side("old", old, spec), Side("new", new, other or spec), DEVICE)


def parts(found: Difference) -> dict[str, tuple[str, int, int, int]]:
    """By what it is and its line: how, change and numbers of blocks."""
    return {
        row["place"] or row["what"]: (
            row["how"],
            row["change"],
            *(0 if row[name] is None else int(row[name]) for name in ("old_blocks", "new_blocks")),
        )
        for row in found.rows.replace({np.nan: None}).to_dict("records")
    }


STEP = (MARK, 0, 0, "")
OLD = program(
    (ALLOC, 0, 40 * MIB, "net.py:3 load"),
    (ALLOC, 1, 24 * MIB, "net.py:7 forward"),
    STEP,
    (ALLOC, 2, 30 * MIB, "net.py:9 forward"),
    (FREE, 2, 0, ""),
    (ALLOC, 3, 20 * MIB, "net.py:12 loss"),
    (FREE, 3, 0, ""),
)


def test_every_way_of_changing() -> None:
    """naive reserves what is requested, so that the peak is that of the load."""
    new = program(
        (ALLOC, 0, 40 * MIB, "net.py:3 load"),
        (ALLOC, 1, 32 * MIB, "net.py:7 forward"),  # larger
        STEP,
        (ALLOC, 2, 30 * MIB, "net.py:9 forward"),
        (ALLOC, 3, 20 * MIB, "net.py:12 loss"),  # the block before is freed later
        (ALLOC, 4, 6 * MIB, "other.py:1 f"),  # new
        (FREE, 2, 0, ""),
        (FREE, 3, 0, ""),
    )
    found = between(OLD, new, "naive")
    assert (found.old_peak.reserved, found.new_peak.reserved) == (94 * MIB, 128 * MIB)
    assert parts(found) == {
        "net.py:12 loss": ("at another moment", 20 * MIB, 0, 1),
        "net.py:7 forward": ("larger", 8 * MIB, 1, 1),
        "other.py:1 f": ("new", 6 * MIB, 0, 1),
    }
    assert found.first == FirstChange(
        (1, 1), 0, ("requests 24.0 MiB (net.py:7 forward)", "requests 32.0 MiB (net.py:7 forward)")
    )
    back = between(new, OLD, "naive")
    assert parts(back) == {
        "net.py:12 loss": ("at another moment", -20 * MIB, 1, 0),
        "net.py:7 forward": ("smaller", -8 * MIB, 1, 1),
        "other.py:1 f": ("gone", -6 * MIB, 1, 0),
    }


def test_a_line_is_named_also_where_free_memory_grew_most() -> None:
    """Two freed segments of 100 MiB serve none of two blocks of 130 MiB."""
    early = [(ALLOC, n, 100 * MIB, "net.py:5 load") for n in (1, 2)]
    late = [(ALLOC, n, 130 * MIB, f"net.py:{n} forward") for n in (3, 4)]
    small = (ALLOC, 0, 21 * MIB, "net.py:1 f")
    new = program(small, *early, (FREE, 1, 0, ""), (FREE, 2, 0, ""), *late)
    found = between(program(small), new)
    assert found.rows.iloc[0]["what"] == "free"
    assert any(f"net.py:{n} forward" in _words(found)[0] for n in (3, 4))
    by_rules = between(new, new, "caching", "naive")
    assert "net.py" not in _words(by_rules)[0]


def test_a_new_block_names_the_line_that_calls_its_line() -> None:
    """`forward` is not new; `g` is called by one line, and `h` by two."""
    load = (ALLOC, 0, 40 * MIB, "net.py:7 forward")
    added = ((1, "net.py:8 g"), (2, "net.py:9 h"), (3, "net.py:9 h"))
    new = program(load, *((ALLOC, n, 4 * MIB, line) for n, line in added))
    stacks = ("net.py:7 forward", *(f"net.py:{n} <module>;inner" for n in (20, 21, 22)))
    first = len(new.labels)
    stack = np.arange(first, first + len(stacks), dtype=np.uint32)
    found = between(
        program(load), replace(new, labels=(*new.labels, *stacks), stack=stack), "naive"
    )
    assert found.rows.set_index("place")["caller"].to_dict() == {
        "net.py:8 g": "net.py:20 <module>",
        "net.py:9 h": "",
    }
    called = "blocks: net.py:8 g (new, called by net.py:20 <module>)"
    assert [part[3] for part in _parts(found, 9)] == [
        *("blocks: net.py:9 h (new)", called, "peak reserved, the sum")
    ]


def test_parts_below_a_thousandth_of_the_largest_are_one() -> None:
    load = (ALLOC, 0, 40 * MIB, "net.py:7 forward")
    small = [(ALLOC, n, size, f"net.py:{n} f") for n, size in ((2, 4000), (3, 90), (4, 4200))]
    found = between(
        program(load), program(load, (ALLOC, 1, 4 * MIB, "net.py:8 g"), *small), "naive"
    )
    assert [part[0::3] for part in _parts(found, 9)] == [
        ("+4.00 MiB", "blocks: net.py:8 g (new)"),
        ("+4.10 KiB", "blocks: net.py:4 f (new)"),
        ("+3.99 KiB", "2 smaller parts"),
        ("+4.01 MiB", "peak reserved, the sum"),
    ]


def test_blocks_that_are_freed_later_and_more_blocks() -> None:
    def repeated(later: int, times: int = 4) -> Trace:
        rows: list[Row] = []
        for n in range(times):
            rows += [STEP, (ALLOC, n, 10 * MIB, "train.py:5 step")]
            if n >= later:
                rows.append((FREE, n - later, 0, ""))
        return program(*rows)

    assert parts(between(repeated(0), repeated(2), "naive")) == {
        "train.py:5 step": ("freed later", 20 * MIB, 1, 3)
    }
    assert parts(between(repeated(2), repeated(0), "naive")) == {
        "train.py:5 step": ("freed earlier", -20 * MIB, 3, 1)
    }
    assert parts(between(repeated(1, 4), repeated(3, 5), "naive")) == {
        "train.py:5 step": ("more blocks", 20 * MIB, 2, 4)
    }
    # The first step is the same; the second frees its block in one trace only.
    found = between(repeated(0), repeated(1), "naive").first
    assert found == FirstChange(
        (2, 3), 1, ("frees 10.0 MiB (train.py:5 step)", "requests 10.0 MiB (train.py:5 step)")
    )


def test_a_last_segment_when_little_is_in_use_hides_nothing() -> None:
    """The small alloc takes a segment of 2 MiB more, when the activations are freed already."""
    old, new = (
        program((ALLOC, 0, size, "a.py:1 f"), (FREE, 0, 0, ""), (ALLOC, 1, 512, "a.py:9 g"))
        for size in (40 * MIB, 64 * MIB)
    )
    found = between(old, new)
    assert (found.old_peak.reserved, found.new_peak.reserved) == (42 * MIB, 66 * MIB)
    assert parts(found) == {"a.py:1 f": ("larger", 24 * MIB, 1, 1)}


def test_rounding_and_segments_are_parts() -> None:
    """PyTorch: 1,000 B take 1,024 B of a segment of 2 MiB, 11 MiB a whole segment of 12 MiB."""
    found = between(
        program((ALLOC, 0, 1000, "a.py:1 f")), program((ALLOC, 0, 11 * MIB, "a.py:1 f"))
    )
    assert (found.old_peak.reserved, found.new_peak.reserved) == (2 * MIB, 12 * MIB)
    assert parts(found) == {
        "a.py:1 f": ("larger", 11 * MIB - 1000, 1, 1),
        "rounding": ("", MIB - 24, 0, 0),  # 1 MiB is not split off
        "free in small segments": ("", 1024 - 2 * MIB, 0, 0),
    }


def test_what_the_program_changes_and_what_the_allocator_changes() -> None:
    old, new = (program((ALLOC, 0, size, "a.py:1 f")) for size in (3 * MIB, 5 * MIB))
    found = between(old, new, "naive", "caching")
    # Under the rules of naive, 5 MiB are reserved; PyTorch takes a segment of 20 MiB.
    assert [peak.reserved for peak in (found.old_peak, found.between, found.new_peak)] == [
        3 * MIB,
        5 * MIB,
        20 * MIB,
    ]
    rows = found.rows.set_index("cause")["change"].to_dict()
    assert rows == {"allocator": 15 * MIB, "program": 2 * MIB}


def test_recorded_settings_are_rules_of_their_side_only() -> None:
    trace = program((ALLOC, 0, 5 * MIB, "a.py:1 f"))
    settings = Provenance(extra={"settings": {"expandable_segments": "true"}})
    found = between(trace, replace(trace, provenance=settings))
    assert [peak.reserved for peak in (found.old_peak, found.between, found.new_peak)] == [
        20 * MIB,
        20 * MIB,
        20 * MIB,
    ]
    small = program((ALLOC, 0, 1000, "a.py:1 f"), (ALLOC, 1, 12 * MIB, "a.py:2 f"))
    found = between(small, replace(small, provenance=settings))
    assert set(found.rows["cause"]) == {"allocator"}
    assert found.between == found.old_peak
    assert found.new_peak.reserved - found.old_peak.reserved == found.rows["change"].sum()


def test_a_line_that_has_moved_is_the_same_line() -> None:
    lines = {"net.py:7 forward": "net.py:8 forward", "net.py:9 forward": "net.py:11 forward"}
    moved = replace(OLD, labels=tuple(lines.get(label, label) for label in OLD.labels))
    assert between(OLD, moved, "naive").rows.empty
    renamed = replace(
        OLD, labels=tuple(label.replace("net.py", "net_2.py") for label in OLD.labels)
    )
    assert between(OLD, renamed, "naive").rows.empty
    inserted = program(
        (ALLOC, 0, 8 * MIB, "net.py:5 forward"),
        (ALLOC, 1, 8 * MIB, "net.py:6 forward"),
        (ALLOC, 2, 8 * MIB, "net.py:6 forward"),
    )
    before = program(
        (ALLOC, 0, 8 * MIB, "net.py:5 forward"), (ALLOC, 1, 8 * MIB, "net.py:5 forward")
    )
    # The line with two blocks is that which has moved from 5 to 6.
    assert parts(between(before, inserted, "naive")) == {"net.py:5 forward": ("new", 8 * MIB, 0, 1)}


def test_a_line_that_has_moved_and_grown_is_the_same_line() -> None:
    before = program((ALLOC, 0, 4 * MIB, "net.py:5 step"), (ALLOC, 1, 9 * MIB, "net.py:5 step"))
    after = program(
        (ALLOC, 0, 9 * MIB, "net.py:5 step"),
        (ALLOC, 1, 4 * MIB, "net.py:6 step"),
        (ALLOC, 2, 9 * MIB, "net.py:6 step"),
        (ALLOC, 3, 2 * MIB, "net.py:6 step"),
    )
    assert parts(between(before, after, "naive")) == {
        "net.py:5 step": ("new", 9 * MIB, 0, 1),
        "net.py:6 step": ("more blocks", 2 * MIB, 2, 3),
    }


@given(*2 * [st.lists(st.lists(st.sampled_from([1, 2, 9]), max_size=4), max_size=5)])
def test_lines_are_paired_in_order_with_the_most_blocks_in_common(
    old: list[list[int]], new: list[list[int]]
) -> None:
    sides = [[Counter(sizes) for sizes in side] for side in (old, new)]

    def shared(first: int, second: int) -> int:
        return (sides[0][first] & sides[1][second]).total()

    def best(first: int, second: int) -> int:
        if first == len(old) or second == len(new):
            return 0
        both = shared(first, second) + best(first + 1, second + 1)
        return max(both, best(first + 1, second), best(first, second + 1))

    pairs = _alike(*sides)
    assert all(a < c and b < d for (a, b), (c, d) in pairwise(pairs))
    assert sum(shared(*pair) for pair in pairs) == best(0, 0)
    assert all(shared(*pair) for pair in pairs)


def test_kinds_and_modules_that_one_trace_does_not_have_do_not_tell_blocks_apart() -> None:
    trace = catalog.load("gpt2-train")
    assert between(trace, replace(trace, module=None)).rows.empty
    assert between(trace, trace).rows.empty
    kind = np.where(OLD.op == ALLOC, len(OLD.labels), 0).astype(np.uint32)
    told = replace(OLD, labels=(*OLD.labels, "parameters"), kind=kind)
    assert between(OLD, told).rows.empty


@given(valid_traces(), valid_traces(), st.sampled_from(["caching", "naive", "bfc", "buddy"]))
def test_the_parts_add_up(old: Trace, new: Trace, other: str) -> None:
    old, new = (replace(trace, size=trace.size % np.uint64(2**40)) for trace in (old, new))
    old, new = (replace(trace, size=trace.size + (trace.op == ALLOC)) for trace in (old, new))
    found = between(old, new, "caching", other)
    assert found.rows["change"].sum() == found.change
    causes = found.rows.groupby("cause")["change"].sum()
    assert causes.get("program", 0) == found.between.reserved - found.old_peak.reserved
    assert (found.rows["change"] == found.rows["new"] - found.rows["old"]).all()
    same = between(old, old)
    assert (same.change, len(same.rows), same.first) == (0, 0, None)


def test_the_command(folder: Path) -> None:
    write(OLD, "old.parquet")
    write(replace(OLD, size=OLD.size * np.uint64(2)), "new.parquet")
    shown = run("diff old.parquet new.parquet --allocators naive")
    assert shown.exit_code == 0
    assert "new reserves 188 MiB at its peak, 94.0 MiB more than old (94.0 MiB)" in shown.stdout
    rows = json.loads(run("diff old.parquet new.parquet --allocators naive --json -").stdout)
    assert sum(row["change"] for row in rows[:-1]) == rows[-1]["change"] == 94 * MIB
    table = api.diff(OLD, replace(OLD, size=OLD.size * np.uint64(2)), "naive")
    assert table["change"].iloc[-1] == 94 * MIB
    both = "caching,caching:expandable_segments=true"
    for line in ("diff gpt2-train --versions 2.9.1,2.13.0", f"diff gpt2-train --allocators {both}"):
        rows = json.loads(run(f"{line} --json -").stdout)
        assert {row["cause"] for row in rows[:-1]} == {"allocator"}
        assert sum(row["change"] for row in rows[:-1]) == rows[-1]["change"]
