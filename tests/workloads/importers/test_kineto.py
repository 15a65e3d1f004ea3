# SPDX-License-Identifier: Apache-2.0
"""Profiler traces: one written by PyTorch during the test, and others in the form of GPUs."""

import json
import random
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from allocbench.workloads import ALLOC, MARK, Trace, read
from allocbench.workloads.importers import json_elements
from tests.commands import folder
from tests.work import lines_run

__all__ = ["folder"]  # the fixture, by its import


def memory(time: float, address: int, size: int, device: int = 0, kind: int = 1) -> dict[str, Any]:
    args = {"Bytes": size, "Addr": address, "Device Type": kind, "Device Id": device}
    return {"ph": "i", "name": "[memory]", "pid": 1, "tid": 1, "ts": time, "args": args}


def ran(name: str, begin: float, duration: float, **others: Any) -> dict[str, Any]:
    event = {"ph": "X", "cat": "cpu_op", "name": name, "pid": 1, "tid": 1, "ts": begin}
    return event | {"dur": duration} | others


def profile(*events: Any, **members: Any) -> Path:
    path = Path("profile.dat")
    path.write_text(json.dumps({"schemaVersion": 1, **members, "traceEvents": [*events]}))
    return path


def labels(trace: Trace) -> list[str]:
    assert trace.label is not None
    return [trace.labels[n] for n in trace.label]


def test_snapshots_as_pytorch_writes_them() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU())
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True
    ) as profiler:
        for step in range(3):
            with torch.profiler.record_function(f"ProfilerStep#{step}"):
                model(torch.randn(16, 64)).sum().backward()
                model.zero_grad()
    profiler.export_chrome_trace("profile.json")
    trace = read("profile.json")
    written = json.loads(Path("profile.json").read_text())["traceEvents"]
    events = sorted((e for e in written if e["name"] == "[memory]"), key=lambda e: e["ts"])
    assert len(events) > 30
    assert trace.provenance.live_at_start == 0
    of_memory = trace.op != MARK
    held = accumulate(event["args"]["Bytes"] for event in events)
    size = dict(zip(trace.block[trace.op == ALLOC], trace.size[trace.op == ALLOC], strict=True))
    signs = zip(trace.op[of_memory], trace.block[of_memory], strict=True)
    load = accumulate(int(size[block]) * (1 if op == ALLOC else -1) for op, block in signs)
    assert list(load) == list(held)
    assert trace.steps == 3
    assert {"aten::addmm", "aten::mm"} <= set(labels(trace))
    assert trace.provenance.device == "cpu"


@pytest.mark.parametrize("digits", range(1, 12))
def test_a_number_where_one_part_ends_and_the_next_begins(digits: int) -> None:
    text = json.dumps({"traceEvents": [memory(1, 1, 7)], "a": "x"})[:-2]
    text += "x" * ((1 << 20) - len(text) - digits - 8) + '", "b": 1234567890}'
    Path("profile.dat").write_text(text)
    assert text[(1 << 20) - digits :].startswith("1234567890}"[: digits + 1])
    assert len(read("profile.dat")) == 1


