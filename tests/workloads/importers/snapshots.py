# SPDX-License-Identifier: Apache-2.0
"""Memory snapshots as PyTorch makes them, without a GPU.

`Recorder` does what the caching allocator's history does: an entry for each alloc, free and
segment, and the segments tiled by their blocks at the end. Its placement is simple: each segment
has one block.
"""

import io
import pickle
from collections.abc import Iterable
from typing import Any

BASE = 0x7F00_0000_0000
MIB = 1 << 20

FRAMES = [
    {"filename": "/env/lib/python3.11/site-packages/torch/nn/linear.py", "line": 9, "name": "run"},
    {"filename": "/home/me/train.py", "line": 12, "name": "step"},
    {"filename": "/home/me/train.py", "line": 99, "name": "main"},
]
CPP_FRAMES = [
    {"filename": "??", "line": 0, "name": "at::_ops::empty_memory_format::redispatch(long)"},
    {"filename": "??", "line": 0, "name": "at::_ops::addmm::call(at::Tensor const&)"},
    *FRAMES,
]


class Recorder:
    """One device's history. Times are microseconds, one apart."""

    def __init__(self, device: int = 0) -> None:
        self.device = device
        self.events: list[dict[str, Any]] = []
        self.live: dict[int, dict[str, Any]] = {}  # by address
        self._cached: list[int] = []
        self._segments: dict[int, int] = {}  # address -> stream

    def alloc(self, size: int, stream: int = 0, frames: list[dict[str, Any]] | None = None) -> int:
        """Allocate, at an address used before when there is a free one; returns the address."""
        if self._cached:
            address = self._cached.pop()
        else:
            address = BASE + len(self._segments) * 1024 * MIB
            self._segments[address] = stream
            self._record("segment_alloc", address, 2 * MIB, stream, frames)
        self.live[address] = {"size": size, "stream": stream, "state": "active_allocated"}
        self._record("alloc", address, size, stream, frames)
        return address

    def free(self, address: int, *, completed: bool = True) -> None:
        """Free a block; not completed, it waits for another stream."""
        block = self.live[address]
        if block["state"] == "active_allocated":
            self._record("free_requested", address, block["size"], block["stream"])
        block["state"] = "active_awaiting_free"
        if completed:
            self._record("free_completed", address, block["size"], block["stream"])
            del self.live[address]
            self._cached.append(address)

    def oom(self, size: int) -> None:
        """Record a request that failed."""
        entry = {"action": "oom", "device_free": 7, "size": size, "stream": 0}
        self.events.append(entry | {"time_us": self._now()})

    def segments(self) -> list[dict[str, Any]]:
        """The segments now, each tiled by its blocks."""
        found = []
        for address, stream in self._segments.items():
            block = self.live.get(address)
            size = -(-block["size"] // 512) * 512 if block else 2 * MIB
            blocks = [
                {
                    "address": address,
                    "size": size,
                    "requested_size": block["size"] if block else 0,
                    "state": block["state"] if block else "inactive",
                    "frames": FRAMES if block else [],
                }
            ]
            found.append(
                {
                    "device": self.device,
                    "address": address,
                    "total_size": size,
                    "allocated_size": size if block else 0,
                    "active_size": size if block else 0,
                    "requested_size": block["size"] if block else 0,
                    "stream": stream,
                    "segment_type": "large",
                    "segment_pool_id": (0, 0),
                    "is_expandable": False,
                    "frames": [],
                    "blocks": blocks,
                }
            )
        return found

    def _now(self) -> int:
        return 1_759_252_584_000_000 + len(self.events)

    def _record(
        self,
        action: str,
        address: int,
        size: int,
        stream: int,
        frames: list[dict[str, Any]] | None = None,
    ) -> None:
        self.events.append(
            {
                "action": action,
                "addr": address,
                "size": size,
                "stream": stream,
                "time_us": self._now(),
                "compile_context": "N/A",
                "user_metadata": "",
                "pool_id": tuple(
                    map(int, "00")
                ),  # one of its own for each entry, as C++ makes them
                "frames": list(FRAMES if frames is None else frames),
            }
        )


def snapshot(*recorders: Recorder, keep: int | None = None) -> dict[str, Any]:
    """The result of `torch.cuda.memory._snapshot`; `keep`: the number of last events to keep."""
    devices = 1 + max(recorder.device for recorder in recorders)
    traces: list[list[dict[str, Any]]] = [[] for _ in range(devices)]
    for recorder in recorders:
        events = recorder.events
        traces[recorder.device] = events if keep is None else events[len(events) - keep :]
    return {
        "segments": [segment for recorder in recorders for segment in recorder.segments()],
        "device_traces": traces,
        "allocator_settings": {
            "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:False",
            "max_split_size": -1,
            "garbage_collection_threshold": 0.0,
            "expandable_segments": False,
            "roundup_power2_divisions": {"1": 0, "2": 0},
        },
        "external_annotations": [],
    }


class _CppPickler(pickle._Pickler):
    """Writes as PyTorch's C++ does: protocol 2, only strings can be referred to."""

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file, 2)

    def memoize(self, obj: Any) -> None:
        if isinstance(obj, str):
            super().memoize(obj)  # type: ignore[misc]


def pickled(data: Any, how: int | str = 4) -> bytes:
    """Bytes of a snapshot in a protocol, or as "cpp" or "unmemoized" writers write it."""
    sink = io.BytesIO()
    if how == "cpp":
        _CppPickler(sink).dump(data)
    elif how == "unmemoized":
        pickler = pickle.Pickler(sink, 4)
        pickler.fast = True
        pickler.dump(data)
    else:
        pickle.Pickler(sink, int(how)).dump(data)
    return sink.getvalue()


WRITERS: Iterable[int | str] = (0, 1, 2, 3, 4, 5, "cpp", "unmemoized")
