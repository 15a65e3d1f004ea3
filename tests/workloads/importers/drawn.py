# SPDX-License-Identifier: Apache-2.0
"""Memory snapshots of drawn programs, as versions of PyTorch and other writers vary them.

A program has streams, private pools, captured graphs, steps and trims. Allocators place its blocks,
also on a device that is too small. A seed always gives the same program and snapshot.
"""

import copy
import io
import pickle
from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np

from allocbench.replays.replayed import replayed
from allocbench.workloads import ALLOC, FREE, MARK, TRIM, PrivatePool, Trace
from allocbench.workloads.exporters.pytorch_snapshot import write_snapshot
from allocbench.workloads.snapshot_format import FRAME
from allocbench.workloads.vocabulary import (
    CAPTURE_BEGIN,
    CAPTURE_END,
    POOL_CREATE,
    POOL_ENTER,
    POOL_LEAVE,
    POOL_RELEASE,
)
from tests.traces import make
from tests.workloads.importers.snapshots import CPP_FRAMES, FRAMES

SPECS = (
    "caching",
    "caching:expandable_segments=true",
    "caching:max_split_size_mb=20,roundup_power2_divisions=4",
    "caching:garbage_collection_threshold=0.5,max_split_size_mb=30",
    "caching:expandable_segments=true,large_segment_size_mb=40",
    "caching:version=2.9,roundup_power2_divisions=[1:8,256:1,>:4]",
    "bfc",
    "expandable",
)
_DEVICES = ("sim:80GiB", "sim:80GiB", "sim:200MiB", "sim:100MiB,addresses=up")
_LABELS = ("", "step", "forward", "aten::mm", "train.py:9 main")
_TORCH = "/env/lib/python3.11/site-packages/torch"
_CALLS: tuple[list[tuple[str, int, str]], ...] = (
    [],
    [(f"{_TORCH}/nn/linear.py", 9, "run"), ("/me/a.py", 3, "f"), ("/me/a.py", 9, "main")],
    [("<allocbench.module>", 1, "h.0.mlp"), ("/me/a.py", 4, "g"), ("/me/a.py", 9, "main")],
    [(f"{_TORCH}/optim/adam.py", 70, "step"), ("/me/a.py", 5, "main")],
    [("??", 0, "at::_ops::mm::call(x)"), ("??", 0, "torch::autograd::Engine::thread_main(x)")],
    [("/me/b.py", 2, "hook"), (f"{_TORCH}/autograd/graph.py", 1, "_engine_run_backward")],
    [("/env/lib/python3.11/site-packages/x/y.py", 2, "z"), ("/usr/lib/python3.11/t.py", 1, "t")],
)
_STACKS = [
    *(
        [FRAME.filled(filename=file, line=line, name=name) for file, line, name in calls]
        for calls in _CALLS
    ),
    FRAMES,
    CPP_FRAMES,
]


