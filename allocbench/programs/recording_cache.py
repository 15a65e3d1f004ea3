# SPDX-License-Identifier: Apache-2.0
"""Stored recordings of programs, and whether what they depend on is unchanged.

An entry is a folder with `about.json` and a Parquet file for each trace; it appears whole or not at
all. Its name is a digest of everything known before the program runs. The files that the program
imported are known only afterwards: `about.json` has a digest of each.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from allocbench.base.caches import cache, keep_newest
from allocbench.workloads import Trace, read, write

_MOST = 100  # entries
_LARGE = 64 << 20  # bytes: a larger file counts as changed if its size or time differs
_INSTALLED = re.compile(r"/(?:site|dist)-packages/|/lib/python3")
_SETTINGS = re.compile(
    r"PYTORCH_|TORCH|CUDA_|CUBLAS|CUDNN|NCCL_|PYTHONPATH$|(?:LOCAL_)?(?:RANK|WORLD_SIZE)$"
)
_ABOUT = "about.json"


@dataclass(frozen=True)
class Entry:
    """A stored recording of a program. traces: by name. notes: lines for the user.

    out_of_memory: whether a request failed on the card.
    """

    traces: Mapping[str, Trace]
    notes: Sequence[str]
    date: str
    out_of_memory: bool


def settings_that_matter(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment variables that affect what PyTorch allocates."""
    return {name: environment[name] for name in sorted(environment) if _SETTINGS.match(name)}


def key(known: Any) -> str:
    """The name of the entry for what is known before a program runs (JSON)."""
    return hashlib.sha256(json.dumps(known, sort_keys=True).encode()).hexdigest()[:24]


def files_of(command: Sequence[str]) -> list[str]:
    """The files that a command line names, also as `--option=FILE`."""
    words = [part for word in command for part in (word, word.partition("=")[2])]
    return [os.path.abspath(word) for word in words if word and Path(word).is_file()]


def load(name: str) -> Entry | None:
    """The entry with a name, if it exists and none of its files have changed."""
    folder = _folder() / name
    try:
        about = json.loads((folder / _ABOUT).read_text(encoding="utf-8"))
        if any(_digest(path) != digest for path, digest in about["files"].items()):
            return None
        traces = {entry["name"]: read(folder / entry["file"]) for entry in about["traces"]}
    except OSError:
        return None
    os.utime(folder)  # the entries used least recently are removed first
    return Entry(traces, about["notes"], about["date"], about["out_of_memory"])


def keep(name: str, entry: Entry, files: Iterable[str]) -> None:
    """Store an entry, replacing an older one of the same name. If that fails, nothing is stored."""
    root = _folder()
    try:
        root.mkdir(parents=True, exist_ok=True)
        partial = Path(tempfile.mkdtemp(prefix=".partial-", dir=root))
    except OSError:
        return
    try:
        traces = []
        for number, (process, trace) in enumerate(entry.traces.items()):
            file = f"{number}.parquet"
            write(trace, partial / file)
            traces.append({"name": process, "file": file})
        about = {
            "traces": traces,
            "notes": list(entry.notes),
            "date": entry.date,
            "out_of_memory": entry.out_of_memory,
            "files": {path: _digest(path) for path in sorted({*files})},
        }
        (partial / _ABOUT).write_text(json.dumps(about, indent=1), encoding="utf-8")
        shutil.rmtree(root / name, ignore_errors=True)
        partial.rename(root / name)
    except OSError:
        return
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    keep_newest(root, _MOST)


def _folder() -> Path:
    return cache() / "programs"


def _digest(path: str) -> str:
    """A file's fingerprint: its content, or its size and time if it is large or installed.

    Empty for a missing file.
    """
    try:
        status = os.stat(path)
        if _INSTALLED.search(path) or status.st_size > _LARGE:
            return f"{status.st_size}-{status.st_mtime_ns}"
        return hashlib.sha256(Path(path).read_bytes()).hexdigest()
    except OSError:
        return ""
