# SPDX-License-Identifier: Apache-2.0
"""Small servers, request logs, starts of servers and configurations are as they were frozen."""

import io
import json
from random import Random
from typing import Any

import pytest

from allocbench.workloads import catalog
from allocbench.workloads.errors import errors_naming
from allocbench.workloads.events import Events
from allocbench.workloads.serving import architectures, engines, logs, model_configs, start_logs
from allocbench.workloads.serving.architectures import QUANTIZATIONS, Architecture, Stored
from allocbench.workloads.vocabulary import Provenance
from tests.gold import Gold, outcome
from tests.workloads.drawn_texts import varied
from tests.workloads.serving.test_architectures import LLAMA
from tests.workloads.serving.test_requests import (
    AZURE,
    BAILIAN,
    BURST,
    BURST_LATER,
    CONVERSATIONS,
    LIST,
    MOONCAKE,
    USAGE,
)
from tests.workloads.serving.test_start_logs import FIRST, NEWEST, OTHER

_MODEL = "model=custom,layers=5,hidden=64,heads=8,kv_heads=2,head_dim=8,ffn=96,vocabulary=500"


def _server(rng: Random) -> str:
    """A server of a small model, whose cache is often too small for all requests."""
    chosen = {
        "kv": rng.choice(["contiguous", "paged"]),
        "growth": rng.choice(["concat", "double"]),
        "chunk": rng.choice([1, 8, 32]),
        "layer_group": rng.choice([1, 2, 3, 8]),
        "page": rng.choice([8, 16, 64, 512, 7]),
        "token_budget": rng.choice([8, 64, 300, 8192]),
        "max_sequences": rng.choice([1, 2, 8, 64]),
        "kv_budget": rng.choice([0, 200_000, 400_000, 900_000, 5_000_000]),
        "memory": rng.choice(["1MiB", "4MiB", "80GiB"]),
        "utilization": rng.choice([0.5, 0.9, 1]),
        "preemption": rng.choice(["recompute", "swap"]),
        "decode_tokens": rng.choice([1, 3, 8]),
        "activation_layers": rng.choice([0, 1, 3]),
        "sleep": rng.choice([0, 0, 0.5]),
        "link": rng.choice([50e9, 1e6]),
        "flops": rng.choice([989e12, 1e8]),
        "count": rng.choice([1, 5, 25]),
        "rate": rng.choice([0.5, 4, 1000]),
        "burstiness": rng.choice([1, 4]),
        "prompt": rng.choice([10, 60, 600]),
        "output": rng.choice([1, 20, 90]),
        "longest": rng.choice([100, 1000]),
        "prefixes": rng.choice([0, 0, 2, 5]),
        "prefix_tokens": rng.choice([512, 1024, 600]),
        "experts": rng.choice([1, 4]),
        "experts_per_token": rng.choice([1, 2]),
        "qkv_bias": rng.choice([0, 1]),
        "tensor_parallel": rng.choice([1, 1, 2, 3]),
        "dtype_bytes": rng.choice([1, 2, 4]),
        "seed": rng.randrange(9),
    }
    kept = rng.sample([*chosen], rng.randrange(8, len(chosen)))
    return f"serve-chat:{_MODEL}," + ",".join(f"{name}={chosen[name]}" for name in kept)


@pytest.mark.parametrize("first", range(0, 160, 20))
def test_servers(first: int, gold: Gold) -> None:
    specs = [_server(Random(seed)) for seed in range(first, first + 20)]
    gold(f"servers_{first}", {spec: outcome(catalog.load, spec) for spec in specs})


