# SPDX-License-Identifier: Apache-2.0
"""Request logs and serving workloads on the command line."""

import json
from pathlib import Path

import pytest

from allocbench.workloads import read
from tests.commands import QUICK, folder, output
from tests.workloads.serving.test_requests import AZURE, BURST, MOONCAKE

__all__ = ["folder"]  # a fixture, used by importing it


@pytest.mark.parametrize("text", [AZURE, BURST, MOONCAKE])
def test_every_command_accepts_a_log(text: str) -> None:
    Path("log").write_text(text)
    line = f"log --model qwen2.5-7b --allocators naive,bfc {QUICK} --json -"
    rows = json.loads(output(f"compare {line}"))
    assert [row["workload"] for row in rows] == ["log:model=qwen2.5-7b"] * 2
    trace = read("log", model="qwen2.5-7b")
    assert {row["events"] for row in rows} == {len(trace)}
    assert {row["max_load"] for row in rows} == {trace.max_load}
    assert f"{trace.max_load:,} bytes" in output("inspect log --model qwen2.5-7b")
    assert "log through bfc" in output(f"replay log --allocator bfc {QUICK}")
    assert output("convert log:kv=paged -o made.parquet --model qwen2.5-7b") == ""
    assert read("made.parquet").name == "log:model=qwen2.5-7b,kv=paged"
    assert "height" in output("plan log --planner greedy_by_size")


def test_a_model_can_be_given_in_the_spec_or_as_an_option() -> None:
    Path("log").write_text(AZURE)
    shown = output(
        f"compare log log:model=mistral-7b {QUICK} --allocators naive --model qwen2.5-7b"
    )
    assert "log:model=qwen2.5-7b" in shown
    assert "log:model=mistral-7b" in shown
    spec = "serve-chat:count=5"
    assert "serve-chat:model=qwen2.5-7b,count=5" in output(f"inspect {spec} --model qwen2.5-7b")
    assert output(f"inspect {spec}") == output(f"inspect {spec} --model llama-3-8b")