def program(seed: int, events: int = 90) -> Trace:
    """Allocs and frees with what else a trace has; each free is on the stream of its block."""
    rng = Random(seed)
    rows, columns = list[tuple[int, int, int]](), list[tuple[int, int, int]]()
    live, pools, open_pool, count = list[tuple[int, int]](), list[PrivatePool](), 0, 0
    most = rng.choice([1 << 19, 3 << 20, 12 << 20, 48 << 20])
    with_pools = rng.random() < 0.5

    def add(op: int, block: int = 0, size: int = 0, stream: int = 0, pool: int = 0) -> None:
        rows.append((op, block, size))
        columns.append((stream, pool, rng.randrange(len(_LABELS)) if op == ALLOC else 0))

    while len(rows) < events:
        drawn = rng.random()
        if drawn < 0.5:
            size = rng.choice([1, 512, 1 << 20, (1 << 20) + 1, int(most ** rng.random())])
            stream = rng.choice([0, 0, 0, 1, 2])
            add(ALLOC, count, min(size, most), stream, open_pool)
            live.append((count, stream))
            count += 1
        elif drawn < 0.85:
            for _ in range(min(len(live), rng.choice([1, 1, 1, 4]))):
                block, stream = live.pop(rng.randrange(len(live)))
                add(FREE, block, 0, stream)
        elif drawn < 0.9:
            add(MARK, rng.choice([1, 2]))
        elif drawn < 0.94:
            add(TRIM)
        elif with_pools and open_pool:
            add(CAPTURE_END if pools[-1].name[0] != "0" else POOL_LEAVE, pool=open_pool)
            open_pool = 0
        elif with_pools and drawn < 0.98:
            number, captures = len(pools) + 1, rng.random() < 0.5
            traits = (False, False) if captures else (rng.random() < 0.3, rng.random() < 0.3)
            pools.append(PrivatePool(f"{number}.0" if captures else f"0.{number}", *traits))
            if not captures:
                add(POOL_CREATE, pool=number)
            add(CAPTURE_BEGIN if captures else POOL_ENTER, pool=number)
            open_pool = number
        elif pools:
            released = rng.randrange(len(pools)) + 1
            if released != open_pool:
                add(POOL_RELEASE, pool=released)
    stream, pool, label = np.array(columns).T
    others: dict[str, Any] = {}
    if pools:
        others = {"pool": pool.astype(np.uint16), "pools": tuple(pools)}
    return make(
        rows,
        stream=stream.astype(np.uint16),
        label=label.astype(np.uint32),
        labels=_LABELS,
        time_ns=np.cumsum([rng.choice([0, 1000, 7000]) for _ in rows]).astype(np.uint64),
        **others,
    )


def snapshot(seed: int, spec: str = "", device: str = "") -> dict[str, Any]:
    """A snapshot as PyTorch's newest version writes it."""
    rng = Random(-seed - 1)
    sink = io.BytesIO()
    trace = program(seed, rng.choice([20, 60, 120]))
    found = replayed(trace, spec or rng.choice(SPECS), device or rng.choice(_DEVICES))
    write_snapshot(found, sink)
    written: dict[str, Any] = pickle.loads(sink.getvalue())
    return written


def varied(seed: int) -> dict[str, Any]:
    """A snapshot that lacks, adds or exchanges some of what a snapshot has."""
    rng, content = Random(seed), snapshot(seed)
    for number in sorted(rng.sample(range(len(_CHANGES)), rng.choice([0, 1, 1, 2, 3]))):
        _CHANGES[number](content, rng)
    return copy.deepcopy(content)  # nothing is written once and used twice


def cut(content: dict[str, Any], rng: Random) -> None:
    """The ring buffer keeps the last entries only."""
    events = content["device_traces"][0]
    del events[: rng.randrange(len(events) + 1)]


def _begins_later(content: dict[str, Any], rng: Random) -> None:
    """The annotations before the first entry are lost, too."""
    cut(content, rng)
    if events := content["device_traces"][0]:
        content["external_annotations"] = [
            one for one in content["external_annotations"] if one["time_us"] >= events[0]["time_us"]
        ]


def _stacks(content: dict[str, Any], rng: Random) -> None:
    blocks = [block for segment in content["segments"] for block in segment["blocks"]]
    for one in (*content["device_traces"][0], *blocks):
        one["frames"] = rng.choice(_STACKS)


def _lacks(content: dict[str, Any], rng: Random) -> None:
    """A field of older versions is nowhere."""
    form, key = rng.choice(
        [
            ("event", "pool_id"),
            ("event", "time_us"),
            ("event", "frames"),
            ("event", "stream"),
            ("event", "addr"),
            ("event", "device_free"),
            ("block", "address"),
            ("block", "requested_size"),
            ("block", "frames"),
            ("segment", "segment_type"),
            ("segment", "segment_pool_id"),
            ("segment", "is_expandable"),
            ("segment", "blocks"),
            ("segment", "device"),
            ("whole", "allocator_settings"),
            ("whole", "external_annotations"),
            ("whole", "segments"),
            ("whole", "device_traces"),
        ]
    )
    for one in _all(content)[form]:
        one.pop(key, None)


def _all(content: dict[str, Any]) -> dict[str, list[dict[str, Any]]]:
    segments = content.get("segments", [])
    return {
        "event": [one for trace in content.get("device_traces", []) for one in trace],
        "segment": segments,
        "block": [block for segment in segments for block in segment.get("blocks", [])],
        "whole": [content],
    }