_BENCHMARK = {"input_lens": [5, 60, 7], "output_lens": [3, 0, 9], "start_times": [10.5, 9.25, 11]}
_CSV = "id;Arrival time (ms);prompt_tokens;completion tokens\n1;1000;5;6\n2;1500.5;7;8\n3;900;9;0\n"
_DATES = "created_at,input_len,output_len\n2026-01-02 03:04:05.5,3,4\n2026-01-02T03:04:07Z,5,6\n"
_LOGS = {
    **{"azure": AZURE, "burst": BURST, "burst later": BURST_LATER, "mooncake": MOONCAKE},
    **{"bailian": BAILIAN, "usage": USAGE, "list": LIST, "conversations": CONVERSATIONS[-900:]},
    **{"benchmark": json.dumps(_BENCHMARK), "csv": _CSV, "dates": _DATES},
    "zones": AZURE.replace("00,", "+01:30,"),
    "whole": CONVERSATIONS,
    "without times": "prompt_tokens,output_tokens\n5,6\n7,8\n",
    "no tokens": '{"input_lens": [1, 2], "output_lens": [3, "a"]}',
    "no times": '{"input_lens": [1, 2], "output_lens": [3, 4], "start_times": [5]}',
    "sums": "prompt_tokens,output_tokens,num_requests\n5,6,1\n",
    "two": "prompt_tokens,input_len,output_tokens\n5,6,1\n",
    "late": USAGE.replace("1700000", "1700000000"),
}


@pytest.mark.parametrize("name", _LOGS)
def test_request_logs(name: str, gold: Gold) -> None:
    rng = Random(name)
    texts = [_LOGS[name], *(varied(_LOGS[name], rng) for _ in range(25))]
    texts += ["\ufeff" + _LOGS[name], "\n \n" + _LOGS[name]]
    found = {
        str(n): outcome(_read_log, text.encode("utf-8", "replace")) for n, text in enumerate(texts)
    }
    gold(f"request_logs_{name.replace(' ', '_')}", found)


def _read_log(content: bytes) -> Any:
    with errors_naming("log"):
        requests = logs.read(io.BytesIO(content))
    return requests, len(requests), requests.first(2, 2.5)


def test_starts_of_servers(gold: Gold) -> None:
    rng = Random(1)
    texts = {
        f"{name} {n}": varied(text, rng) if n else text
        for name, text in {"newest": NEWEST, "first": FIRST, "other": OTHER}.items()
        for n in range(60)
    }
    gold("starts_of_servers", {name: outcome(start_logs.read, texts[name]) for name in texts})


_CONFIG: dict[str, list[Any]] = {
    "architectures": [[family] for family in model_configs._FAMILIES] + [["X"], [], "a", [3]],
    "num_attention_heads": [8, 12, None, 0, True, 10**8],
    "num_key_value_heads": [2, None, 8],
    "hidden_size": [96, 100, 4, "96"],
    "head_dim": [None, 16, 128],
    "num_hidden_layers": [3, 10_001, 2],
    "intermediate_size": [200, 1],
    "moe_intermediate_size": [50],
    "vocab_size": [1000, 64, 10**7],
    "num_local_experts": [4, 1],
    "num_experts": [6],
    "num_experts_per_tok": [2],
    "decoder_sparse_step": [1, 2],
    "mlp_only_layers": [[], [1]],
    "attention_bias": [True, False],
    "tie_word_embeddings": [True, False],
    "torch_dtype": ["float16", "float32", "bfloat16", "int8", 3],
    "max_position_embeddings": [128, 4096],
    "rope_scaling": [
        None,
        {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64},
        {"type": "linear", "factor": 2.5},
        {"rope_type": "longrope"},
        {"rope_type": "yarn", "factor": 0.5},
        {"rope_type": "llama3", "factor": 8},
        [],
    ],
    "quantization_config": [
        {"quant_method": "awq", "bits": 4, "group_size": 64},
        {"quant_method": "gptq", "bits": 8, "group_size": -1},
        {"quant_method": "gptq", "bits": 3},
        {"quant_method": "fp8"},
        {
            "quant_method": "compressed-tensors",
            "config_groups": {"g": {"weights": {"num_bits": 8}}},
        },
        {"quant_method": "other"},
        7,
    ],
    "kv_lora_rank": [64],
    "qk_rope_head_dim": [16],
    "layer_types": [
        ["sliding_attention"] * 2 + ["full_attention"],
        ["full_attention"] * 3,
        ["sliding_attention"] * 4 + ["full_attention"] * 5,
    ],
    "sliding_window": [32],
    "sliding_window_pattern": [6, 2],
    "full_attention_interval": [4],
    "attn_layer_period": [8],
}


