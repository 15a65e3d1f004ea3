# SPDX-License-Identifier: Apache-2.0
"""The weights that a server loads, from a list and from config.json."""

import functools
import json
from pathlib import Path
from typing import Any

import pytest

from allocbench.workloads.serving import model_configs
from allocbench.workloads.serving.architectures import Architecture, Stored, divided, listed
from allocbench.workloads.serving.model_configs import CacheLayout, cache_layout
from tests.traces import message_of

LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "max_position_embeddings": 131072,
    "num_attention_heads": 32,
    "num_hidden_layers": 32,
    "num_key_value_heads": 8,
    "rope_scaling": {"rope_type": "llama3", "factor": 8.0},
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "vocab_size": 128256,
}


def parameters(model: Architecture) -> int:
    """Weights without the rotary cache, which is computed."""
    return sum(size for name, size in model.weights if name != "rotary_cache") // 2


@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("llama-2-7b", 6_738_415_616),
        ("llama-2-70b", 68_976_648_192),
        ("llama-3-8b", 8_030_261_248),
        ("llama-3-70b", 70_553_706_496),
        ("llama-3.1-8b", 8_030_261_248),
        ("llama-3.1-70b", 70_553_706_496),
        ("llama-3.2-1b", 1_235_814_400),
        ("llama-3.2-3b", 3_212_749_824),
        ("mistral-7b", 7_241_732_096),
        ("mixtral-8x7b", 46_702_792_704),
        ("qwen2.5-7b", 7_615_616_512),
        ("qwen2.5-32b", 32_763_876_352),
        ("qwen2.5-72b", 72_706_203_648),
        ("qwen3-0.6b", 596_049_920),
        ("qwen3-8b", 8_190_735_360),
        ("qwen3-32b", 32_762_123_264),
        ("qwen3-30b-a3b", 30_532_122_624),
        ("qwen3-235b-a22b", 235_093_634_560),
        ("gemma-7b", 8_537_680_896),
    ],
)
def test_listed_models_have_the_published_parameter_counts(name: str, count: int) -> None:
    assert parameters(listed(name)) == count


def test_the_rotary_cache_has_a_row_for_each_position() -> None:
    assert dict(listed("llama-3.1-8b").weights)["rotary_cache"] == 131072 * 128 * 2


def test_gpus_share_matrices_and_repeat_norms() -> None:
    whole, half = listed("llama-3-8b"), divided(listed("llama-3-8b"), Stored(tensor_parallel=2))
    repeated = 65 * 4096 * 2 + 8192 * 128 * 2  # norms and the rotary cache
    held, total = (sum(size for _, size in part.weights) for part in (half, whole))
    assert held == (total - repeated) // 2 + repeated
    assert half.token_bytes == whole.token_bytes // 2
    with pytest.raises(Exception, match="tensor parallelism of 5 does not divide the 32 heads"):
        divided(whole, Stored(tensor_parallel=5))


def test_quantized_matrices_have_scales_and_embeddings_stay() -> None:
    whole = dict(listed("llama-3-8b").weights)
    int8 = dict(divided(listed("llama-3-8b"), Stored(quantization="int8")).weights)
    assert int8["down"] == whole["down"] // 2 + 4096 * 4
    assert int8["embedding"] == whole["embedding"]
    int4 = dict(divided(listed("llama-3-8b"), Stored(quantization="int4")).weights)
    groups = 4096 * 14336 // 128
    assert int4["down"] == whole["down"] // 4 + groups * 2 + groups // 2


def test_a_configuration_is_the_listed_model(tmp_path: Path) -> None:
    assert model_from() == listed("llama-3.1-8b")
    write(tmp_path, LLAMA)
    assert model_configs.read(tmp_path) == listed("llama-3.1-8b")


def test_what_is_not_known_of_another_architecture_is_not_said() -> None:
    for changes in (
        {"kv_lora_rank": 512},
        {"num_hidden_layers": None},
        {"torch_dtype": "x"},
        {"mamba_d_state": 16},
        {"attn_layer_period": 8, "attn_layer_offset": "x"},
        {"text_config": 3},
    ):
        other = {"architectures": ["T5Model"], **changes}
        told = message_of(functools.partial(model_from, **other))
        assert "so its weights are not known; `serving --run`" in told


@pytest.mark.parametrize(
    ("told", "layers"),
    [
        ({"layer_types": ["linear_attention"] * 24 + ["full_attention"] * 8}, 8),
        ({"layers_block_type": ["mamba", "mamba", "attention", "moe"] * 8}, 8),
        ({"hybrid_override_pattern": "M-M*-M-" * 4 + "*-*-"}, 6),
        ({"full_attention_interval": 4, "linear_num_key_heads": 16}, 8),
        ({"attn_layer_period": 8, "attn_layer_offset": 4, "mamba_d_state": 16}, 4),
        ({"attn_layer_period": 8, "attn_layer_offset": 0}, 4),
    ],
)
def test_layers_without_keys_and_values_do_not_count(told: dict[str, Any], layers: int) -> None:
    assert cache_layout(LLAMA | told).layers == layers
    other = {"architectures": ["T5Model"], "text_config": LLAMA | told}
    words = f"for each token in {layers} of 32 layers"
    assert words in message_of(lambda: model_configs.parse(other))


def test_layers_of_two_kinds_share_the_blocks_of_a_cache_in_groups_of_equal_size() -> None:
    def layout(layers: int, sliding: int, ranks: int = 1) -> CacheLayout:
        kinds = ["sliding_attention"] * sliding + ["full_attention"] * (layers - sliding)
        return cache_layout(LLAMA | {"num_hidden_layers": layers, "layer_types": kinds}, ranks)

    token = 2 * 8 * 128 * 2  # keys and values, heads, head, bytes
    assert layout(32, 0) == layout(32, 32) == CacheLayout(token, 32)
    assert layout(32, 16, ranks=16) == CacheLayout(token // 8, 16, 2)  # a head is never divided
    assert layout(62, 52) == CacheLayout(token, 10, 7)  # 52 layers fill five groups and a part
    assert layout(30, 16) == CacheLayout(token, 16, 2)  # 14 layers are padded
    assert layout(62, 52).tokens(7 * 10 * 16 * token * 3 - 1, 16) == 2 * 16


def test_compressed_keys_and_values_are_on_every_gpu() -> None:
    compressed = LLAMA | {"kv_lora_rank": 512, "qk_rope_head_dim": 64}
    assert cache_layout(compressed, 8) == CacheLayout((512 + 64) * 2, 32)


def model_from(**changes: Any) -> Architecture:
    """The architecture of LLAMA with changes; None removes a number."""
    return model_configs.parse(LLAMA | changes)


def write(folder: Path, told: dict[str, Any]) -> None:
    (folder / "config.json").write_text(json.dumps(told))