@pytest.mark.parametrize("part", [1, 2, 3, 5, 1 << 20])
def test_backslashes_that_escape_nothing_stand_for_themselves(
    part: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(json_elements, "_PART", part)
    written = [
        "C:\\Users\\me",
        "a\\\\b",
        "\\u00e9\\q",
        "\\u12",
        "\\ud83d\\ude00 \\U",
        "\\/\\xff",
        "C:\\new\\train.py",
        "q",
    ]
    meant = ["C:\\Users\\me", "a\\b", "\u00e9\\q", "\\u12", "\U0001f600 \\U", "/\\xff"]
    meant += ["C:\\new\\train.py", "q"]
    events = [
        event
        for n in range(len(written))
        for event in (ran(f"NAME{n}.", n, 1), memory(n + 0.5, n + 1, 7))
    ]
    path = profile(*events)
    text = path.read_text()
    for n, name in enumerate(written):
        text = text.replace(f"NAME{n}.", name)
    path.write_text(text)
    assert labels(read(path)) == meant


def nested(depth: int, name: str) -> Path:
    """As many allocs within as many operators that begin one after another and never end."""
    return profile(
        *(ran(name, n, 10_000_000) for n in range(depth)),
        *(memory(depth + n, n + 1, 512) for n in range(depth)),
    )


@pytest.mark.parametrize("name", ["aten::addmm", "aten::empty"])
def test_nested_operators_take_linear_work(name: str) -> None:
    once, twice = (lines_run(partial(read, nested(n, name))) for n in (500, 1000))
    assert twice < 2.2 * once


def test_the_label_is_the_innermost_operator_that_still_runs() -> None:
    rng = random.Random(0)
    operators = [
        (rng.randrange(50), rng.randrange(50), rng.choice(["aten::mm", "aten::empty", "aten::add"]))
        for _ in range(60)
    ]
    path = profile(
        *(ran(f"{name}.{n}", begin, length) for n, (begin, length, name) in enumerate(operators)),
        *(memory(time, time + 1, 512) for time in range(100)),
    )
    expected = []
    for time in range(100):
        running = [
            (begin, -length, n)
            for n, (begin, length, _) in enumerate(operators)
            if begin <= time <= begin + length
        ]
        computing = [entry for entry in running if operators[entry[2]][2] != "aten::empty"]
        last = max(computing or running, default=None)
        expected.append(f"{operators[last[2]][2]}.{last[2]}" if last else "")
    assert labels(read(path)) == expected


PAGE = 2 << 20
BASE = 64 * PAGE
Totals = tuple[int, int, int, int]  # address, bytes, total allocated and total reserved after it


@pytest.mark.parametrize(
    ("events", "held", "layout", "coverage"),
    [
        # The program begins with the profile.
        ([(BASE, 512, 512, PAGE), (BASE, -512, 0, PAGE)], [], None, (0, 0, 0)),
        # The first segment of a request for 3 MiB has 20 MiB; with more, some came before.
        ([(BASE, 3 * PAGE // 2, 3 * PAGE // 2, 10 * PAGE)], [], None, (0, 0, 0)),
        ([(BASE, 3 * PAGE // 2, 3 * PAGE // 2, 11 * PAGE)], [], None, (11 * PAGE, 0, 0)),
        # 1,536 bytes lie in front of the first block; the second level needs another segment.
        (
            [(BASE + 1536, 512, 2048, PAGE), (9 * BASE, 1024, 3072, 2 * PAGE)],
            [1536],
            ([BASE], [BASE]),
            (PAGE, 1536, 1536),
        ),
        # Two segments; nothing lies in front of the block in the higher one.
        (
            [(BASE + 512, 512, 1024, 2 * PAGE), (9 * BASE, 512, 1536, 2 * PAGE)],
            [512],
            ([BASE, 9 * BASE], [BASE]),
            (2 * PAGE, 512, 512),
        ),
        # A large segment: what lies in it is one block at no address of the events.
        (
            [(BASE, 512, 1512, 10 * PAGE), (BASE, -512, 1000, 10 * PAGE)],
            [1000],
            None,
            (10 * PAGE, 1000, 1000),
        ),
        # A block from before is freed, so its address is known. 488 more bytes are not.
        ([(BASE, -512, 488, PAGE), (BASE, 256, 744, PAGE)], [488, 512], None, (PAGE, 1000, 488)),
        # The second total does not follow: 4 MiB came in between.
        (
            [(BASE, 512, 512, PAGE), (9 * BASE, PAGE, 3 * PAGE + 512, 4 * PAGE)],
            [2 * PAGE],
            None,
            (0, 0, 2 * PAGE),
        ),
    ],
)
def test_what_was_held_before_the_first_event(
    events: list[Totals],
    held: list[int],
    layout: tuple[list[int], list[int]] | None,
    coverage: tuple[int, int, int],
) -> None:
    """layout: addresses of segments and blocks. coverage: held, live, unseen bytes."""
    written = []
    for time, (address, size, allocated, reserved) in enumerate(events, 1):
        event = memory(time, address, size)
        event["args"] |= {"Total Allocated": allocated, "Total Reserved": reserved}
        written.append(event)
    trace = read(profile(*written))
    count = trace.provenance.live_at_start
    assert sorted(trace.size[:count].tolist()) == held
    found = trace.layout
    told = found and (found.address.tolist(), found.block_address.tolist())
    assert told == layout
    assert found is None or set(found.size.tolist()) == {PAGE}
    known = trace.coverage
    assert (known.held, known.live, known.unseen) == coverage
    assert known.reserved == events[-1][3]
    assert known.begins == ("later" if known.held else "start")
    follows = len(events) == 1 or events[-1][2] - events[-1][1] == events[0][2]
    assert ("event 1" in known.contradiction) is not follows
    assert trace.size[count:].tolist() == [max(0, size) for _, size, *_ in events]
    assert trace.time_ns is not None
    assert np.diff(trace.time_ns[count:]).tolist() == [1000] * (len(events) - 1)
    assert trace.provenance.extra["sizes"] == "allocated"
    of_cpu = read(profile(*(one | {"args": one["args"] | {"Device Type": 0}} for one in written)))
    assert of_cpu.provenance.extra["sizes"] == "requested"
    assert of_cpu.layout is None
