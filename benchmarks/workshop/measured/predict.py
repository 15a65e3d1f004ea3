# SPDX-License-Identifier: Apache-2.0
"""Predict runs by `allocbench fit` on a null GPU, as a user would."""

import datetime
import hashlib
import json
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.workshop.gpu.provenance import commit
from benchmarks.workshop.measured.plan import FIRST, PROGRAMS, Run

MARK = "measured: "
"""What the line with a program's result begins with, as in `programs/measuring.py`."""
_STEPS = 1000
"""More than any program makes: each ends by itself."""
_SLOWEST = 900  # seconds
_RAISED = re.compile(r"[\w.]*(?:Error|Exception): ")


def predict(run: Run, formula: str, card: str, python: str) -> dict[str, Any]:
    """What `fit` says of a run, and what the program itself read; `error` if there is no answer.

    formula: for the workspaces of convolutions. Peaks and capacities are in bytes.
    """
    device = f"{card},convolution_workspace={formula}"
    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        rows = Path(folder) / "rows.json"
        line = [sys.executable, "-P", "-m", "allocbench", "fit", "--device", device, "--rerun"]
        line += ["--allocators", "caching", "--time-limit", "0", "--steps", str(_STEPS)]
        line += ["--json", str(rows), "--", *run.command(python)]
        try:
            done = subprocess.run(line, capture_output=True, text=True, timeout=_SLOWEST)
        except subprocess.TimeoutExpired:
            return {"error": f"no answer after {_SLOWEST} s"}
        row = json.loads(rows.read_text(encoding="utf-8"))[0] if rows.exists() else None
    told: dict[str, Any] = {"device": device, "seconds": round(time.monotonic() - begun, 1)}
    told |= {"date": now(), "commit": commit()}
    if row is None:
        said = done.stderr.strip().splitlines() or ["no message"]
        raised = [text for text in said if _RAISED.match(text)]  # names no path, unlike the last
        return told | {"error": (raised or said)[-1]}
    notes = [text for text in done.stderr.splitlines() if text.startswith(("note:", "warning:"))]
    found = results(done.stderr + done.stdout)
    if not found:
        return told | {"error": "the program printed no result"}
    # A program that runs out of memory is recorded again, on a larger null GPU.
    told |= {"oom": found[0]["oom"], "min_capacity": row["min_capacity"]}
    told |= {"max_load": row["max_load"], "peak_reserved": peak_reserved(found[-1])}
    answer = [line.rstrip() for line in done.stdout.splitlines()]
    return told | {"answer": answer, "notes": notes, **brief(found[-1])}


def results(text: str) -> list[dict[str, Any]]:
    """The results that a program printed, one for each time that it ran."""
    return [
        json.loads(line.removeprefix(MARK)) for line in text.splitlines() if line.startswith(MARK)
    ]


def brief(result: dict[str, Any]) -> dict[str, Any]:
    """The versions and the peaks by stage, in bytes: the rest says nothing on a null GPU."""
    return {
        "versions": result["versions"],
        "stages": {
            stage["stage"]: {name: stage[name] for name in stage if name.startswith("peak_")}
            for stage in result["stages"]
            if stage["stage"] not in ("start", "context")
        },
    }


def peak_reserved(result: dict[str, Any]) -> int:
    """The most bytes that PyTorch reserved by the end of a run."""
    peak: int = result["stages"][-1]["peak_reserved"]
    return peak


def now() -> str:
    """The date and time, UTC."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


def fingerprint(table: Path = FIRST) -> str:
    """A hash of the programs and the list of runs: predictions and measurements have the same."""
    digest = hashlib.sha256()
    own = sorted((PROGRAMS / table.stem).glob("*.py"))
    for path in [*sorted([*PROGRAMS.glob("*.py"), *PROGRAMS.glob("*.json")]), *own]:
        digest.update(path.read_bytes())
    digest.update(table.read_bytes())
    return digest.hexdigest()


def predict_all(
    chosen: list[tuple[Run, str]],
    into: Path,
    card: str,
    python: str,
    *,
    after: bool = False,
    table: Path = FIRST,
) -> dict[str, Any]:
    """Predict runs one after another; the file is written after each, and what it has stays.

    after: the measurements are known already, and the file says so.
    """
    told: dict[str, Any] = {"runs": {}}
    if into.exists():
        told = json.loads(into.read_text(encoding="utf-8"))
    told |= {"card": card, "commit": commit(), "fingerprint": fingerprint(table), "after": after}
    for run, formula in chosen:
        known = told["runs"].setdefault(run.name, {})
        if formula in known and "error" not in known[formula]:
            continue
        known[formula] = said = predict(run, formula, card, python)
        told["date"] = now()
        into.parent.mkdir(parents=True, exist_ok=True)
        into.write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")
        answer = said.get("error") or f"{said['peak_reserved'] / 2**20:,.0f} MiB reserved"
        print(f"{run.name} {formula}: {answer}, {said.get('seconds')} s", flush=True)
    return told
