# SPDX-License-Identifier: Apache-2.0
"""Files of asv: the record of a machine, and results that will be committed."""

import json
import platform
import re
import shutil
import subprocess
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from allocbench.base.files import write_text
from allocbench.errors import UsageError

MACHINES = "~/.asv-machine.json"
_MACHINES_VERSION = 1
_RESULTS_VERSION = 2
_NONE = "none"
_EXISTING = "existing"
_UNKNOWN = "unknown"
_MINOR = re.compile(r"(?:^|/|\bpython)(\d+\.\d+)$")  # of 3.11 and .../python3.11


def host() -> str:
    """The name that asv gives this machine by default."""
    return platform.uname().node


def device_record() -> dict[str, str]:
    """GPU, driver, CUDA and torch versions ("none" if absent), and the kind of device."""
    record = dict.fromkeys(("gpu", "driver", "cuda"), _NONE)
    if shutil.which("nvidia-smi"):
        query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
        lines = _output(query).splitlines()
        if lines:
            record["gpu"], _, record["driver"] = (part.strip() for part in lines[0].partition(","))
            if more := len(lines) - 1:
                record["gpu"] += f" and {more} more"
            if toolkit := re.search(r"CUDA Version: (\S+)", _output(["nvidia-smi"])):
                record["cuda"] = toolkit.group(1)
    try:
        record["torch"] = version("torch")
    except PackageNotFoundError:
        record["torch"] = _NONE
    return record | {"device": "simulated" if record["gpu"] == _NONE else "cuda"}


def update_machine(path: Path, name: str) -> dict[str, str]:
    """Add the device to a machine's record in asv's file, and return the record.

    A new machine also gets the fields that asv itself would write. Raises UsageError if the file
    has another schema or cannot be read or written.
    """
    stored: dict[str, Any] = {"version": _MACHINES_VERSION}
    if path.exists():
        stored = _load(path, _MACHINES_VERSION)
    record_before = stored.get(name) or _defaults()
    record = {**record_before, "machine": name, **device_record()}
    if stored.get(name) != record:
        write_text(json.dumps(stored | {name: record}, indent=4, sort_keys=True) + "\n", path)
    return record


def scrub(folder: Path) -> list[Path]:
    """Remove interpreter paths from the results of existing environments.

    Returns the changed files. Raises UsageError, before anything is changed, if the folder has no
    results, if a file has another schema, or if two results of a commit would get the same name.
    """
    planned: dict[Path, tuple[Path, dict[str, Any]]] = {}
    paths = list(_results(folder))
    taken = set(paths)
    for path in paths:
        stored = _load(path, _RESULTS_VERSION)
        clean = _scrubbed(stored)
        if clean == stored:
            continue
        target = path.with_name(f"{stored['commit_hash'][:8]}-{clean['env_name']}.json")
        if target != path and target in taken:
            raise UsageError(f"{path}: {target.name} already exists: two results of one commit")
        taken.add(target)
        planned[path] = target, clean
    for path, (target, clean) in planned.items():
        write_text(json.dumps(clean), target)
        if target != path:
            path.unlink()
    return list(planned)


def count(folder: Path) -> int:
    """Number of result files in a folder."""
    return len(list(_results(folder)))


def _scrubbed(stored: dict[str, Any]) -> dict[str, Any]:
    """The result without its interpreter's path; unchanged if it has none."""
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
        raise UsageError(f"{folder}: not a results folder of asv: it has no benchmarks.json")
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
        raise UsageError(f"{path}: not a file of asv with schema version {version}")
    return stored


def _output(command: list[str]) -> str:
    """Standard output of a command; empty if it fails."""
    try:
        process = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return process.stdout if process.returncode == 0 else ""
