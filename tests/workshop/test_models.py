# SPDX-License-Identifier: Apache-2.0
"""The bundled programs run, and compute what they say."""

from __future__ import annotations

import importlib
import subprocess
import sys
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the bundled programs need PyTorch")

from allocbench.workloads import catalog  # noqa: E402
from benchmarks.workshop.models import bert, llama, llm_continuous, llm_decode, moe, paged  # noqa: E402
from benchmarks.workshop.models.program import ModelProgram  # noqa: E402

MODULES = [catalog.bundled(name).module for name in catalog.captured()]


def check_marks(marks: list[str]) -> None:
    assert (marks[0], marks[-1]) == ("init", "teardown")
    assert marks.count("step") >= 3


def test_a_program_runs_alone() -> None:
    command = [sys.executable, "-m", MODULES[0], "--tiny"]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    phases = [line.split()[-1] for line in done.stdout.splitlines()]
    assert phases[:3] == ["init", "step", "forward"]
    assert phases[-2:] == ["teardown", "done"]


@pytest.mark.parametrize("module", MODULES)
def test_programs_run_on_a_cpu(module: str) -> None:
    program: ModelProgram[Any] = importlib.import_module(module).PROGRAM
    marks: list[str] = []
    program.run(program.tiny, "cpu", marks.append)
    check_marks(marks)


def test_texts_wait_until_a_batch_of_their_bucket_is_full() -> None:
    config = bert.Config(1, 8, 1, 9, buckets=(8, 16), tokens=32, texts=(3, 9, 8, 1, 7, 16, 2))
    assert list(bert.batches(config)) == [[3, 8, 1, 7], [9, 16], [2]]


def test_decoding_with_a_cache_equals_recomputing() -> None:
    torch.manual_seed(1)
    with torch.no_grad():
        model = llama.Llama(llama.TINY)
        requests = [llm_decode.DecodeRequest(0, prompt, 5) for prompt in (3, 8)]
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
        sequences = [paged.PagedSequence[int](text.shape[1], 3) for text in texts]
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