def _config(seed: int) -> dict[str, Any]:
    """LLAMA with other values; most are possible."""
    rng = Random(seed)
    told = dict(LLAMA) | {"num_hidden_layers": rng.choice([3, 9])}
    for name in rng.sample([*_CONFIG], rng.choice([1, 3, 6])):
        values = _CONFIG[name]
        told[name] = values[0] if rng.random() < 0.4 else rng.choice(values)
    if rng.random() < 0.1:
        told.pop(rng.choice([*told]))
    return told


@pytest.mark.parametrize("first", range(0, 300, 100))
def test_configurations(first: int, gold: Gold) -> None:
    found = {}
    for seed in range(first, first + 100):
        told = _config(seed)
        found[str(seed)] = {
            "model": outcome(_parsed, told, seed),
            "cache": outcome(_cache, told, 1 + seed % 3),
        }
    gold(f"model_configs_{first}", found)


def _parsed(told: dict[str, Any], seed: int) -> Any:
    rng = Random(seed)
    found = model_configs.parse(told, quantized=rng.random() < 0.8)
    stored = Stored(
        rng.choice([1, 2, 3]),
        rng.choice([None, None, 4]),
        rng.choice([None, None, *QUANTIZATIONS]),
        rng.choice([None, 1]),
    )
    part = architectures.divided(found, stored)
    counts = [part.token_bytes, part.vocabulary, part.model.weight_bytes]
    return found, part, part.weights, counts, part.model.touched(5)


def _cache(told: dict[str, Any], ranks: int) -> Any:
    layout = model_configs.cache_layout(told, ranks)
    return layout, layout.tokens(10_000_000, 16)


@pytest.mark.parametrize("engine", engines.ENGINES)
def test_engines(engine: str, gold: Gold) -> None:
    gold(f"engine_{engine}", {str(seed): _of_engine(engine, seed) for seed in range(40)})


def _of_engine(engine: str, seed: int) -> Any:
    rng = Random(seed)
    card = rng.choice([16, 24, 48, 70, 80, 192]) << 30
    ranks = rng.choice([1, 2, 4, 8])
    whole = rng.choice([*architectures.LISTED.values()])
    model: Architecture = architectures.divided(whole, Stored(rng.choice([1, 2, 4])))
    given = {"tokens": rng.choice([None, 100, 4096]), "rows": rng.choice([None, 1, 127, 128])}
    largest = engines.batch(
        engine,
        card,
        rng.choice([2048, 9000, 40_000]),
        ranks=ranks,
        small_batches=rng.random() < 0.3,
        captured=rng.choice([None, None, (1, 2, 8)]),
        **given,
    )
    events = Events()
    tokens = rng.choice([1, 50, largest.tokens])
    events.free(engines.write_pass(events, model, tokens, engine))
    engines.write_sampling(events, model, largest.sampled, engine, rng.choice([0, 114]))
    sizes = largest.captured[-4:]
    engines.write_graphs(events, model, sizes, engine, 8_519_680, rng.random() < 0.5)
    page = rng.choice([1, 16, 64])
    blocks = engines.kv_blocks(model, page, rng.choice([-5, 10 << 20, 5 << 30]))
    return {
        "batch": largest,
        "sampled": largest.sampled,
        "share": engines.share(engine, card, ranks, largest),
        "experts": engines.expert_workspaces(model, tokens, engine),
        "events": events.trace(Provenance()),
        "blocks": blocks,
        "tensors": engines.kv_tensors(engine, model, page, blocks),
    }
