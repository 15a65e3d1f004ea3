# SPDX-License-Identifier: Apache-2.0
"""A capture is reproducible and takes the path that a GPU would take."""

from __future__ import annotations

import importlib
import importlib.util
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="captures need the extra 'torch'")

from torch import nn  # noqa: E402
from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: E402

from allocbench.workloads import ALLOC, FREE, MARK, Provenance, Trace, catalog, fake_cuda, read  # noqa: E402
from allocbench.workloads.capture import CaptureError, capture  # noqa: E402
from allocbench.workloads.models import gpt2, llama, llm_continuous, llm_decode, moe, paged  # noqa: E402
from allocbench.workloads.program import Mark, Program  # noqa: E402
from allocbench.workloads.recorder import record  # noqa: E402

MODULES = [catalog.bundled(name).module for name in catalog.captured()]


def program_of(module: str) -> Program[Any]:
    program: Program[Any] = importlib.import_module(module).PROGRAM
    return program


def recorded(run: Any) -> Trace:
    trace = record(run, "cpu").trace(Provenance())
    trace.validate()
    return trace


def rows(trace: Trace) -> list[tuple[int, int | str, int]]:
    """Op, block (the label for a mark) and size of each event."""
    events = zip(trace.op.tolist(), trace.block.tolist(), trace.size.tolist(), strict=True)
    return [(op, trace.labels[block] if op == MARK else block, size) for op, block, size in events]


# --- whole workloads


def test_two_captures_are_equal(tmp_path: Path) -> None:
    """A small program in place of the bundled one, which takes longer and is made the same way."""
    names = ["gpt2-train"]

    def small(module: str, name: str, date: str) -> Trace:
        assert module == gpt2.__name__
        return capture("tests.workloads.small_program", name, date)

    for folder in (tmp_path / "one", tmp_path / "other"):
        folder.mkdir()
        catalog.recreate(names, folder, small)
    for name in names:
        one, other = (tmp_path / folder / f"{name}.parquet" for folder in ("one", "other"))
        assert one.read_bytes() == other.read_bytes()
        assert read(one).provenance.device == "cuda (fake tensors)"


# --- the programs


def check_marks(marks: list[str]) -> None:
    assert (marks[0], marks[-1]) == ("init", "teardown")
    assert marks.count("step") >= 3


def test_a_program_runs_alone() -> None:
    command = [sys.executable, "-m", MODULES[0], "--tiny"]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    phases = [line.split()[-1] for line in done.stdout.splitlines()]
    assert phases[:3] == ["init", "step", "forward"]
    assert phases[-2:] == ["teardown", "done"]


# With autocast, a CPU keeps the statistics of a normalisation in another type than fake tensors on
# a "cpu" report, which partly follow GPUs: these programs run without autocast.
EXACT = {"allocbench.workloads.models.resnet", "allocbench.workloads.models.diffusion_train"}


@pytest.mark.parametrize("module", MODULES)
def test_programs_run_on_a_cpu_and_fake_tensors_allocate_what_real_ones_do(module: str) -> None:
    program = program_of(module)
    autocast = torch.autocast if module not in EXACT else lambda *_: nullcontext()

    def run(mark: Mark) -> None:
        with mock.patch("torch.autocast", autocast):
            program.run(program.tiny, "cpu", mark)

    real = recorded(run)
    check_marks([real.labels[block] for block in real.block[real.op == MARK]])
    with FakeTensorMode():
        fake = recorded(run)
    assert rows(real) == rows(fake)
    assert real.allocs > 400
    assert (real.op == FREE).sum() == real.allocs


@pytest.mark.parametrize("module", sorted(EXACT))
def test_programs_run_on_a_cpu_under_autocast_too(module: str) -> None:
    program = program_of(module)
    marks: list[str] = []
    program.run(program.tiny, "cpu", marks.append)
    check_marks(marks)


def test_decoding_with_a_cache_equals_recomputing() -> None:
    torch.manual_seed(1)
    with torch.no_grad():
        model = llama.Llama(llama.TINY)
        requests = [llm_decode.Request(0, prompt, 5) for prompt in (3, 8)]
        texts, sequences = [], []
        for request in requests:
            torch.manual_seed(request.prompt)
            sequences.append(llm_decode.prefill(model, request, "cpu"))
            torch.manual_seed(request.prompt)
            texts.append(torch.randint(llama.TINY.vocabulary, (1, request.prompt)))
        for _ in range(4):
            for index, sequence in enumerate(sequences):
                texts[index] = torch.cat((texts[index], sequence.token), dim=1)
            llm_decode.decode(model, sequences, "cpu")
        for text, sequence in zip(texts, sequences, strict=True):
            x, rotation = model.tokens(text), model.rotation(torch.arange(text.shape[1]))
            for layer in model.layers:
                x = layer(x, rotation, llama.causal)
            assert sequence.length == text.shape[1]
            assert sequence.remaining == 1
            assert torch.equal(sequence.token, llama.choose(model, x[:, -1:]))


