# SPDX-License-Identifier: Apache-2.0
"""Ask other estimators about published runs, and keep what they say.

    PYTHONPATH=FakeGPU:DEEPSPEED python -m benchmarks.workshop.truth.peers [--rows FILE.csv]

The programs are those of the predictions; `programs/peers.py` asks instead of training. A null
GPU is there because some estimators look for a GPU. docs/truth.md says how they are installed.
"""

import argparse
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.workshop.gpu.provenance import ROOT
from benchmarks.workshop.truth import rows
from benchmarks.workshop.truth.__main__ import ROWS
from benchmarks.workshop.truth.environment import python
from benchmarks.workshop.truth.predict import PROGRAMS, SLOWEST, command, device, last_object

RESULTS = ROOT / "benchmarks" / "results" / "published" / "peers.json"


def ask(run: rows.Run) -> dict[str, Any]:
    """What each estimator says of a run: bytes, or why it says none."""
    from allocbench.null_gpu import launch

    interpreter, _program, *told = command(run, python(run.torch))
    line = [interpreter, str(PROGRAMS / "peers.py"), run.kind, *told]
    with launch.session(device(run), launch.Limits()) as session:
        assert session.machine is not None
        environment = os.environ | session.machine.environment
        done = subprocess.run(
            line, env=environment, capture_output=True, text=True, timeout=SLOWEST
        )
    return last_object(done.stdout) or {"error": (done.stderr.strip() or "?").splitlines()[-1]}


def main(given: Sequence[str] | None = None) -> int:
    """Ask about each row that has no answer yet, of each model first one; the file is written after
    each.
    """
    parser = argparse.ArgumentParser(prog="python -m benchmarks.workshop.truth.peers")
    parser.add_argument("--rows", type=Path, default=ROWS)
    parser.add_argument("--into", type=Path, default=RESULTS)
    given_options = parser.parse_args(given)
    into = given_options.into
    found = json.loads(into.read_text(encoding="utf-8")) if into.exists() else {"rows": {}}
    earlier = Counter[str]()
    turns = []
    for row in rows.read(given_options.rows):
        turns.append((earlier[row.run.model], row.line, row))
        earlier[row.run.model] += 1
    for _turn, _line, row in sorted(turns, key=lambda turn: turn[:2]):
        if str(row.line) not in found["rows"]:
            found["rows"][str(row.line)] = ask(row.run)
            into.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
            print(row.line, found["rows"][str(row.line)], flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