def _version_2_8(content: dict[str, Any], _rng: Random) -> None:
    """Events name no pools."""
    for one in content["device_traces"][0]:
        one.pop("pool_id", None)


def _version_2_0(content: dict[str, Any], _rng: Random) -> None:
    """Blocks have histories, and frees one entry; there are no settings and annotations."""
    for block in _all(content)["block"]:
        entry = {"addr": 0, "real_size": block.pop("requested_size"), "frames": block.pop("frames")}
        block.pop("address", None)
        if block["state"] != "inactive":
            block["history"] = [entry, {"addr": 0, "real_size": 3, "frames": FRAMES}]
    for segment in content["segments"]:
        del segment["segment_pool_id"], segment["is_expandable"]
    kept = [one for one in content["device_traces"][0] if one["action"] != "free_requested"]
    for one in kept:
        one["action"] = one["action"].replace("free_completed", "free")
        one.pop("pool_id", None)
        del one["time_us"]
    content["device_traces"][0] = kept
    for key in ("allocator_settings", "external_annotations"):
        del content[key]


def _later_frees(content: dict[str, Any], rng: Random) -> None:
    """Frees wait for other streams."""
    events = content["device_traces"][0]
    for place in range(len(events) - 2, -1, -1):
        one = events[place]
        if one["action"] == "free_completed" and rng.random() < 0.5:
            last = place + rng.randrange(8)
            used = [
                n for n in range(place + 1, len(events)) if events[n].get("addr") == one["addr"]
            ]
            events.insert(min(last, *used, len(events)) if used else last, events.pop(place))


def _waiting(content: dict[str, Any], rng: Random) -> None:
    """Some blocks wait for their free at the end."""
    for block in _all(content)["block"]:
        if block["state"] != "inactive" and rng.random() < 0.5:
            block["state"] = rng.choice(["active_pending_free", "active_awaiting_free"])


def _requests_alone(content: dict[str, Any], _rng: Random) -> None:
    """As with `skip_actions`."""
    content["device_traces"][0] = [
        one for one in content["device_traces"][0] if one["action"] != "free_completed"
    ]


def _some_missing(content: dict[str, Any], rng: Random) -> None:
    """Entries are missing, doubled or exchanged."""
    events = content["device_traces"][0]
    for _ in range(min(len(events) - 1, rng.randrange(1, 4))):
        place = rng.randrange(len(events) - 1)
        match rng.randrange(3):
            case 0:
                del events[place]
            case 1:
                events.insert(place, dict(events[place]))
            case 2:
                events[place : place + 2] = events[place + 1], events[place]


def _actions(content: dict[str, Any], rng: Random) -> None:
    """Entries that are no requests, requests for nothing, and failures."""
    events = content["device_traces"][0]
    for _ in range(5):
        place = rng.randrange(len(events) + 1)
        near = events[min(place, len(events) - 1)] if events else {"time_us": 0, "frames": []}
        action, size = rng.choice([("oom", 1 << 40), ("oom", 77), ("snapshot", 0), ("alloc", 0)])
        where = "device_free" if action == "oom" else "addr"
        entry = {"action": action, where: rng.choice([0, 4096, 1 << 33]), "size": size, "stream": 0}
        events.insert(place, near | entry)


def _several_devices(content: dict[str, Any], rng: Random) -> None:
    other = snapshot(rng.randrange(1 << 30))
    for one in (*other["segments"], *other["external_annotations"]):
        one["device"] = 1
    content["segments"] += other["segments"]
    content["external_annotations"] += other["external_annotations"]
    traces = [content["device_traces"][0], other["device_traces"][0]]
    if rng.random() < 0.3:
        traces = [[], traces[1]]
    elif rng.random() < 0.3:
        traces = [[], []]
    content["device_traces"] = traces


def _segments_alone(content: dict[str, Any], rng: Random) -> None:
    content["device_traces"] = rng.choice([[], [[]]])


