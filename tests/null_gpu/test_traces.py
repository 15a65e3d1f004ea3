# SPDX-License-Identifier: Apache-2.0
"""Traces of null GPUs: their content, and how well they agree with other recordings."""

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from allocbench.questions.holding import holders
from allocbench.verification.verify import verify
from allocbench.workloads import ALLOC, MARK, Trace, catalog, read, write
from allocbench.workloads.block_origins import PARAMETERS, STATE
from benchmarks.workshop import second_runs
from benchmarks.workshop.bundled_traces import DEVICE, TORCH, files, trace_of
from tests.null_gpu import NEWEST, ROOT, python, recorded
from tests.traces import assert_same


def trace_of_program(program: str, into: Path, *arguments: str, labels: str = "none") -> Trace:
    """The trace that `allocbench record` writes for a program on a null GPU."""
    path = into / "trace.parquet"
    recorded(path, program, *arguments, options=f"--device null:h100 --labels {labels}")
    return read(path)


def labels_of(trace: Trace) -> set[str]:
    assert trace.label is not None
    return {trace.labels[label] for label in trace.label[trace.op == ALLOC].tolist()}


def marks_of(trace: Trace) -> list[str]:
    return [trace.labels[block] for block in trace.block[trace.op == MARK].tolist()]


def kinds_of(trace: Trace) -> dict[str, int]:
    held = holders(trace)
    sums = held.groupby("kind")["bytes"].sum()
    return {str(kind): int(size) for kind, size in sums.items()}


def test_a_step_ends_with_the_first_optimizer_unless_the_program_says_so(tmp_path: Path) -> None:
    trace = trace_of_program("optimizers", tmp_path, labels="operators")
    assert trace.steps == 3
    assert {"aten::addmm", "aten::randn"} <= labels_of(trace)
    assert sorted(set(trace.stream.tolist())) == [0, 1]
    assert trace.provenance.device == "null:h100-sxm-80gb"
    assert trace.provenance.kind == "recorded"
    assert trace.provenance.extra["other_events"]["segment_alloc"] > 0
    # Adam makes its state in its first step, before the step is over.
    first = int(np.argmax((trace.op == MARK) & (trace.block == trace.step_label)))
    assert "Optimizer.step#Adam.step" in marks_of(trace)[:first]

    # Kinds do not depend on labels.
    lines = trace_of_program("optimizers", tmp_path, labels="lines")
    assert kinds_of(lines) == kinds_of(trace)
    assert {PARAMETERS, STATE} <= set(kinds_of(trace))

    annotated = trace_of_program("optimizers", tmp_path, "annotate", labels="lines")
    assert annotated.steps == 3
    assert marks_of(annotated)[0] == "step"
    assert not any("allocbench" in label for label in annotated.labels)
    assert any(label.startswith("optimizers.py:") for label in labels_of(annotated))


# Two that are fast to record; `make check-traces` checks all of them.
@pytest.mark.parametrize("name", ["resnet50-train", "vit-serve"])
def test_bundled_traces_are_made_again_and_caching_places_blocks_as_pytorch_did(
    name: str, tmp_path: Path
) -> None:
    file = files([name])[0]
    trace = trace_of(file, python(), DEVICE, keep=tmp_path)
    same_as_bundled(trace, file.path, tmp_path)
    (snapshot,) = tmp_path.glob("*.pickle")
    found = verify(snapshot, "caching:version=2.13").agreement
    assert found is not None
    assert found.equal
    assert found.placed_equal == found.allocs == trace.allocs
    assert found.segment_calls_equal == found.segment_calls
    assert (found.segment_calls or 0) > 40


def same_as_bundled(trace: Trace, path: Path, folder: Path) -> None:
    """Compare a new trace with a file: events, provenance, and bytes."""
    write(trace, folder / path.name)
    assert_same(read(path), trace)
    assert read(path).provenance == read(folder / path.name).provenance
    writers = {pq.read_metadata(file).created_by for file in (path, folder / path.name)}
    if len(writers) == 1:  # another pyarrow may write other bytes for the same trace
        assert path.read_bytes() == (folder / path.name).read_bytes()


def test_second_runs_are_made_again(tmp_path: Path) -> None:
    file = files(["dlrm-train"])[1]
    assert file.path == second_runs.path_of("dlrm-train")
    same_as_bundled(trace_of(file, python()), file.path, tmp_path)


def test_the_bundled_traces_are_of_the_tested_pytorch() -> None:
    made_with = {catalog.load(name).provenance.torch for name in catalog.captured()}
    assert made_with == {NEWEST} == {TORCH}
    assert f"TRACES := build/torch/{NEWEST}\n" in (ROOT / "Makefile").read_text(encoding="utf-8")