def answer(model: llama.Llama, text: Any) -> Any:
    """The token after a text (1, length), computed in one pass."""
    x, rotation = model.tokens(text), model.rotation(torch.arange(text.shape[1]))
    for layer in model.layers:
        x = layer(x, rotation, llama.causal)
    return llama.choose(model, x[0, -1])


def test_chunked_prefill_with_pages_equals_one_pass() -> None:
    torch.manual_seed(1)
    with torch.no_grad():
        model = llama.Llama(llama.TINY)
        texts = [torch.randint(llama.TINY.vocabulary, (1, length)) for length in (5, 33, 50)]
        pages = paged.make_pages(10, llama.TINY.layers, llama.TINY, "cpu").float()
        sequences = [paged.Sequence[int](text.shape[1], 3) for text in texts]
        free, pieces = [7, 3, 9, 0, 2, 5, 8, 1, 4], [[5, 20, 1], [0, 13, 40], [0, 0, 9]]
        for counts in pieces:
            batch = [n for n, count in enumerate(counts) if count]
            for n in batch:
                lacking = sequences[n].lacks(counts[n])
                sequences[n].pages += [free.pop() for _ in range(lacking)]
            paged.write_next(
                model,
                [sequences[n] for n in batch],
                [texts[n][0, sequences[n].read :][: counts[n]] for n in batch],
                lambda layer: ([pages], layer),
                [page for n in batch for page in sequences[n].pages],
            )
            for n in batch:
                token = sequences[n].token
                if token is not None and sequences[n].read == texts[n].shape[1]:
                    assert token == answer(model, texts[n])
                    texts[n] = torch.cat((texts[n], token[None]), dim=1)
        assert [sequence.read for sequence in sequences] == [5, 33, 50]


def test_continuous_batching_respects_its_budget_and_pages() -> None:
    for config in (llm_continuous.PROGRAM.tiny, llm_continuous.PROGRAM.full):
        schedule, read = llm_continuous.Schedule(config), 0
        while not schedule.done:
            batch = schedule.next_pass()
            assert sum(count for _, count in batch) <= config.budget
            held = [page for sequence in schedule.running for page in sequence.pages]
            assert sorted(held + schedule.free) == [*range(config.pages)]
            for sequence, count in batch:
                assert not sequence.lacks(count)
                sequence.read += count
                sequence.answer -= sequence.read >= sequence.prompt
                read += count
        asked = sum(request.prompt + request.answer for request in config.requests)
        assert read > asked  # preempted requests are recomputed


def test_experts_get_all_tokens_in_uneven_shares() -> None:
    route = moe.skewed_route(8)
    shares = [route(16384) for _ in range(20)]
    assert {sum(share) for share in shares} == {16384}
    assert len({count for share in shares for count in share}) > 100


# --- paths that a GPU would not take

TRAPS = {
    "attention in full": (
        "torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH)",
        ["_scaled_dot_product_flash_attention:bfloat16 did not run", "aten::_safe_softmax ran"],
    ),
    "no flash": (
        "torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.EFFICIENT_ATTENTION)",
        ["_scaled_dot_product_flash_attention:bfloat16 did not run"],
    ),
    "float32, and an optimizer that loops": (
        "mock.patch('torch.autocast', lambda *_: contextlib.nullcontext()),"
        " mock.patch('torch.optim.AdamW', lambda p, lr, foreach: adamw(p, lr, foreach=False))",
        [
            "aten::addmm:bfloat16 did not run",
            "aten::addmm:float32 ran",
            "aten::_foreach_addcdiv_ did not run",
            "aten::addcdiv_ ran",
        ],
    ),
    "none": ("contextlib.nullcontext()", []),
}

TRAPPED = """
import contextlib, dataclasses, torch, torch.nn.attention
from unittest import mock
from allocbench.workloads.models import gpt2

adamw = torch.optim.AdamW

def run(config, device, mark):
    with {trap}:
        gpt2.train(config, device, mark)

SMALL = dataclasses.replace(gpt2.PROGRAM.tiny, layers=1, lengths=(16,))
PROGRAM = dataclasses.replace(gpt2.PROGRAM, run=run, full=SMALL)
"""


