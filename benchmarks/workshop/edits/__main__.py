# SPDX-License-Identifier: Apache-2.0
"""Compare the estimates of `allocbench whatif` with runs of the edited programs on a null GPU.

    python -m benchmarks.workshop.edits predict --python PATH
    python -m benchmarks.workshop.edits run --python PATH

PATH is a Python with a CUDA build of PyTorch. The first command adds the estimates that
benchmarks/results/edits.csv does not have. The second runs the programs of those without a run, and
writes what each has as soon as it is known, or why there is no run. The bundled programs are edited
from outside, as `allocbench whatif --run` does it; `program.py` makes edits by its command line.
"""

import argparse
import os
import tempfile
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

import pandas as pd

from allocbench.base.errors import UserError
from allocbench.programs.program import ProgramSettings, ProgramWorkload, load
from allocbench.questions.edits import edits
from allocbench.questions.training_blocks import TrainingBlocks
from allocbench.questions.whatif import RANKS, changed, edited, proposal_of, with_settings
from allocbench.replays.runner import Runner
from allocbench.workloads import Trace, catalog
from allocbench.workloads.recording import PEAK_RESERVED

ROOT = Path(__file__).parents[3]
RESULTS = ROOT / "benchmarks" / "results" / "edits.csv"
PROGRAM = Path(__file__).with_name("program.py")
DEVICE, ALLOCATOR, AMPLE, STEPS = "null:h200", "caching", "sim:1TiB", 3
RUN = ("run_load", "run_need", "run_reserved")
WHY = "not_run"
"""The column that says why there is no run."""
PROGRAMS = {
    "scores": {
        "batch in 2 parts": "--parts 2",
        "batch in 4 parts": "--parts 4",
        "chunked loss": "--chunks 8",
        "memory-efficient attention": "--efficient",
        f"ZeRO-2 on {RANKS} GPUs": "--zero 2",
        f"ZeRO-3 on {RANKS} GPUs": "--zero 3",
        "update in the backward pass": "--in-backward",
    },
    "scores --autocast": {
        "batch in 2 parts": "--parts 2",
        "batch in 4 parts": "--parts 4",
        "chunked loss": "--chunks 8",
        "memory-efficient attention": "--efficient",
        f"ZeRO-3 on {RANKS} GPUs": "--zero 3",
    },
    "scores --keep-logits": {"free what": "--free-logits"},
    "fused --autocast --batch 16": {
        "batch in 2 parts": "--parts 2",
        "batch in 4 parts": "--parts 4",
        "chunked loss": "--chunks 8",
        f"ZeRO-2 on {RANKS} GPUs": "--zero 2",
        f"ZeRO-3 on {RANKS} GPUs": "--zero 3",
    },
    "fused --keep-gradients": {"no gradients between": "--free-gradients"},
    "residual --optimizer SGD --batch 64": {
        "batch in 2 parts": "--parts 2",
        "batch in 4 parts": "--parts 4",
        f"ZeRO-2 on {RANKS} GPUs": "--zero 2",
        f"ZeRO-3 on {RANKS} GPUs": "--zero 3",
    },
    "fused --buckets": {"gradients in DDP's": "--views"},
    "fused --buckets --autocast --batch 16": {"gradients in DDP's": "--views"},
    "scores --buckets --views": {f"ZeRO-1 on {RANKS} GPUs": "--zero 1"},
    "fused --buckets --views --autocast --batch 16": {f"ZeRO-1 on {RANKS} GPUs": "--zero 1"},
    "residual --optimizer SGD --batch 64 --buckets --views": {
        f"ZeRO-1 on {RANKS} GPUs": "--zero 1"
    },
}
"""By arguments of `program.py`: the beginnings of edits, and the options that make them."""
SETTING = "expandable_segments:True"
"""The only setting that the training programs are run with."""


