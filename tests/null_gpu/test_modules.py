# SPDX-License-Identifier: Apache-2.0
"""Which module of a model holds memory, found without a change to the program."""

from pathlib import Path

import numpy as np
import pytest

from allocbench.questions.holding import by_module, holders
from allocbench.workloads import MARK, Trace, block_origins, read
from tests.null_gpu import VERSIONS, recorded

UP, DOWN = 4 * (512 * 2048 + 2048), 4 * (2048 * 512 + 512)
"""Bytes of the parameters of one layer."""


def trace_of(
    folder: Path, how: str, *, version: str, labels: str = "lines", on: str = "null:l4"
) -> Trace:
    path = folder / f"{how}-{labels}.parquet"
    recorded(path, "modules", how, version=version, options=f"--device {on} --labels {labels}")
    return read(path)


def check(trace: Trace) -> None:
    """Parameters, gradients and the state of Adam are known by module, to the byte."""
    held = holders(trace)
    assert held["bytes"].sum() == trace.max_load
    modules = {row["module"]: row for row in by_module(held)}
    for name, size in (("layers.*.up", UP), ("layers.*.down", DOWN)):
        kinds = dict(modules[name]["kinds"])
        assert kinds[block_origins.PARAMETERS] == kinds[block_origins.GRADIENTS] == 3 * size
        state = held[(held["kind"] == block_origins.STATE) & held["module"].str.endswith(name[-3:])]
        assert state["bytes"].sum() == 3 * 2 * size
        assert modules[name]["modules"] == 3


@pytest.mark.parametrize("version", VERSIONS)
def test_a_model_by_module(tmp_path: Path, version: str) -> None:
    trace = trace_of(tmp_path, "plain", version=version)
    check(trace)
    assert trace.label is not None
    of_forward = [name.endswith(" forward") for name in trace.labels]
    first_step = int(np.flatnonzero(trace.op == MARK)[0])
    last = int(np.flatnonzero(np.array(of_forward)[trace.label[:first_step]])[-1])
    held = holders(trace, last)
    saved = held[held["kind"] == block_origins.ACTIVATIONS]
    sizes = saved.groupby("module")["bytes"].sum().to_dict()
    # What relu and the sum return, which their next operators need; and the input of the model.
    of_layer = 4 * 256 * (2048 + 512)
    shapes = trace.provenance.extra["output_shapes"]
    assert shapes["layers.2.up"] == "[256, 2048]"
    assert shapes["layers.2"] == shapes["Model"] == "[256, 512]"
    assert len(shapes) == 10
    assert {name: sizes[name] for name in ("layers.0", "layers.1")} == {
        "layers.0": of_layer,
        "layers.1": of_layer,
    }
    unwatched = trace_of(tmp_path, "plain", version=version, labels="none")
    assert np.array_equal(trace.op, unwatched.op)
    assert np.array_equal(trace.size, unwatched.size)


@pytest.mark.parametrize("how", ["compiled", "checkpointed", "parallel", "profiled"])
def test_modules_of_a_model_that_is_wrapped(tmp_path: Path, how: str) -> None:
    on = "null:l4,rank=0,world=2" if how == "parallel" else "null:l4"
    check(trace_of(tmp_path, how, version=VERSIONS[0], on=on))
