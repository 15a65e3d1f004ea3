# SPDX-License-Identifier: Apache-2.0
"""Reads the config.json of a model on huggingface.co as an architecture."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from allocbench.base import units
from allocbench.workloads.serving.architectures import Architecture, Quantization
from allocbench.workloads.serving.models import Model
from allocbench.workloads.vocabulary import TraceError

_FILE = "config.json"
_FAMILIES: Mapping[str, Mapping[str, bool]] = {
    "GemmaForCausalLM": {"tied": True},
    "GraniteForCausalLM": {},
    "LlamaForCausalLM": {},
    "MistralForCausalLM": {},
    "MixtralForCausalLM": {},
    "Phi3ForCausalLM": {},
    "Qwen2ForCausalLM": {"qkv_bias": True},
    "Qwen3ForCausalLM": {"qk_norm": True},
    "Qwen3MoeForCausalLM": {"qk_norm": True, "sparse": True},
}
"""The architectures of which all weights are known here, and what a configuration leaves out."""
_DTYPES = {"bfloat16": 2, "float16": 2, "float32": 4}
_MOST_BYTES = 1 << 20
_MOST = 10**7
_MOST_LAYERS = 10_000
_MOST_BITS = 32  # of a weight
_SIMILAR = 1.25
"""vLLM pads the rarer kind of layers if the other is less than this many times as common."""


def read(path: Path, *, quantized: bool = True) -> Architecture:
    """The architecture in a config.json, or in the one of a folder.

    quantized: whether its weights are stored as it says; if not, what it says of that is not read.
    Raises TraceError if the file cannot be read, lacks a number, or describes a model of which not
    all weights are known.
    """
    file = path / _FILE if path.is_dir() else path
    try:
        if file.stat().st_size > _MOST_BYTES:
            raise TraceError(f"{file}: larger than 1 MiB: not a config.json")
        told = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise TraceError(f"{file}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise TraceError(f"{file}: not JSON") from error
    if not isinstance(told, dict):
        raise TraceError(f"{file}: not a JSON object")
    try:
        return parse(told, quantized=quantized)
    except TraceError as error:
        raise TraceError(f"{file}: {error}") from error


def parse(told: Mapping[str, Any], *, quantized: bool = True) -> Architecture:
    """The architecture that a configuration describes, as `read` returns it; raises as it does."""
    names = told.get("architectures")
    name = names[0] if isinstance(names, list) and names else None
    if not isinstance(name, str):
        raise TraceError("is not the config.json of a model: it has no list of architectures")
    if name not in _FAMILIES:
        raise TraceError(
            f"architecture {name[:60]} is not one of {', '.join(_FAMILIES)}, so its weights are not"
            f" known{_known(told)}; `serving --run` starts the engine itself"
        )
    family = _FAMILIES[name]
    heads, hidden = _count(told, "num_attention_heads"), _count(told, "hidden_size")
    experts = _count(told, "num_local_experts", _count(told, "num_experts", 1))
    ffn = "moe_intermediate_size" if family.get("sparse") else "intermediate_size"
    if _count(told, "decoder_sparse_step", 1) != 1 or told.get("mlp_only_layers"):
        raise TraceError("some layers have experts and others do not, which is not supported")
    attention_bias = bool(told.get("attention_bias", False))
    if told.get("head_dim") is None and heads > hidden:
        raise TraceError(f"num_attention_heads {heads} is larger than hidden_size {hidden}")
    model = Model(
        layers=_count(told, "num_hidden_layers", most=_MOST_LAYERS),
        hidden=hidden,
        heads=heads,
        kv_heads=_count(told, "num_key_value_heads", heads),
        head_dim=_count(told, "head_dim", hidden // heads),
        ffn=_count(told, ffn),
        vocabulary=_count(told, "vocab_size"),
        experts=experts,
        experts_per_token=_count(told, "num_experts_per_tok", 1),
        qkv_bias=int(attention_bias or family.get("qkv_bias", False)),
        dtype_bytes=_dtype(told),
    )
    return Architecture(
        model,
        positions=_positions(told),
        tied=bool(told.get("tie_word_embeddings", family.get("tied", False))),
        qk_norm=family.get("qk_norm", False),
        output_bias=attention_bias,
        quantization=_quantization(told) if quantized else None,
    )


@dataclass(frozen=True)
class CacheLayout:
    """The KV cache of one GPU as vLLM divides it: each block belongs to one group of layers.

    token_bytes: of a token in one layer. layers: of a group. A model of equal layers has one group.
    """

    token_bytes: int
    layers: int
    groups: int = 1

    def tokens(self, room: int, block_tokens: int) -> int:
        """Tokens that fit in so many bytes, in all groups."""
        blocks = room // (self.token_bytes * self.layers * block_tokens)
        return blocks // self.groups * block_tokens


def cache_layout(told: Mapping[str, Any], ranks: int = 1) -> CacheLayout:
    """The KV cache of any model, also of one that `parse` refuses.

    Raises TraceError if a number is missing, if no layer has keys and values, or if it is not known
    which ones have. Compressed keys and values (`kv_lora_rank`) are not divided among GPUs. Layers
    with a sliding window form groups as in vLLM's `kv_cache_utils.py`.
    """
    layers = _attention_layers(told)
    if not layers:
        raise TraceError("none of its layers has keys and values")
    if "kv_lora_rank" in told:
        compressed = _count(told, "kv_lora_rank") + _count(told, "qk_rope_head_dim")
        return CacheLayout(compressed * _dtype(told), layers)
    heads = _count(told, "num_attention_heads")
    kept = -(-_count(told, "num_key_value_heads", heads) // ranks)
    length = _count(told, "head_dim", max(1, _count(told, "hidden_size") // heads))
    token = 2 * kept * length * _dtype(told)
    sliding = _sliding(told)
    if not 0 < sliding < layers:
        return CacheLayout(token, layers)
    few, many = sorted((sliding, layers - sliding))
    group = many if many < _SIMILAR * few else few
    return CacheLayout(token, group, -(-few // group) - (-many // group))


def _attention_layers(told: Mapping[str, Any]) -> int:
    """How many layers have keys and values; the others of a hybrid model keep a fixed state."""
    layers = _count(told, "num_hidden_layers", most=_MOST_LAYERS)
    for name in ("layer_types", "layers_block_type"):
        if isinstance(kinds := told.get(name), list):
            return sum("attention" in str(kind) and "linear" not in str(kind) for kind in kinds)
    if isinstance(pattern := told.get("hybrid_override_pattern"), str):
        return pattern.count("*")
    if "full_attention_interval" in told:
        return layers // _count(told, "full_attention_interval")
    if "attn_layer_period" in told:
        first = _count(told, "attn_layer_offset") if told.get("attn_layer_offset") else 0
        return len(range(first, layers, _count(told, "attn_layer_period")))
    if any(name.startswith(("mamba", "ssm_", "linear_", "rwkv")) for name in told):
        raise TraceError("it is not known which layers have keys and values")
    return layers


def _sliding(told: Mapping[str, Any]) -> int:
    """How many layers have a sliding window."""
    kinds = told.get("layer_types")
    if isinstance(kinds, list):
        return kinds.count("sliding_attention")
    if told.get("sliding_window_pattern") is None:
        return 0
    layers = _count(told, "num_hidden_layers", most=_MOST_LAYERS)
    return layers - layers // _count(told, "sliding_window_pattern")


def _known(told: Mapping[str, Any]) -> str:
    """What a configuration says of the KV cache of a model of another family; "" if it does not."""
    try:
        told = {**told, **_object(told, "text_config")}
        of_all, token = _count(told, "num_hidden_layers"), cache_layout(told).token_bytes
        layers = _attention_layers(told)
        window = _count(told, "sliding_window") if _sliding(told) else 0
    except TraceError:
        return ""
    among = f"{layers} layers" if layers == of_all else f"{layers} of {of_all} layers"
    words = f"; its keys and values take {units.size(token * layers)} for each token in {among}"
    return words + (f", of which {_sliding(told)} keep at most {window:,} tokens" if window else "")


def _positions(told: Mapping[str, Any]) -> int:
    """Rows of the rotary cache: YaRN and linear scaling have more than the configuration says."""
    positions = _count(told, "max_position_embeddings")
    scaling = _object(told, "rope_scaling")
    kind = scaling.get("rope_type", scaling.get("type", "default"))
    if kind == "longrope":
        raise TraceError("rope_scaling longrope is not supported")
    if kind == "yarn":
        original = _count(scaling, "original_max_position_embeddings", positions)
        return int(original * _factor(scaling))
    return int(positions * _factor(scaling)) if kind == "linear" else positions


def _factor(scaling: Mapping[str, Any]) -> float:
    factor = scaling.get("factor", 1)
    if isinstance(factor, bool) or not isinstance(factor, int | float) or not 1 <= factor <= _MOST:
        raise TraceError(
            f"the factor {str(factor)[:40]} of rope_scaling is not from 1 to {_MOST:,}"
        )
    return float(factor)


def _dtype(told: Mapping[str, Any]) -> int:
    name = told.get("torch_dtype", told.get("dtype", "bfloat16"))
    if not isinstance(name, str) or name not in _DTYPES:
        raise TraceError(f"torch_dtype {str(name)[:40]} is not one of {', '.join(_DTYPES)}")
    # vLLM and SGLang serve a float32 model with float16
    return min(_DTYPES[name], 2)


def _quantization(told: Mapping[str, Any]) -> Quantization | None:
    if told.get("quantization_config") is None:
        return None
    config = _object(told, "quantization_config")
    method = config.get("quant_method")
    if method in ("awq", "gptq"):
        return Quantization(_count(config, "bits", most=_MOST_BITS), _group(config, 128))
    if method == "fp8":
        return Quantization(8)
    if method == "compressed-tensors":
        groups = _object(config, "config_groups")
        weights = _object(_object(groups, next(iter(groups), "group_0")), "weights")
        return Quantization(_count(weights, "num_bits", most=_MOST_BITS), _group(weights, 0))
    raise TraceError(
        f"quantization {str(method)[:40]} is not one of awq, gptq, fp8, compressed-tensors;"
        " --quantization replaces it"
    )


def _group(told: Mapping[str, Any], default: int) -> int:
    """Weights with a scale in common; 0 for null and -1, which stand for a whole row."""
    size = told.get("group_size", default)
    return 0 if size in (None, 0, -1) else _count(told, "group_size", default)


def _object(told: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """The object of this name, or an empty one."""
    value = told.get(name)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise TraceError(f"{name} is not an object")
    return value


def _count(
    told: Mapping[str, Any], name: str, default: int | None = None, most: int = _MOST
) -> int:
    number = told.get(name)
    if number is None:
        if default is None:
            raise TraceError(f"no {name}")
        return default
    if isinstance(number, bool) or not isinstance(number, int) or not 1 <= number <= most:
        raise TraceError(f"{name} {str(number)[:40]} is not a whole number from 1 to {most:,}")
    return number
