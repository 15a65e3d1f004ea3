# SPDX-License-Identifier: Apache-2.0
"""Compare the estimates of `allocbench whatif` with runs of the edited programs on a null GPU.

    python -m benchmarks.workshop.edits --python PATH

PATH is a Python with a CUDA build of PyTorch. The results go to benchmarks/results/edits.csv; a
table of errors is printed. `program.py` makes the edits by its command line. The bundled training
programs are edited from outside, as `allocbench whatif --run` does it.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pandas as pd

from allocbench.programs.program import ProgramSettings, ProgramWorkload, load
from allocbench.questions.edits import edits
from allocbench.questions.training_blocks import TrainingBlocks
from allocbench.questions.whatif import RANKS, Proposal, proposal_of, run
from allocbench.replays.runner import Runner
from allocbench.workloads import catalog

ROOT = Path(__file__).parents[3]
RESULTS = ROOT / "benchmarks" / "results" / "edits.csv"
PROGRAM = Path(__file__).with_name("program.py")
DEVICE, ALLOCATOR, AMPLE = "null:h200", "caching", "sim:1TiB"
PROGRAMS = (
    "scores",
    "scores --autocast",
    "fused --autocast --batch 16",
    "residual --optimizer SGD --batch 64",
    "residual --autocast --batch 32",
)
EDITS = {
    "checkpoint every second": "--checkpoint 2",
    "checkpoint each": "--checkpoint 1",
    "batch in 2 parts": "--parts 2",
    "batch in 4 parts": "--parts 4",
    "chunked loss": "--chunks 8",
    "fused optimizer": "--fused",
    "optimizer state in host memory": "--no-state",
    "update in the backward pass": "--in-backward",
    f"ZeRO-3 on {RANKS} GPUs": "--shard",
}
KEPT, FREED = "--keep-gradients", "no gradients between the steps"
TRAINING = ("gpt2-train", "resnet50-train", "moe-train", "diffusion-train", "llama3-8b-lora")


def compared(python: str) -> Iterator[dict[str, object]]:
    """A row for each program and edit: the load and the need of the estimate, and of the run."""
    for arguments in PROGRAMS:
        blocks = TrainingBlocks(load(_program(python, arguments)))
        known = edits(blocks, RANKS)
        for start, option in EDITS.items():
            for edit in known:
                if edit.name.startswith(start):
                    estimate = proposal_of(blocks, (edit,), ALLOCATOR, AMPLE, None)
                    trace = load(_program(python, f"{arguments} {option}"))
                    yield _row(arguments, estimate, _need(trace), trace.max_load)
        kept = TrainingBlocks(load(_program(python, f"{arguments} {KEPT}")))
        for edit in edits(kept, RANKS):
            if edit.name == FREED:
                estimate = proposal_of(kept, (edit,), ALLOCATOR, AMPLE, None)
                yield _row(arguments, estimate, _need(blocks.trace), blocks.trace.max_load)
    for name in TRAINING:
        program = _bundled(python, name)
        blocks = TrainingBlocks(load(program))
        for edit in edits(blocks, RANKS):
            estimate = proposal_of(blocks, (edit,), ALLOCATOR, AMPLE, None)
            if estimate.made:
                ran = run(program, estimate, ALLOCATOR, AMPLE, None)
                yield _row(name, estimate, ran.run or 0, ran.run_load or 0)


def _program(python: str, arguments: str) -> ProgramWorkload:
    device = f"{DEVICE},rank=0,world={RANKS}" if "--shard" in arguments else DEVICE
    settings = ProgramSettings(device=device, quiet=True)
    return ProgramWorkload((python, str(PROGRAM), *arguments.split()), settings)


def _bundled(python: str, name: str) -> ProgramWorkload:
    command = (python, "-m", catalog.bundled(name).module, "--device", "cuda")
    return ProgramWorkload(command, ProgramSettings(device=DEVICE, quiet=True), name)


def _need(trace: object) -> int:
    return Runner(trace, AMPLE).rough_capacity(ALLOCATOR) or 0  # type: ignore[arg-type]


def _row(program: str, estimate: Proposal, need: int, load: int) -> dict[str, object]:
    return {
        "program": program,
        "edit": estimate.name,
        "load": estimate.load,
        "run_load": load,
        "need": estimate.need,
        "run_need": need,
    }


def main() -> None:
    """Run all programs and write the results."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.workshop.edits", description=__doc__
    )
    parser.add_argument("--python", required=True, help="with a CUDA build of PyTorch")
    arguments = parser.parse_args()
    os.environ["PYTHONPATH"] = str(ROOT)  # for the bundled programs
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        rows = []
        for row in compared(arguments.python):
            rows.append(row)
            print(row, flush=True)
    pd.DataFrame(rows).to_csv(RESULTS, index=False)


if __name__ == "__main__":
    main()
