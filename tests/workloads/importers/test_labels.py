# SPDX-License-Identifier: Apache-2.0
"""Names of allocs from call stacks and from what `record` writes into a snapshot; marks."""

from typing import Any

import pytest

from allocbench.workloads.importers.labels import (
    MODULE_FILE,
    Frame,
    is_backward,
    label_of,
    line_of,
    marks_of,
    module_of,
)

TORCH = "/venv/lib/python3.12/site-packages/torch/"


def frame(file: str, name: str, line: int = 1) -> Frame:
    return Frame(file, line, name)


def event(action: str, address: int, time: int, *frames: Frame) -> dict[str, Any]:
    return {
        "action": action,
        "addr": address,
        "size": 512 + address,
        "stream": 0,
        "time_us": time,
        "frames": [frame._asdict() for frame in frames],
    }


MAIN = frame("train.py", "<module>", 9)


def test_frames_of_the_hook_are_neither_lines_nor_modules() -> None:
    dispatcher, module = frame(MODULE_FILE, ""), frame(MODULE_FILE, "h.3")
    frames = [dispatcher, frame(f"{TORCH}nn/functional.py", "linear"), dispatcher, module, MAIN]
    assert module_of(frames) == "h.3"
    assert label_of(frames) == "train.py:9 <module>"
    assert label_of([dispatcher]) == ""
    assert not is_backward(frames)
    assert is_backward(
        [frame("ops.py", "backward"), frame(f"{TORCH}autograd/function.py", "apply")]
    )


def test_cpp_frames_show_a_backward_pass() -> None:
    engine = frame("??", "torch::autograd::Engine::thread_main(std::shared_ptr<...> const&)")
    operator = frame("Ops.cpp", "at::_ops::mul_Tensor::call(at::Tensor const&, ...)")
    assert is_backward([operator, engine, frame("clone3.S", "clone3")])
    # Python frames that match no C++ frame follow all of them.
    assert is_backward([operator, engine, frame("clone3.S", "clone3"), MAIN])
    assert not is_backward([operator, frame("libc-start.c", "__libc_start_main"), MAIN])


HUB = "/venv/lib/python3.12/site-packages/transformers/trainer.py"
NO_PROGRAM = [
    frame(f"{TORCH}nn/functional.py", "linear"),
    frame("site-packages/torch/optim/adam.py", "step"),  # a path that was cut
    frame("C:\\env\\Lib\\site-packages\\torch\\_tensor.py", "backward"),
    frame("/usr/lib/python3.12/contextlib.py", "inner"),
    frame("C:\\Python312\\Lib\\contextlib.py", "inner"),
    frame("./sysdeps/unix/sysv/linux/x86_64/clone3.S", "clone3"),
    frame("ceval.c", "do_call_core"),
    frame("??", "at::_ops::mm::call(at::Tensor const&)"),
    frame("", "c10::TensorImpl::~TensorImpl()"),
    frame("<string>", "<module>"),
    frame(MODULE_FILE, "h.0.mlp"),
    frame(f"/tmp/torchinductor_u/ei/cei{'s' * 49}.py", "call"),
    frame("/opt/allocbench/null_gpu/inside/launch.py", "call"),
]


@pytest.mark.parametrize(
    ("frames", "line"),
    [
        ([], ""),
        (NO_PROGRAM, ""),
        ([*NO_PROGRAM, frame("/home/u/train.py", "forward", 68), MAIN], "train.py:68 forward"),
        ([*NO_PROGRAM, frame(HUB, "train", 7), MAIN], "train.py:9 <module>"),
        ([*NO_PROGRAM, frame(HUB, "train", 7)], "trainer.py:7 train"),
        ([frame(HUB, "train", 7), frame("/v/bin/hub-train", "<module>", 8)], "trainer.py:7 train"),
        ([frame("/v/bin/hub-train", "<module>", 8)], "hub-train:8 <module>"),
        ([frame(HUB, "train", 7), frame("/u/bin/train.py", "main", 8)], "train.py:8 main"),
        ([frame("C:\\u\\lib\\train.py", "main", 3)], "train.py:3 main"),
        ([frame("/home/u/lib/train.py", "main", 3)], "train.py:3 main"),
    ],
)
def test_the_line_of_the_program_is_outside_of_torch_and_python(
    frames: list[Frame], line: str
) -> None:
    assert line_of(frames) == line


OF_THE_OPTIMIZER = "allocbench.optimizer_step"


@pytest.mark.parametrize(
    ("annotations", "marks"),
    [
        (["ProfilerStep#0", "step", OF_THE_OPTIMIZER], ["step"]),
        (["step", "ProfilerStep#0", "step", "forward"], ["step", "forward"]),
        (["step", OF_THE_OPTIMIZER, "step"], ["step", "step"]),
        ([OF_THE_OPTIMIZER, "forward", OF_THE_OPTIMIZER], ["step", "forward", "step"]),
        (["steps", "ProfilerSteps"], ["steps", "ProfilerSteps"]),
        ([], []),
    ],
)
def test_each_step_counts_once(annotations: list[str], marks: list[str]) -> None:
    """A program may annotate steps itself, use the profiler, and be recorded by allocbench."""
    found = marks_of(enumerate(annotations))
    assert [name for _, name in found] == marks
    assert [when for when, _ in found] == sorted(when for when, _ in found)
