# SPDX-License-Identifier: Apache-2.0
"""PyTorch's memory snapshots without call stacks: the same events, a hundredth of the bytes.

A stack is replaced by one frame whose name is the label that the importer would derive from it, so
that a slim snapshot is read, verified and compared like the original.
"""

import gzip
import pickle
from pathlib import Path
from typing import Any

from allocbench.base.files import whole_file
from allocbench.workloads.importers.labels import Frame, label_of

_LEFT_OUT = ("free_requested",)  # a free is complete with "free_completed"
_OF_EVENT = ("action", "addr", "device_free", "size", "stream", "time_us", "pool_id")
_OF_ALL = ("segments", "allocator_settings", "external_annotations", "allocbench_workspaces")


def slim(snapshot: dict[str, Any]) -> dict[str, Any]:
    """The snapshot with a label for each call stack."""
    frames: dict[str, list[dict[str, Any]]] = {}
    labels: dict[int, list[dict[str, Any]]] = {}  # by id of a list of frames, which are shared

    def labeled(values: dict[str, Any]) -> dict[str, Any]:
        stack = values.get("frames") or []
        if id(stack) not in labels:
            name = label_of([Frame(one["filename"], one["line"], one["name"]) for one in stack])
            labels[id(stack)] = frames.setdefault(
                name, [{"filename": "", "line": 0, "name": name}] if name else []
            )
        return {"frames": labels[id(stack)]}

    parts = {key: snapshot[key] for key in _OF_ALL if key in snapshot}
    parts["device_traces"] = [
        [
            {key: event[key] for key in _OF_EVENT if key in event} | labeled(event)
            for event in events
            if event["action"] not in _LEFT_OUT
        ]
        for events in snapshot["device_traces"]
    ]
    parts["segments"] = [
        segment | {"frames": [], "blocks": [block | labeled(block) for block in segment["blocks"]]}
        for segment in snapshot["segments"]
    ]
    return parts


def write_slim(snapshot: Path, path: Path) -> int:
    """Write a snapshot without its call stacks, compressed with gzip; the bytes of the file."""
    with snapshot.open("rb") as file:
        content = slim(pickle.load(file))
    with whole_file(path) as raw, gzip.GzipFile(fileobj=raw, mode="wb", mtime=0) as packed:
        pickle.dump(content, packed, protocol=4)
    return path.stat().st_size
