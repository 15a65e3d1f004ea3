# SPDX-License-Identifier: Apache-2.0
"""The shapes of language models, and the part of them on one GPU of a tensor-parallel group.

The numbers in models.json come from each model's config.json on huggingface.co; the resulting
parameter counts match those on the model cards.
"""

import json
from dataclasses import MISSING, dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from allocbench.workloads.generator import Option
from allocbench.workloads.vocabulary import TraceError

CUSTOM = "custom"


@dataclass(frozen=True)
class Model:
    """A decoder with grouped-query attention and a gated feed-forward network.

    A group of `tensor_parallel` GPUs divides heads, feed-forward rows and vocabulary evenly; bytes
    and parameters are those of one GPU.
    """

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    vocabulary: int
    experts: int = 1
    experts_per_token: int = 1
    qkv_bias: int = 0
    dtype_bytes: int = 2
    tensor_parallel: int = 1

    @property
    def query(self) -> int:
        """Features of the queries of a token."""
        return self._shard(self.heads) * self.head_dim

    @property
    def key_value(self) -> int:
        """Features of the keys and values of a token in one layer; heads are never split."""
        return 2 * self._shard(self.kv_heads) * self.head_dim

    @property
    def ffn_rows(self) -> int:
        """Rows of one expert's feed-forward network."""
        return self._shard(self.ffn)

    @property
    def token_bytes(self) -> int:
        """Bytes of keys and values of a token in one layer."""
        return self.key_value * self.dtype_bytes

    @property
    def vocabulary_rows(self) -> int:
        """Rows of the embedding and of the head."""
        return self._shard(self.vocabulary)

    def weights(self) -> list[tuple[str, int]]:
        """Name and bytes of every weight, in model order."""
        qkv = self.query + self.key_value
        layer = [
            ("input_norm", self.hidden),
            ("qkv", self.hidden * qkv),
            *([("qkv_bias", qkv)] if self.qkv_bias else []),
            ("o_proj", self.query * self.hidden),
            ("attention_norm", self.hidden),
            *([("router", self.hidden * self.experts)] if self.experts > 1 else []),
            ("gate_up", 2 * self.experts * self.ffn_rows * self.hidden),
            ("down", self.experts * self.ffn_rows * self.hidden),
        ]
        table = self.vocabulary_rows * self.hidden
        whole = [("embedding", table), *layer * self.layers, ("norm", self.hidden), ("head", table)]
        return [(name, count * self.dtype_bytes) for name, count in whole]

    @cached_property
    def weight_bytes(self) -> int:
        """Bytes of all weights."""
        return sum(size for _, size in self.weights())

    def touched(self, tokens: int) -> tuple[float, float]:
        """Bytes of the weights read by a pass over this many tokens, and its multiplications.

        Each token picks its experts at random; the embedding is only looked up.
        """
        of_experts = (
            3 * self.ffn_rows * self.hidden * self.layers
        )  # parameters of one expert in all layers
        table = self.vocabulary_rows * self.hidden
        dense = self.weight_bytes / self.dtype_bytes - self.experts * of_experts - table
        used = 1 - (1 - self.experts_per_token / self.experts) ** tokens
        read = (dense + used * self.experts * of_experts) * self.dtype_bytes
        return read, tokens * (dense + self.experts_per_token * of_experts)

    def _shard(self, count: int) -> int:
        return -(-count // self.tensor_parallel)


LISTED: list[dict[str, Any]] = json.loads(
    Path(__file__).with_name("models.json").read_text(encoding="utf-8")
)
"""The known models: the shape of each and, for a trace of a server, how many GPUs share it."""
MODELS = {
    row["name"]: Model(**row["shape"], tensor_parallel=row["gpus"])
    for row in LISTED
    if "gpus" in row
}
"""Those whose servers have traces."""

_HELP = {
    "layers": "layers",
    "hidden": "features of a token between layers (hidden size)",
    "heads": "heads of the queries",
    "kv_heads": "heads of keys and values",
    "head_dim": "features of a head",
    "ffn": "rows of the feed-forward network, of one expert",
    "vocabulary": "tokens in the vocabulary",
    "experts": "experts of a layer, 1 for a dense model",
    "experts_per_token": "experts used per token",
    "qkv_bias": "1 if queries, keys and values have a bias, otherwise 0",
    "dtype_bytes": "bytes per weight, activation, key and value element",
    "tensor_parallel": "GPUs that share the model; the trace is for one of them",
}
_MOST = {"qkv_bias": 1, "dtype_bytes": 8, "layers": 10_000, "tensor_parallel": 1024}
_UNSET = ""

OPTIONS = (
    Option(
        "model",
        "choice",
        "llama-3-8b",
        "the model; options below override its numbers, and custom has no defaults",
        choices=(*MODELS, CUSTOM),
    ),
    *(
        Option(name, "count", _UNSET, help_, 0 if name == "qkv_bias" else 1, _MOST.get(name, 10**7))
        for name, help_ in _HELP.items()
    ),
)


def model_of(given: dict[str, Any]) -> Model:
    """The model described by the values of OPTIONS, which are removed from `given`.

    Raises TraceError if a number of a custom model is missing.
    """
    name = given.pop("model")
    numbers = {key: value for key in _HELP if (value := given.pop(key)) != _UNSET}
    if name != CUSTOM:
        return replace(MODELS[name], **numbers)
    required = [field.name for field in fields(Model) if field.default is MISSING]
    if missing := [key for key in required if key not in numbers]:
        raise TraceError(f"model=custom needs {', '.join(missing)}")
    return Model(**numbers)