@pytest.fixture
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder from which a capture can import modules."""
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


@pytest.mark.parametrize("trap", TRAPS)
def test_a_capture_with_unexpected_operators_is_rejected(modules: Path, trap: str) -> None:
    code, faults = TRAPS[trap]
    (modules / "trapped.py").write_text(TRAPPED.format(trap=code))
    if not faults:
        assert capture("trapped", "mine", "2000-01-01").provenance.date == "2000-01-01"
        return
    with pytest.raises(CaptureError) as caught:
        capture("trapped")
    assert str(caught.value).startswith("trapped took an unexpected path: ")
    assert all(fault in str(caught.value) for fault in faults)


# --- obstacles to a capture


def test_modules_without_a_program_are_rejected(modules: Path) -> None:
    with pytest.raises(CaptureError, match=r"^nowhere is not a module with a PROGRAM: No module"):
        capture("nowhere")
    (modules / "other.py").write_text("PROGRAM = 3")
    with pytest.raises(
        CaptureError, match=r"^other.PROGRAM is not an allocbench.workloads.program.Program$"
    ):
        capture("other")


def test_a_program_that_fails(modules: Path) -> None:
    code = TRAPPED.format(trap="1 / 0")
    (modules / "failing.py").write_text(code)
    with pytest.raises(CaptureError, match=r"^ZeroDivisionError: division by zero$"):
        capture("failing")


def test_without_a_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(CaptureError, match=r"needs a C\+\+20 compiler: install g\+\+"):
        capture("allocbench.workloads.models.gpt2")
    monkeypatch.setenv("CXX", "false")
    with pytest.raises(CaptureError, match=r"false cannot compile fake_cuda\.cpp"):
        capture("allocbench.workloads.models.gpt2")
    assert not list(tmp_path.rglob("*.*"))


def test_without_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(CaptureError, match="torch is already imported"):
        fake_cuda.load()
    monkeypatch.delitem(sys.modules, "torch")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(CaptureError, match="pip install torch"):
        fake_cuda.load()


# --- the recorder


def test_storages_are_recorded_once_with_any_number_of_views() -> None:
    def run(mark: Mark) -> None:
        mark("step")
        tensor = torch.zeros(4, 4)
        view = tensor.t()[1]
        view += 1
        del tensor
        view + 1  # a temporary
        mark("step")
        del view

    trace = recorded(run)
    assert rows(trace) == [
        (MARK, "step", 0),
        (ALLOC, 0, 64),
        (ALLOC, 1, 16),
        (FREE, 1, 0),
        (MARK, "step", 0),
        (FREE, 0, 0),
    ]
    assert trace.label is not None
    labels = [trace.labels[label] for label in trace.label]
    assert labels == ["", "aten::zeros", "aten::add", "", "", ""]


def test_a_storage_resized_in_place_is_freed_and_allocated() -> None:
    def run(mark: Mark) -> None:
        torch.empty(4).resize_(8)

    assert rows(recorded(run)) == [(ALLOC, 0, 16), (FREE, 0, 0), (ALLOC, 1, 32), (FREE, 1, 0)]


def test_cyclic_garbage_is_collected_only_at_marks() -> None:
    def run(mark: Mark) -> None:
        cycle: list[Any] = [torch.empty(4)]
        cycle.append(cycle)
        del cycle
        torch.empty(8)
        mark("step")

    assert [op for op, _, _ in rows(recorded(run))] == [ALLOC, ALLOC, FREE, FREE, MARK]


def test_adjacent_frees_are_in_order_of_their_blocks() -> None:
    def run(mark: Mark) -> None:
        tensors = [torch.empty(1) for _ in range(4)]
        for index in (2, 0, 3, 1):
            tensors[index] = None

    trace = recorded(run)
    assert trace.block[trace.op == FREE].tolist() == [0, 1, 2, 3]


def test_saved_activations_die_as_backward_uses_them() -> None:
    """A chain of three: forward keeps an output of each, backward drops them in reverse order."""

    def run(mark: Mark) -> None:
        layers = nn.Sequential(*(nn.Linear(4, 4, bias=False) for _ in range(3)))
        x = torch.ones(2, 4)
        mark("forward")
        loss = layers(x).relu().sum()
        mark("backward")
        torch.autograd.backward(loss)

    trace = recorded(run)
    backward = int(np.flatnonzero(trace.op == MARK)[1])
    created = set(trace.block[:backward][trace.op[:backward] == ALLOC].tolist())
    freed = [block for op, block, _ in rows(trace)[backward:] if op == FREE and block in created]
    activations = freed[:3]
    assert activations == sorted(activations, reverse=True)
