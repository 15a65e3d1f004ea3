# SPDX-License-Identifier: Apache-2.0
"""Profiler traces, logs and tables of drawn programs, as different programs write them.

A seed always gives the same bytes.
"""

import io
import json
from collections.abc import Sequence
from random import Random
from typing import Any

from allocbench.workloads import ALLOC, FREE, write_csv
from tests.workloads.importers import drawn

_PAGE = 2 << 20
Rows = list[tuple[str, ...]]


def profile(seed: int) -> bytes:
    """A trace of PyTorch's profiler: memory, operators, annotations, several devices."""
    rng = Random(seed)
    events = _from_pages(rng) if rng.random() < 0.3 else _of_a_program(seed)
    del events[: rng.choice([0, 0, 1, rng.randrange(1 + len(events) // 2)])]
    end = max([event["ts"] for event in events], default=9)
    for _ in range(rng.randrange(12)):
        begin = rng.randrange(end + 1)
        events.append(_range(rng, begin, rng.randrange(1 + end)))
    if rng.random() < 0.5:
        for _ in range(rng.randrange(1, 4)):
            rng.choice(_PROFILE_CHANGES)(events, rng)
    if rng.random() < 0.2:
        rng.shuffle(events)
    members: dict[str, Any] = {"schemaVersion": 1}
    if rng.random() < 0.5:
        cards = [{"id": n, "totalGlobalMem": (n + 8) << 30} for n in range(3)]
        members["deviceProperties"] = rng.choice([cards, [{"id": 0}, 7], 3, {}])
    text = json.dumps(events if rng.random() < 0.1 else members | {"traceEvents": events})
    return text[: -rng.randrange(1, 200)].encode() if rng.random() < 0.1 else text.encode()


def _event(time: int, address: int, size: int, allocated: int, reserved: int) -> dict[str, Any]:
    totals = {"Total Allocated": allocated, "Total Reserved": reserved}
    args = {"Bytes": size, "Addr": address, "Device Type": 1, "Device Id": 0}
    return {"ph": "i", "name": "[memory]", "pid": 1, "tid": 1, "ts": time, "args": args | totals}


def _of_a_program(seed: int) -> list[dict[str, Any]]:
    """The rounded requests that `caching` served, with the totals after each."""
    events, allocated, reserved = list[dict[str, Any]](), 0, 0
    for one in drawn.snapshot(seed, "caching", "sim:80GiB")["device_traces"][0]:
        action, size = one["action"], -(-one["size"] // 512) * 512
        if action.startswith("segment_"):
            reserved += size if action == "segment_alloc" else -size
        elif action in ("alloc", "free_completed"):
            size = size if action == "alloc" else -size
            allocated += size
            events.append(_event(one["time_us"], one["addr"], size, allocated, reserved))
    return events


def _from_pages(rng: Random) -> list[dict[str, Any]]:
    """Allocs that fill segments of 2 MiB from the front, one segment after the other."""
    events, allocated, reserved, room, at = list[dict[str, Any]](), 0, 0, 0, 0
    for time in range(rng.randrange(4, 30)):
        size = 512 * rng.choice([1, 1, 3, 800])
        if size > room:
            reserved += _PAGE
            room, at = _PAGE, _PAGE * (time + 64)
        allocated += size
        events.append(_event(time, at, size, allocated, reserved))
        room, at = room - size, at + size
    for event in rng.sample(events, rng.choice([0, 0, len(events) // 3])):
        args = event["args"]
        allocated -= args["Bytes"]
        events.append(
            _event(events[-1]["ts"] + 1, args["Addr"], -args["Bytes"], allocated, reserved)
        )
    return events


def _range(rng: Random, begin: int, duration: int) -> dict[str, Any]:
    """An operator or an annotation."""
    category, name = rng.choice(
        [
            ("cpu_op", "aten::mm"),
            ("cpu_op", "aten::empty"),
            ("Operator", "AddmmBackward0"),
            ("cpu_op", "autograd::engine::evaluate_function: MulBackward0"),
            ("user_annotation", "ProfilerStep#3"),
            ("user_annotation", "step"),
            ("user_annotation", "Optimizer.step#SGD.step"),
            ("user_annotation", "forward"),
            ("kernel", "gemm"),
        ]
    )
    one = {"ph": "X", "cat": category, "name": name, "pid": 1, "tid": rng.choice([1, 1, 1, 2])}
    return one | {"ts": begin, "dur": duration}


def _args(event: dict[str, Any]) -> dict[str, Any]:
    args = event.get("args")
    return args if isinstance(args, dict) else {}


def _without_totals(events: list[dict[str, Any]], rng: Random) -> None:
    name = rng.choice(["Total Allocated", "Total Reserved", "Addr", "Device Id", "Device Type"])
    for event in rng.sample(events, len(events) // rng.choice([1, 2])):
        _args(event).pop(name, None)


def _on_others(events: list[dict[str, Any]], rng: Random) -> None:
    kind, number = rng.choice([(0, -1), (1, 1), (1, 0), (6, 0), (77, 2), (20, 0)])
    for event in rng.sample(events, len(events) // rng.choice([1, 3])):
        _args(event).update({"Device Type": kind, "Device Id": number})


def _odd(events: list[dict[str, Any]], rng: Random) -> None:
    if events:
        event = rng.choice(events)
        where = rng.choice([event, _args(event) or event])
        where[rng.choice([*where])] = rng.choice(
            [-1, 0, "12.5", None, 2.5, 1e30, float("nan"), 2**63 - 1, 2**70, "x", 1e-3, {}]
        )


def _missing(events: list[dict[str, Any]], rng: Random) -> None:
    for event in rng.sample(events, min(len(events), rng.randrange(1, 4))):
        events.remove(event)


_PROFILE_CHANGES = (_without_totals, _on_others, _odd, _missing)


def rmm_log(seed: int) -> bytes:
    """A log of RMM, also as other programs and versions write it."""
    rng, found, shown = Random(seed), list[tuple[str, ...]](), dict[int, str]()
    trace = drawn.program(seed, rng.choice([5, 40]))
    clock, time = rng.random() < 0.6, rng.choice([0, 86_390_000_000])
    free = rng.choice(["free", "free", "deallocate"])
    for op, block, size, stream in zip(
        *(column.tolist() for column in (trace.op, trace.block, trace.size, trace.stream)),
        strict=True,
    ):
        time += rng.choice([0, 10, 4_000_000])
        if op > FREE:
            continue
        if op == ALLOC:
            shown[block] = hex(4096 * (1 + rng.randrange(400)))
        when = _clock(time % 86_400_000_000) if clock else f"{time / 1e6:.6f}"
        action = "allocate" if op == ALLOC else free
        if op == ALLOC and rng.random() < 0.04:
            found.append(("1", when, "allocate failure", "(nil)", str(size), str(stream)))
        found.append(("1", when, action, shown[block], str(size), str(stream)))
    if rng.random() < 0.4:
        _odd_field(
            found, rng, ("", "0", "-3", "(nil)", "nullptr", "12:00:61", "1.5", "0xZ", "7" * 21)
        )
    return _table(rng, ("Thread", "Time", "Action", "Pointer", "Size", "Stream"), found)


def _clock(microseconds: int) -> str:
    seconds, rest = divmod(microseconds, 1_000_000)
    return f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}.{rest:06}"


def csv(seed: int) -> bytes:
    """A trace as CSV: ours, or that of others."""
    rng, sink = Random(seed), io.BytesIO()
    trace = drawn.program(seed, rng.choice([6, 40]))
    if rng.random() < 0.5:
        trace = trace.without_pools()
    if trace.pool is None:
        trace.stream[:] = 0
    write_csv(trace, sink)
    head, *lines = sink.getvalue().decode().splitlines()
    rows = [tuple(line.split(",")) for line in lines]
    words = {"a": rng.choice(["a", "alloc", "MALLOC"]), "f": rng.choice(["f", "free"])}
    if rng.random() < 0.6:
        rows = [(words.get(op, op), *fields) for op, *fields in rows]
        odd = ("", "0", "1e3", "4096.0", "1.000", "0x10", "2.5", "x", "9" * 21, "a", "trim", "part")
        _odd_field(rows, rng, odd)
        return _table(rng, tuple(head.split(",")), rows)
    return sink.getvalue()


def lifetimes(seed: int) -> bytes:
    """Lifetimes as planners and minimalloc write them."""
    rng = Random(seed)
    rows: Rows = []
    for n in range(rng.randrange(1, 25)):
        begin = rng.randrange(30)
        rows.append(
            (f"b{n}", str(begin), str(begin + rng.randrange(1, 9)), str(rng.randrange(1, 9999)))
        )
    head: tuple[str, ...] = rng.choice(
        [
            ("id", "lower", "upper", "size"),
            ("buffer", "start", "end", "size"),
            ("buffer_id", "begin", "upper", "size"),
        ]
    )
    if rng.random() < 0.5:
        name, values = rng.choice(
            [
                ("offset", "07"),
                ("alignment", ("", "1")),
                ("gaps", ("", "")),
                ("alignment", "12"),
                ("gaps", ("", "1-2")),
            ]
        )
        head, rows = (*head, name), [(*row, rng.choice(values)) for row in rows]
    if rng.random() < 0.4:
        _odd_field(
            rows,
            rng,
            ("", "0", "b0", "1e2", "-1", "4294967294", "4294967293", "2.5", "3.0", "9" * 19),
        )
    return _table(rng, head, rows)


def operator_memory(seed: int) -> bytes:
    """operator_memory.csv of Ascend's profiler."""
    rng = Random(seed)
    rows: Rows = []
    devices = rng.choice([("NPU:0",), ("NPU:0", "NPU:1")])
    for n in range(rng.randrange(1, 25)):
        begin, length = 1_700_000_000_000_000 + rng.randrange(50), rng.randrange(20)
        born = rng.choice([f"{begin}.0", f"{begin}.25", "N/A", ""] if n < 4 else [f"{begin}.0"])
        died = rng.choice([f"{begin + length}.5", f"{begin}.0", "N/A", ""])
        size = rng.choice(["0.5", "8192.0", "0", "3", "0.001"])
        rows.append((f"aten::op{n % 3}", size, born, died, "9", rng.choice(devices)))
    if rng.random() < 0.4:
        _odd_field(rows, rng, ("", "x", "-1", "1e3", "NaN", "9" * 40, "9" * 41, "na"))
    names = ("Name", "Size(KB)", "Allocation Time(us)", "Release Time(us)", "Other", "Device Type")
    return _table(rng, names, rows)


def _odd_field(rows: Rows, rng: Random, values: Sequence[str]) -> None:
    if rows:
        at = rng.randrange(len(rows))
        row = [*rows[at]]
        row[rng.randrange(len(row))] = rng.choice(values)
        rows[at] = tuple(row)


def _table(rng: Random, head: tuple[str, ...], rows: Rows) -> bytes:
    """Rows with other orders of columns, delimiters, ends of lines, spaces and quotes."""
    rows = [head, *rows]
    if rng.random() < 0.3:
        order = rng.sample(range(len(head)), len(head))
        rows = [tuple(row[n] if n < len(row) else "" for n in order) for row in rows]
    if rng.random() < 0.2:
        rows = [(*row, f"more{n}" * (n == 0)) for n, row in enumerate(rows)]
    if rng.random() < 0.2:
        rows[0] = tuple(map(str.upper, rows[0]))
    if rng.random() < 0.15:
        rows.insert(
            rng.randrange(len(rows) + 1), rng.choice([(), ("",) * len(head), rows[0], ("x",)])
        )
    if rng.random() < 0.1:
        del rows[0]
    delimiter, end = rng.choice(",,,;\t|"), rng.choice(["\n", "\n", "\r\n"])
    quote, space = rng.choice(["", "", "", '"']), rng.choice(["", "", " "])
    lines = [(delimiter + space).join(f"{quote}{field}{quote}" for field in row) for row in rows]
    text = rng.choice(["", "", "\ufeff", end]) + "".join(line + end for line in lines)
    return text[: -rng.choice([1, 2, 5])].encode() if rng.random() < 0.2 else text.encode()
