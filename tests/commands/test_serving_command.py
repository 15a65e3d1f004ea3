# SPDX-License-Identifier: Apache-2.0
"""`allocbench serving`: its table, its JSON, its errors."""

import json
from pathlib import Path

import pytest

from tests.commands import error, folder, output
from tests.workloads.serving.test_architectures import LLAMA, write

__all__ = ["folder"]  # a fixture, used by importing it


@pytest.mark.parametrize("engine", ["vllm", "vllm-0.17", "vllm-0.11", "vllm-v0"])
def test_the_largest_length_that_fits_is_the_largest(engine: str) -> None:
    line = f"serving llama-3.1-8b --device l4 --engine {engine} --max-model-len"
    refused = error(f"{line} 131072")
    assert "would refuse to start: its KV cache holds" in refused
    largest = int(refused.rpartition("fits is ")[2].replace(",", ""))
    assert " 1.00 sequences of" in output(f"{line} {largest}")
    assert f"fits is {largest:,}" in error(f"{line} {largest + 1}")
    assert "sglang refuses requests that need more" in " ".join(
        output("serving llama-3.1-8b --device l4 --engine sglang").split()
    )


@pytest.mark.parametrize("method", ["bitsandbytes", "modelopt", "fbgemm_fp8", "mxfp4", "", 4])
def test_quantization_replaces_what_the_configuration_says(method: object) -> None:
    write(Path(), LLAMA | {"quantization_config": {"quant_method": method}})
    assert "--quantization replaces it" in error("serving config.json")
    replaced = json.loads(output("serving config.json --quantization int4 --json -"))
    write(Path(), LLAMA)
    assert replaced == json.loads(output("serving config.json --quantization int4 --json -"))


def test_json_has_the_lines_in_bytes() -> None:
    told = json.loads(output("serving llama-3-8b --device l40s --capture-sizes 1,8 --json -"))
    lines = {line["part"]: line["bytes"] for line in told["lines"]}
    assert lines["weights"] == 16_062_619_648
    assert told["capture_sizes"] == [1, 8]
    assert told["kv_tokens"] == 16 * told["kv_blocks"]
    assert lines["KV cache"] == told["kv_tokens"] * 128 * 1024
    assert told["log"] is None
    assert output("serving llama-3-8b --json made.json") != ""
    assert json.loads(Path("made.json").read_text())["card"] == "H100 SXM 80GB"
