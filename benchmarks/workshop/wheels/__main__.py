# SPDX-License-Identifier: Apache-2.0
"""Run small programs that use extension wheels on a null GPU.

    python -m benchmarks.workshop.wheels [NAME...]

Each program in `programs` says on top which packages it needs and with which PyTorch it runs
(build/torch/VERSION), as inline script metadata, and prints "loaded", "called" and "ran" when its
wheel is imported, after a first small call, and at its end. The results go to
benchmarks/results/wheels.json; without NAME, all programs run.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import Any

from allocbench.workloads import files
from allocbench.workloads.recording import PEAK_RESERVED

ROOT = Path(__file__).parents[3]
PROGRAMS = Path(__file__).parent / "programs"
RESULTS = ROOT / "benchmarks" / "results" / "wheels.json"
BUILD = ROOT / "build"
STAGES = ("loaded", "called", "ran")
DEVICE, SECONDS = "null:h100", 900


def metadata(program: Path) -> dict[str, Any]:
    """The inline script metadata of a program (PEP 723)."""
    lines = program.read_text(encoding="utf-8").splitlines()
    block = lines[lines.index("# /// script") + 1 : lines.index("# ///")]
    return tomllib.loads("\n".join(line.removeprefix("#").strip() for line in block))


def installed(program: Path, packages: list[str]) -> Path:
    """The folder with the packages of a program, without what they depend on."""
    folder = BUILD / "wheels" / program.stem
    listed = folder / "installed.txt"
    if not listed.exists() or listed.read_text().split() != packages:
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--upgrade"]
        subprocess.run([*pip, "--target", folder, *packages], check=True)
        listed.write_text("\n".join(packages))
    return folder


def run(program: Path) -> dict[str, Any]:
    """What a program reached: the stages, the bytes that PyTorch reserved, or the error."""
    needs = metadata(program)
    packages, torch = needs["dependencies"], needs["tool"]["allocbench"]["torch"]
    folder = installed(program, packages)
    row = {"program": program.stem, "wheel": packages[0].replace("==", " "), "torch": torch}
    with tempfile.TemporaryDirectory() as made:
        trace = Path(made) / "trace.parquet"
        command = [sys.executable, "-m", "allocbench", "record", "-o", str(trace)]
        command += ["--device", DEVICE, "--timeout", str(SECONDS), "--"]
        command += [str(BUILD / "torch" / torch / "bin" / "python"), str(program)]
        done = subprocess.run(
            command,
            cwd=made,
            env=os.environ | {"PYTHONPATH": str(folder), "PYTHONUNBUFFERED": "1"},
            capture_output=True,
            text=True,
        )
        stages = [line for line in done.stdout.splitlines() if line in STAGES]
        if stages == list(STAGES):
            about = files.read(trace).provenance
            row["reserved"] = int(about.extra[PEAK_RESERVED])
            outside = re.search(r"held (.+) of the GPU's memory outside of PyTorch", done.stderr)
            return row | {"stages": stages} | ({"outside": outside[1]} if outside else {})
    if done.returncode == 0:
        return row | {"stages": stages, "error": f"still running after {SECONDS} s"}
    return row | {"stages": stages, "error": error_of(done.stderr.splitlines())}


def error_of(lines: list[str]) -> str:
    """The line of an output that says why a program ended."""
    ours = [line.removeprefix("allocbench: ") for line in lines if line.startswith("allocbench: ")]
    raised = [line for line in lines if re.match(r"(\w+\.)*\w*(Error|Exception)\b", line)]
    stopped = [
        line for line in lines if line.strip() and not line.startswith(("note: ", "error: "))
    ]
    return (ours or raised[-1:] or stopped[-1:] or lines[-1:] or ["no output"])[0]


def main() -> None:
    """Run the programs that the arguments name, or all, and write what they reached."""
    programs = sorted(PROGRAMS.glob("*.py"))
    names = set(sys.argv[1:]) or {program.stem for program in programs}
    if unknown := names - {program.stem for program in programs}:
        sys.exit(f"error: no program is called {', '.join(sorted(unknown))}")
    rows = (
        {row["program"]: row for row in json.loads(RESULTS.read_text())} if RESULTS.exists() else {}
    )
    for program in programs:
        if program.stem in names:
            rows[program.stem] = run(program)
            print(json.dumps(rows[program.stem]), flush=True)
            RESULTS.write_text(json.dumps([rows[name] for name in sorted(rows)], indent=1) + "\n")


if __name__ == "__main__":
    main()
