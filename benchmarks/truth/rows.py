# SPDX-License-Identifier: Apache-2.0
"""Published measurements: one training run per row, with what other estimators predicted for it."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path

ESTIMATORS = ("xmem", "dnnmem", "schedtune", "llmem")
OWN = "allocbench"
_NEEDED = (
    "kind",
    "model",
    "optimizer",
    "batch",
    "zero_grad_mode",
    "gpu",
    "gpu_total_bytes",
    "torch",
    "truth_bytes",
    "truth_oom",
)
KINDS = ("cnn", "transformer")


class TruthError(ValueError):
    """The table cannot be read or the programs cannot be run; the message is one line."""


@dataclass(frozen=True)
class Prediction:
    """An estimator's prediction of a run: peak in bytes, and whether memory runs out."""

    peak: int
    oom: bool


@dataclass(frozen=True)
class Row:
    """A training run on a real GPU. Bytes.

    line: in the file. torch: its version, "" if not published. truth: the measured peak; after an
    out-of-memory error, only the peak that the run had reached. others: by estimator.
    """

    line: int
    kind: str
    model: str
    optimizer: str
    batch: int
    zero_grad_mode: int
    gpu: str
    memory: int
    torch: str
    truth: Prediction
    others: dict[str, Prediction]


def read(path: Path) -> list[Row]:
    """The rows of a CSV file with the columns of `xmem.csv`; raises TruthError."""
    try:
        with path.open(encoding="utf-8", newline="") as file:
            reader = csv.DictReader(file)
            missing = [name for name in _NEEDED if name not in (reader.fieldnames or ())]
            if missing:
                raise TruthError(f"{path} has no column {', '.join(missing)}")
            rows = [_row(record, reader.line_num) for record in reader]
    except OSError as error:
        raise TruthError(f"{path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise TruthError(f"{path} is not a text file in UTF-8") from error
    except _CellError as error:
        raise TruthError(f"{path}: {error}") from error
    if not rows:
        raise TruthError(f"{path} has no rows")
    return rows


class _CellError(ValueError):
    pass


def _row(record: dict[str, str], line: int) -> Row:
    def whole(name: str, default: int | None = None) -> int:
        text = (record.get(name) or "").strip()
        if not text and default is not None:
            return default
        if not text.isdecimal():
            raise _CellError(f"line {line}: {name}={text!r} is not a whole number")
        return int(text)

    def prediction(estimator: str) -> Prediction | None:
        if not (record.get(f"{estimator}_bytes") or "").strip():
            return None
        oom = (record.get(f"{estimator}_oom") or "").strip().lower() == "true"
        return Prediction(whole(f"{estimator}_bytes"), oom)

    found = {name: prediction(name) for name in ESTIMATORS}
    truth = prediction("truth")
    if truth is None or truth.peak == 0:
        raise _CellError(f"line {line}: no truth_bytes")
    return Row(
        line,
        record["kind"],
        record["model"],
        record["optimizer"],
        whole("batch"),
        whole("zero_grad_mode", 0),
        record["gpu"],
        whole("gpu_total_bytes"),
        record["torch"].partition("+")[0],
        truth,
        {name: said for name, said in found.items() if said},
    )