def _annotations(content: dict[str, Any], rng: Random) -> None:
    """Steps of other kinds, and of no or another device."""
    name = rng.choice(["ProfilerStep#7", "step", "Optimizer.step#Adam.step", "## x ##", "backward"])
    times = [one["time_us"] for one in content["device_traces"][0] if "time_us" in one] or [0]
    others = content["external_annotations"] if rng.random() < 0.5 else []
    for n in range(rng.randrange(1, 6)):
        when = rng.choice(times)
        for stage, time in (("START", when), ("END", when + 5)):
            one = {"name": f"{name}{n if n == 3 else ''}", "stage": stage, "time_us": time}
            others.append(one | rng.choice([{}, {"device": 0}, {"device": 0}, {"device": 1}]))
    content["external_annotations"] = others


def _settings(content: dict[str, Any], rng: Random) -> None:
    content["allocator_settings"] = rng.choice(
        [
            {},
            None,
            {"PYTORCH_CUDA_ALLOC_CONF": "max_split_size_mb:64", "max_split_size": 64 << 20},
            {"garbage_collection_threshold": 0.8, "roundup_power2_divisions": {"1": 4, "64": 8}},
            {"PYTORCH_ALLOC_CONF": "large_segment_size_mb:40,throw_on_cudamalloc_oom:True"},
            {"expandable_segments": True, "max_split_size": -1, "roundup_power2_divisions": {}},
            {"max_split_size": 1 << 63, "garbage_collection_threshold": 7, "x": {"y": 1}},
        ]
    )


def _workspaces(content: dict[str, Any], rng: Random) -> None:
    """Modelled workspaces, some of whose addresses are known, a little late or early."""
    allocs = [one for one in content["device_traces"][0] if one["action"] == "alloc"]
    content["allocbench_workspaces"] = [
        (
            rng.choice([0, 0, 0, 1]),
            1000 * one["time_us"] + rng.choice([-2_000_000, -3000, 0, 900, 500_000]),
            rng.choice([0, one["addr"]]),
            one["size"],
            rng.choice(["fft_workspace", "gemm"]),
        )
        for one in rng.sample(allocs, min(len(allocs), 9))
    ]


def _tensors(content: dict[str, Any], rng: Random) -> None:
    """Tensors of modules at some moments."""
    allocs = [one for one in content["device_traces"][0] if one["action"] == "alloc"]
    told: list[tuple[int, list[tuple[int, str, str]] | None]] = []
    for one in sorted(rng.sample(allocs, min(len(allocs), 5)), key=lambda one: one["time_us"]):
        kinds = ("parameters", "gradients", "optimizer state")
        held = [(near["addr"], f"h.{rng.randrange(3)}", rng.choice(kinds)) for near in allocs[::3]]
        told.append((1000 * one["time_us"], None if told and rng.random() < 0.4 else held))
    content["allocbench_tensors"] = told


def _pool_segments(content: dict[str, Any], rng: Random) -> None:
    """What pools held before they may be released, and captures whose pool is unknown."""
    calls = [one for one in content["device_traces"][0] if one["action"].startswith("segment_")]
    for one in rng.sample(calls, min(len(calls), 4)):
        texts = [f"{one['addr']:x}_{one['size']:x}_{one['stream']:x}", "x_y_z"]
        event = rng.choice(
            [
                f"segments 0.{rng.randrange(1, 4)} {' '.join(texts)}",
                "capture_begin 0.0 c1",
                "capture_end 0.2 c1",
                "pool_release 0.2",
                "pool_enter 0.3",
                "pool_create 0.3 use_on_oom",
            ]
        )
        place = {"device": 0, "stage": "START", "time_us": one["time_us"] + rng.choice([-1, 0, 5])}
        content["external_annotations"].append({"name": f"allocbench.pool {event}"} | place)


_CHANGES: tuple[Callable[[dict[str, Any], Random], None], ...] = (
    *(_stacks, _actions, _later_frees, _waiting, _some_missing, _annotations, _settings),
    *(_workspaces, _tensors, _pool_segments, cut, _begins_later, _several_devices),
    *(_requests_alone, _version_2_8, _version_2_0, _segments_alone, _lacks, _lacks, _lacks),
)
"""In order: what removes something comes last."""
