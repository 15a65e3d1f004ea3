# SPDX-License-Identifier: Apache-2.0
"""Compare with the multilayer perceptrons of GPUMemNet (arXiv 2602.17817), on a null A100.

    python -m benchmarks.workshop.truth.perceptrons TABLE.csv [--every N]

TABLE.csv is Datasets/MLP/mlp_data_step2.csv of github.com/itu-rad/GPUMemNet (CC BY 4.0). Writes the
scores; the table itself is not kept.
"""

import argparse
import hashlib
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from allocbench.null_gpu import launch
from benchmarks.workshop.gpu.provenance import ROOT
from benchmarks.workshop.truth.environment import USUAL, python
from benchmarks.workshop.truth.predict import PROGRAMS
from benchmarks.workshop.truth.report import percentile

CARD = "null:a100-40gb"
RESULTS = ROOT / "benchmarks" / "results" / "published" / "perceptrons.json"
_MIB = 1 << 20


def scores(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Errors of what PyTorch reserves above a base, which the first row alone gives.

    The base is what the card had in use beside PyTorch: the driver, the context, libraries.
    """
    first, *others = rows
    base = first["measured_mib"] - first["reserved"] / _MIB
    apart = [row["reserved"] / _MIB + base - row["measured_mib"] for row in others]
    errors = [abs(far) / row["measured_mib"] for far, row in zip(apart, others, strict=True)]
    return {
        "rows": len(others),
        "base_mib": base,
        "measured_mib": [
            min(row["measured_mib"] for row in others),
            max(row["measured_mib"] for row in others),
        ],
        "median_error": statistics.median(errors),
        "p90_error": percentile(errors, 0.9),
        "worst_error": max(errors),
        "median_mib": statistics.median(map(abs, apart)),
    }


def main(given: Sequence[str] | None = None) -> int:
    """Train the networks on a null GPU, and write the scores."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.workshop.truth.perceptrons")
    parser.add_argument("table", type=Path)
    parser.add_argument("--every", type=int, default=1, help="take only every so many rows")
    parser.add_argument("--into", type=Path, default=RESULTS)
    told = parser.parse_args(given)
    line = [str(python(USUAL)), str(PROGRAMS / "mlps.py"), str(told.table), str(told.every)]
    with launch.session(CARD, launch.Limits()) as session:
        assert session.machine is not None
        environment = os.environ | session.machine.environment
        done = subprocess.run(line, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    found = {"card": CARD, "torch": USUAL, "every": told.every}
    found |= {"sha256": hashlib.sha256(told.table.read_bytes()).hexdigest()}
    found |= scores([json.loads(row) for row in done.stdout.splitlines()])
    told.into.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
