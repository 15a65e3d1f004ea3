# SPDX-License-Identifier: Apache-2.0
"""asv's own files: the record of a machine, and results that are to be committed."""

from __future__ import annotations

import json
import platform
import re
import shutil
import subprocess
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from allocbench.errors import UsageError
from allocbench.reports.output import write_text

MACHINES = "~/.asv-machine.json"
_MACHINES_VERSION = 1
_RESULTS_VERSION = 2
_NONE = "none"
_EXISTING = "existing"
_UNKNOWN = "unknown"
_MINOR = re.compile(r"(?:^|/|\bpython)(\d+\.\d+)$")  # of 3.11 and .../python3.11


def host() -> str:
    """The name that asv gives this machine by itself."""
    return platform.uname().node


def device_record() -> dict[str, str]:
    """The GPU, its driver, CUDA and torch, each "none" where there is none, and the device kind."""
    found = dict.fromkeys(("gpu", "driver", "cuda"), _NONE)
    if shutil.which("nvidia-smi"):
        query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
        lines = _said(query).splitlines()
        if lines:
            found["gpu"], _, found["driver"] = (part.strip() for part in lines[0].partition(","))
            if many := len(lines) - 1:
                found["gpu"] += f" and {many} more"
            if toolkit := re.search(r"CUDA Version: (\S+)", _said(["nvidia-smi"])):
                found["cuda"] = toolkit.group(1)
    try:
        found["torch"] = version("torch")
    except PackageNotFoundError:
        found["torch"] = _NONE
    return found | {"device": "simulated" if found["gpu"] == _NONE else "cuda"}


def update_machine(path: Path, name: str) -> dict[str, str]:
    """Put the device record into a machine's record in asv's file, and return that record.

    A machine that is new gets what asv would note itself. Raises UsageError for a file of another
    schema, or one that cannot be read or written.
    """
    stored: dict[str, Any] = {"version": _MACHINES_VERSION}
    if path.exists():
        stored = _load(path, _MACHINES_VERSION)
    known = stored.get(name) or _defaults()
    record = {**known, "machine": name, **device_record()}
    if stored.get(name) != record:
        write_text(json.dumps(stored | {name: record}, indent=4, sort_keys=True) + "\n", path)
    return record


def scrub(folder: Path) -> list[Path]:
    """Rewrite the results of existing environments without their paths; what was changed.

    Raises UsageError for a folder without results, a file of another schema, and two results of
    one commit that would get the same name: nothing is changed then.
    """
    planned: dict[Path, tuple[Path, dict[str, Any]]] = {}
    kept = list(_results(folder))
    taken = set(kept)
    for path in kept:
        stored = _load(path, _RESULTS_VERSION)
        clean = _scrubbed(stored)
        if clean == stored:
            continue
        target = path.with_name(f"{stored['commit_hash'][:8]}-{clean['env_name']}.json")
        if target != path and target in taken:
            raise UsageError(f"{path}: {target.name} is there already: two results of one commit")
        taken.add(target)
        planned[path] = target, clean
    for path, (target, clean) in planned.items():
        write_text(json.dumps(clean), target)
        if target != path:
            path.unlink()
    return list(planned)


def count(folder: Path) -> int:
    """How many result files a folder has."""
    return len(list(_results(folder)))


def _scrubbed(stored: dict[str, Any]) -> dict[str, Any]:
    """The result without the interpreter's path; itself when it has none."""
    if not stored["env_name"].startswith(_EXISTING):
        return stored
    params = stored["params"]
    interpreters = (str(stored["python"]), str(params.get("python", "")))
    minor = next((m.group(1) for text in interpreters if (m := _MINOR.search(text))), _UNKNOWN)
    return stored | {
        "env_name": _EXISTING + (f"-py{minor}" if minor != _UNKNOWN else ""),
        "python": minor,
        "params": params | {"python": minor},
    }


def _results(folder: Path) -> Iterator[Path]:
    if not (folder / "benchmarks.json").is_file():
        raise UsageError(f"{folder}: holds no benchmarks.json, so it is no results folder of asv")
    yield from (path for path in sorted(folder.glob("*/*.json")) if path.name != "machine.json")


def _defaults() -> dict[str, str]:
    try:
        from asv.machine import Machine
    except ModuleNotFoundError as error:
        raise UsageError("asv is not installed: pip install asv") from error
    return dict(Machine.get_defaults())


def _load(path: Path, version: int) -> dict[str, Any]:
    try:
        stored = json.loads(path.read_bytes())
    except OSError as error:
        raise UsageError(f"{path}: cannot read: {error.strerror or error}") from error
    except ValueError as error:
        raise UsageError(f"{path}: not JSON: {error}") from error
    if not isinstance(stored, dict) or stored.get("version") != version:
        raise UsageError(f"{path}: not written by an asv that is known here (schema {version})")
    return stored


def _said(line: list[str]) -> str:
    """What a command prints; nothing when it fails."""
    try:
        done = subprocess.run(line, capture_output=True, text=True, check=False, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout if done.returncode == 0 else ""
