# SPDX-License-Identifier: Apache-2.0
"""What the README says of the agreement with real GPUs, from the committed measurements.

`python -m docs.generate.claims` writes the table into README.md. No GPU and no PyTorch is needed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path

from benchmarks.workshop.measured import report
from benchmarks.workshop.measured.plan import CONVOLUTIONS, runs
from benchmarks.workshop.measured.report import Compared
from benchmarks.workshop.truth.report import scores
from benchmarks.workshop.truth.rows import Prediction
from docs.generate import agreement

ROOT = Path(__file__).parent.parent.parent
README = ROOT / "README.md"
BEGIN, END = "<!-- claims -->\n", "<!-- end of claims -->"
_MEASURED = ROOT / "benchmarks/results/h100"
_GPU = agreement.FILE.parent.parent
_PUBLISHED = ROOT / "docs/truth.md"
_COLUMNS = 8  # of the table of published runs
_CARDS = "GeForce", "A100"


@cache
def measured(predictions: str) -> Mapping[str, Sequence[Compared]]:
    """The runs on an H100 with predictions of a file, by formula for convolutions."""
    said = json.loads((_MEASURED / predictions).read_text(encoding="utf-8"))
    _, rows = report.read(_MEASURED / "measured.jsonl")
    return report.by_formula(runs(), said, rows)


def published() -> list[tuple[Prediction, Prediction]]:
    """The published runs: predicted and measured MiB, from the table of docs/truth.md."""
    pairs = []
    for line in _PUBLISHED.read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == _COLUMNS and cells[2].isdigit() and cells[3].startswith(_CARDS):
            peaks = [int(cell.replace(",", "")) for cell in (cells[5], cells[4])]
            oom = (cells[7] in ("both", "predicted"), cells[7] in ("both", "measured"))
            pairs.append((Prediction(peaks[0], oom[0]), Prediction(peaks[1], oom[1])))
    return pairs


def rows() -> Iterator[tuple[str, str, str]]:
    """What allocbench computes, what it was compared with, and the result."""
    before, after = (
        measured(name)[CONVOLUTIONS[0]] for name in ("predictions.json", "predictions-after.json")
    )
    peak = "the peak of a program"
    free = [one for one in before if one.error is not None]
    training = [one for one in free if one.run.kind == "language"]
    yield (
        f"[{peak}](docs/truth.md#measured-on-an-h100) on a null GPU",
        f"{len(free)} runs on an H100, all predicted before they were measured",
        f"{_errors(free)}. For language models in training: {_errors(training)}",
    )
    yield (
        "the same, with rules that these runs corrected: in-sample",
        "the same runs",
        f"language models in training: {_errors(_training(after))}. Convolutional networks, by"
        f" formula: {'; '.join(_formulas())}",
    )
    pairs = published()
    found = scores(pairs)
    yield (
        f"[{peak}](docs/truth.md#published-runs-on-three-cards) on a null GPU: in-sample",
        f"{len(pairs)} published training runs on three cards, known when the formula for"
        " convolutions was chosen",
        f"median error {found['median_error']:.2%}, p90 {found['p90_error']:.2%}; out of memory"
        f" predicted correctly for {found['oom_agreement']:.0%}",
    )
    yield (
        "[the allocs and frees of a program](docs/without-a-gpu.md#an-h100) on a null GPU:"
        " in-sample",
        "the 13 bundled programs on an H100",
        _programs(),
    )
    addresses = list(agreement.caching_rows())
    allocs = sum(_number(row[2]) for row in addresses)
    equal = sum(_number(row[4]) for row in addresses)
    yield (
        "[the addresses of `caching`](docs/verify.md#agreement-so-far)",
        f"{len(addresses)} recordings of these programs on an H100",
        f"{equal:,} of {allocs:,} allocs have the address that PyTorch gave them",
    )
    yield (
        "[bytes, peaks and device calls of every strategy](docs/devices.md#measured-on-an-h100)",
        *_replays(),
    )
    yield ("that blocks do not overlap", *_integrity())


def table() -> str:
    """The rows as Markdown."""
    headings = ("what allocbench computes", "compared with", "result")
    lines = [headings, ("---",) * 3, *rows()]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _errors(found: Sequence[Compared]) -> str:
    pairs = [(one.said, one.truth) for one in found if one.said and one.truth]
    score = scores(pairs)
    return f"median error {score['median_error']:.2%}, p90 {score['p90_error']:.2%}"


def _training(found: Sequence[Compared]) -> list[Compared]:
    return [one for one in found if one.error is not None and one.run.kind == "language"]


def _formulas() -> Iterator[str]:
    """The formulas for convolutions that were predicted, each with its errors."""
    for formula, compared in measured("predictions-after.json").items():
        kept = [one for one in compared if one.error is not None and one.run.kind == "cnn"]
        if kept:
            yield f"`{formula}` {_errors(kept)}"


def _programs() -> str:
    """How many bundled programs are equal, before and after rules were learned from them."""
    found = list(agreement.program_rows())
    plain = sum(row[2] == "0" for row in found)
    learned = [row for row in found if row[6] != "0"]
    other = [f"`{row[0]}` {row[7]}" for row in learned if row[7] != "0"]
    return (
        f"equal in {plain}; with rules learned from these recordings, in"
        f" {len(found) - len(learned)}. The other {len(learned)} differ in workspaces of"
        f" convolutions, for which the formula `transposed` was used; peak reserved:"
        f" {', '.join(other)}, the others equal"
    )


def _replays() -> tuple[str, str]:
    """The replays on a GPU that a simulated device could repeat, and those that it could not."""
    found = json.loads((_GPU / "replays/replays.json").read_text(encoding="utf-8"))
    every = found["measured"]["rows"]
    compared = [row for row in every if "simulated" in row]
    counts = ("peak_reserved", "peak_allocated", "peak_requested", "malloc_calls", "failures")
    equal = [row for row in compared if not set(counts) & set(row["differs"])]
    less = min(
        row["gpu"]["peak_reserved"] / row["simulated"]["peak_reserved"] - 1 for row in compared
    )
    rest = sorted({row["allocator"] for row in every if "simulated" not in row})
    return (
        f"{len(every)} replays that used the memory of an H100",
        f"{len(compared)} were compared: equal in {len(equal)}; the others reserve at most"
        f" {-less:.1%} less. The {len(every) - len(compared)} of"
        f" {' and '.join(f'`{name}`' for name in rest)} were not; they are compared with"
        " [a model of its pool](docs/devices.md#pools) apart",
    )


def _integrity() -> tuple[str, str]:
    found = json.loads((_GPU / "integrity/integrity.json").read_text(encoding="utf-8"))
    kept = found["measured"]["rows"]
    blocks, size = (sum(row[name] for row in kept) for name in ("blocks", "bytes"))
    wrong = sum(row["wrong_words"] for row in kept)
    return (
        f"[{blocks:,} blocks](docs/on-a-gpu.md#measure-everything) with {size / 2**40:.1f} TiB,"
        " filled with a pattern and compared on an H100",
        f"{wrong} words were wrong",
    )


def _number(text: str) -> int:
    return int(text.replace(",", ""))


def main() -> None:
    """Write the table into the README."""
    before, _, rest = README.read_text(encoding="utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    README.write_text(f"{before}{BEGIN}{table()}{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
