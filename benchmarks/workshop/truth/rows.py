# SPDX-License-Identifier: Apache-2.0
"""Published measurements: one training run per row, with what other estimators predicted for it."""

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
_TRUTH_VALUES = {"true": True, "1": True, "false": False, "0": False, "": False}


class TruthError(ValueError):
    """The table cannot be read or the programs cannot be run; the message is one line."""


@dataclass(frozen=True)
class Prediction:
    """An estimator's prediction of a run: peak in bytes, and whether memory runs out.

    first_sample: bytes that were subtracted from the peak. most: the peak if a workspace of unknown
    size is as large as it may be; 0 if it is not known. dtype: of the model's parameters.
    """

    peak: int
    oom: bool
    first_sample: int = 0
    most: int = 0
    dtype: str = "float32"


@dataclass(frozen=True)
class Run:
    """A training run, as far as its prediction depends on it.

    memory: bytes that the driver of the GPU reports, 0 if not published. torch: its version, "" if
    not published.
    """

    kind: str
    model: str
    optimizer: str
    batch: int
    zero_grad_mode: int
    gpu: str
    memory: int
    torch: str


@dataclass(frozen=True)
class Row:
    """A training run that was measured on a real GPU.

    line: in the file. truth: the measured peak; after an out-of-memory error, only the peak that
    the run had reached, or 0 if not published. others: by estimator.
    """

    line: int
    run: Run
    truth: Prediction
    others: dict[str, Prediction]


def read(path: Path) -> list[Row]:
    """The rows of a CSV file with the columns of `xmem.csv`; raises TruthError."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
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


def _row(record: dict[str, str | None], line: int) -> Row:
    def cell(name: str) -> str:
        return (record.get(name) or "").strip()

    def whole(name: str, default: int | None = None) -> int:
        # Programs that read a column with empty cells as floats write 12.0 for 12.
        text = cell(name).removesuffix(".0")
        if not text and default is not None:
            return default
        if not text.isdecimal():
            raise _CellError(f"line {line}: {name}={cell(name)!r} is not a whole number")
        return int(text)

    def truth_value(name: str) -> bool:
        if (text := cell(name).lower()) not in _TRUTH_VALUES:
            raise _CellError(f"line {line}: {name}={cell(name)!r} is neither true nor false")
        return _TRUTH_VALUES[text]

    def prediction(estimator: str) -> Prediction | None:
        if not cell(f"{estimator}_bytes"):
            return None
        return Prediction(whole(f"{estimator}_bytes"), truth_value(f"{estimator}_oom"))

    truth = prediction("truth") or Prediction(0, truth_value("truth_oom"))
    if truth.peak == 0 and not truth.oom:
        raise _CellError(f"line {line}: no truth_bytes")
    run = Run(
        cell("kind"),
        cell("model"),
        cell("optimizer"),
        whole("batch"),
        whole("zero_grad_mode", 0),
        cell("gpu"),
        whole("gpu_total_bytes", 0),
        cell("torch").partition("+")[0],
    )
    found = {name: prediction(name) for name in ESTIMATORS}
    return Row(line, run, truth, {name: said for name, said in found.items() if said})