def predicted(python: str, known: pd.DataFrame) -> Iterator[dict[str, object]]:
    """The estimate of each program and edit of the programs of which `known` lacks some."""
    pairs = {*zip(known["program"], known["edit"], strict=True)}
    for name in (*PROGRAMS, *catalog.captured()):
        if (known["program"] == name).sum() >= len(PROGRAMS.get(name, [""])):
            continue
        blocks = _blocks(python, name)
        for edit in edits(blocks, RANKS):
            if (name, edit.name) in pairs or not _is_run(name, edit.name, bool(edit.made)):
                continue
            estimate = proposal_of(blocks, (edit,), ALLOCATOR, AMPLE, None)
            spec = with_settings(ALLOCATOR, (edit,))
            reserved = Runner(edited(blocks, (edit,)), AMPLE).counted(spec)["peak_reserved"]
            yield {
                "program": name,
                "edit": edit.name,
                "load": estimate.load,
                "need": estimate.need,
                "reserved": reserved,
                "low": estimate.low,
                "high": estimate.high,
            }


def _is_run(program: str, edit: str, is_made: bool) -> bool:
    if program in PROGRAMS:
        return any(edit.startswith(start) for start in PROGRAMS[program])
    training = catalog.bundled(program).purpose == "training"
    return is_made and (not training or ":" not in edit or edit == SETTING)


def ran(python: str, program: str, edit: str) -> dict[str, int]:
    """What the program with an edit has."""
    original, spec = _of(python, program), ALLOCATOR
    if program in PROGRAMS:
        options = PROGRAMS[program]
        (option,) = (options[start] for start in options if edit.startswith(start))
        trace = load(_of(python, f"{program} {option}"))
    else:
        blocks = _blocks(python, program)
        (chosen,) = (one for one in edits(blocks, RANKS) if one.name == edit)
        spec = with_settings(ALLOCATOR, (chosen,))
        trace = load(changed(original, proposal_of(blocks, (chosen,), spec, AMPLE, None)))
    reserved = int(trace.provenance.extra[PEAK_RESERVED])
    return dict(zip(RUN, (trace.max_load, _need(trace, spec), reserved), strict=True))


@lru_cache(maxsize=1)
def _blocks(python: str, name: str) -> TrainingBlocks:
    """The blocks of a program as it is."""
    return TrainingBlocks(load(_of(python, name)))


def _of(python: str, name: str) -> ProgramWorkload:
    """A bundled program by its name, or `program.py` with arguments."""
    if name in catalog.captured():
        command = (python, "-m", catalog.bundled(name).module, "--device", "cuda")
        settings = ProgramSettings(device=DEVICE, quiet=True, steps=STEPS)
        return ProgramWorkload(command, settings, name)
    ranks = "--zero" in name or "--buckets" in name
    device = f"{DEVICE},rank=0,world={RANKS}" if ranks else DEVICE
    settings = ProgramSettings(device=device, quiet=True, steps=STEPS)
    return ProgramWorkload((python, str(PROGRAM), *name.split()), settings)


def _need(trace: Trace, spec: str) -> int:
    return Runner(trace, AMPLE).rough_capacity(spec) or 0


def main() -> None:
    """Estimate, or run, all programs and write the results."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.workshop.edits", description=__doc__
    )
    parser.add_argument("stage", choices=["predict", "run"])
    parser.add_argument("--python", required=True, help="with a CUDA build of PyTorch")
    arguments = parser.parse_args()
    os.environ["PYTHONPATH"] = str(ROOT)  # for the bundled programs
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        table = pd.read_csv(RESULTS)
        if arguments.stage == "predict":
            table = pd.concat([table, pd.DataFrame(predicted(arguments.python, table))])
        table = table.astype({**dict.fromkeys(RUN, "Int64"), WHY: "string"})
        if arguments.stage == "predict":
            table.to_csv(RESULTS, index=False)
            return
        for index in table.index[table[RUN[0]].isna()]:
            program, edit = map(str, table.loc[index, ["program", "edit"]])
            found: dict[str, int | str]
            try:
                found = {**ran(arguments.python, program, edit), WHY: ""}
            except UserError as error:
                told = str(error).replace(arguments.python, "python")
                found = {WHY: told.replace(f"{ROOT}{os.sep}", "")}
            print(program, edit, found, flush=True)
            for column, value in found.items():
                table.loc[index, column] = value
            table.to_csv(RESULTS, index=False)


if __name__ == "__main__":
    main()
