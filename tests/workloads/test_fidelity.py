# SPDX-License-Identifier: Apache-2.0
"""A capture compared with the requests to PyTorch's own CPU allocator in a real run.

The reference is the profiler's list of all allocations, recorded without a dispatch mode.
"""

from __future__ import annotations

import gc
import importlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import replace
from typing import Any
from unittest import mock

import pytest

torch = pytest.importorskip("torch", reason="captures need the extra 'torch'")

from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: E402
from torch.profiler import ProfilerActivity, profile  # noqa: E402

from allocbench.workloads import ALLOC, FREE, Provenance, Trace  # noqa: E402
from allocbench.workloads.alignment import agreement  # noqa: E402
from allocbench.workloads.models.llama import Shape  # noqa: E402
from allocbench.workloads.program import Mark, Program  # noqa: E402
from allocbench.workloads.recorder import record  # noqa: E402
from tests.traces import Event, make  # noqa: E402


def collect(label: str = "") -> None:
    gc.collect()


@contextmanager
def plain_kernels() -> Iterator[None]:
    """On one thread, without the libraries that choose kernels by the processor.

    oneDNN, NNPACK and kernels with a buffer for each thread allocate memory of their own.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with ExitStack() as stack:
        stack.enter_context(torch.backends.mkldnn.flags(enabled=False))
        stack.enter_context(torch.backends.nnpack.flags(enabled=False))
        stack.callback(torch.set_num_threads, threads)
        yield


def recorded(run: Callable[[Mark], None]) -> Trace:
    """Every allocation on the CPU of a real run."""
    gc.collect()
    gc.freeze()
    gc.disable()
    torch.autograd.set_multithreading_enabled(False)
    try:
        with plain_kernels():
            run(lambda label: None)  # what libraries make once
            with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
                run(collect)
                gc.collect()
    finally:
        torch.autograd.set_multithreading_enabled(True)
        gc.unfreeze()
        gc.enable()
    nodes, result = [*profiler.profiler.kineto_results.experimental_event_tree()], []
    while nodes:
        node = nodes.pop()
        nodes += node.children
        if type(node.extra_fields).__name__ == "_ExtraFields_Allocation":
            result.append((node.start_time_ns, node.extra_fields))
    events, live, blocks = list[Event](), dict[int, int](), 0
    for _, event in sorted(result, key=lambda pair: pair[0]):
        if event.alloc_size > 0:
            live[event.ptr] = blocks
            events.append((ALLOC, blocks, event.alloc_size))
            blocks += 1
        elif event.alloc_size < 0:
            events.append((FREE, live.pop(event.ptr), 0))
    trace = make(events)
    trace.validate()
    return trace


def captured(run: Callable[[Mark], None]) -> Trace:
    with FakeTensorMode():
        return record(run, "cpu").trace(Provenance())


# Wide enough that the CPU's kernels allocate little except their outputs. Without autocast, whose
# CPU kernels differ from those of a GPU.
CASES: dict[str, Callable[[Any], Any]] = {
    "gpt2": lambda tiny: replace(tiny, dropout=0.0, width=64, vocabulary=1000),
    "moe": lambda tiny: replace(tiny, shape=Shape(2, 64, 4, 2, 96, 1000)),
    "dlrm": lambda tiny: replace(tiny, tables=(6000, 300, 20000), width=32),
}


def run_of(module: str, config: Callable[[Any], Any]) -> Callable[[Mark], None]:
    program: Program[Any] = importlib.import_module(f"allocbench.workloads.models.{module}").PROGRAM

    def run(mark: Mark) -> None:
        with mock.patch("torch.autocast", return_value=nullcontext()):
            program.run(config(program.tiny), "cpu", mark)

    return run


@pytest.mark.parametrize("module", CASES)
def test_a_capture_is_contained_in_the_real_events(module: str) -> None:
    run = run_of(module, CASES[module])
    result = agreement(captured(run), recorded(run), smallest=4096)
    assert abs(result.peak_error) <= 0.01
    assert result.captured_events > 200
    assert result.precision > 0.99


def test_convolutions_allocate_more_than_they_return() -> None:
    """A capture of ResNet misses only allocations inside the CPU's kernels."""
    run = run_of("resnet", lambda tiny: tiny)
    result = agreement(captured(run), recorded(run))
    assert result.precision == 1.0
    assert result.recall < 0.6
    # Convolutions without a library unfold their inputs: the same bytes on every processor.
    assert (result.captured_peak, result.recorded_peak) == (634_384, 1_614_628)


# --- autograd works in place, except while a dispatch mode is active


def residual(mark: Mark) -> None:
    x = torch.ones(64, 64, requires_grad=True)
    y = x * 2
    torch.autograd.backward((y.exp() + y.sin() + y.cos() + y).sum())


def indexed(mark: Mark) -> None:
    x = torch.ones(64, 64, requires_grad=True)
    rows = torch.arange(32)
    y = x * 2
    torch.autograd.backward((y[rows] * y[rows + 1]).sum())


def selected(mark: Mark) -> None:
    x = torch.ones(64, 64, requires_grad=True)
    rows = torch.arange(32)
    torch.autograd.backward(((x * 2).index_select(0, rows) * 3).sum())


def gathered(mark: Mark) -> None:
    x = torch.ones(64, 64, requires_grad=True)
    rows = torch.zeros(64, 8, dtype=torch.int64)
    torch.autograd.backward(((x * 2).gather(1, rows) * 3).sum())


def held(mark: Mark) -> None:
    """A gradient that is referenced elsewhere is not modified in place."""
    kept: list[Any] = []
    x = torch.ones(64, 64, requires_grad=True)
    y = x * 2
    z = y.exp()
    y.register_hook(kept.append)
    z.register_hook(kept.append)
    torch.autograd.backward((z + y.sin() + y * 1).sum())


@pytest.mark.parametrize("run", [residual, indexed, selected, gathered, held])
def test_gradients_are_accumulated_as_autograd_does(run: Callable[[Mark], None]) -> None:
    real, seen = recorded(run), captured(run)
    result = agreement(seen, real, smallest=1024)
    assert result.captured_events == result.recorded_events == result.matched
    assert result.peak_error == 0.0
    seen.validate()
    assert seen.blocks == seen.allocs
