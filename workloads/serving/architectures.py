# SPDX-License-Identifier: Apache-2.0
"""The weights of a language model as a serving engine loads them, one GPU's part.

An architecture is one of models.json, or the config.json of a model on huggingface.co (see
`model_configs`). It adds what a server needs to know and a trace does not: tied embeddings, norms
of queries and keys, quantized matrices, the rotary cache.
"""

from dataclasses import dataclass, replace
from functools import cached_property

from allocbench.workloads.serving import models
from allocbench.workloads.serving.models import Model
from allocbench.workloads.vocabulary import TraceError

_LINEAR = ("qkv", "o_proj", "gate_up", "down")
_VOCABULARY_MULTIPLE = 64
"""vLLM and SGLang round the vocabulary up to a multiple of this."""
_FLOAT32, _FLOAT16 = 4, 2  # bytes


@dataclass(frozen=True)
class Quantization:
    """How the matrices of a model's layers are stored. The embedding, the head and norms are not.

    bits: of a weight. group: weights that have a scale (float16) and a zero point of `bits` bits in
    common; 0: each row of a matrix has one scale (float32).
    """

    bits: int
    group: int = 0

    def size(self, rows: int, columns: int) -> int:
        """Bytes of a matrix with its scales."""
        packed = rows * columns * self.bits // 8
        if not self.group:
            return packed + rows * _FLOAT32
        groups = rows * -(-columns // self.group)
        return packed + groups * _FLOAT16 + groups * self.bits // 8


QUANTIZATIONS: dict[str, Quantization | None] = {
    "none": None,
    "fp8": Quantization(8),
    "int8": Quantization(8),
    "int4": Quantization(4, 128),
}
"""The ways to store weights that a user can name; int4 is that of AWQ and GPTQ."""


@dataclass(frozen=True)
class Architecture:
    """A model as a server loads it.

    model: its shapes; `tensor_parallel` GPUs share it. positions: rows of the rotary cache.
    tied: whether the head is the embedding. qk_norm: whether queries and keys have norms.
    output_bias: whether the output projection of the attention has a bias.
    kv_bytes: bytes of an element of the KV cache; 0: as the model's.
    """

    model: Model
    positions: int
    tied: bool = False
    qk_norm: bool = False
    output_bias: bool = False
    quantization: Quantization | None = None
    kv_bytes: int = 0

    @property
    def vocabulary(self) -> int:
        """Tokens in the vocabulary, with those that are added to round it up."""
        unit = _VOCABULARY_MULTIPLE
        return -(-self.model.vocabulary // unit) * unit

    @property
    def token_bytes(self) -> int:
        """Bytes of keys and values of a token in one layer, on one GPU."""
        return self.model.key_value * (self.kv_bytes or self.model.dtype_bytes)

    @cached_property
    def weights(self) -> list[tuple[str, int]]:
        """Name and bytes of every tensor that is loaded on one GPU, in model order."""
        model = replace(self.model, vocabulary=self.vocabulary)
        loaded = []
        for name, size in model.weights():
            if name == "head" and self.tied:
                continue
            loaded.append((name, self._size(name, size)))
            if name == "qkv" and self.qk_norm:
                loaded += [("q_norm", self._vector()), ("k_norm", self._vector())]
            if name == "o_proj" and self.output_bias:
                loaded.append(("o_bias", model.hidden * model.dtype_bytes))
        return [*loaded, ("rotary_cache", self.positions * self._vector())]

    def _vector(self) -> int:
        return self.model.head_dim * self.model.dtype_bytes

    def _size(self, name: str, size: int) -> int:
        if self.quantization is None or name not in _LINEAR:
            return size
        columns = {
            "qkv": self.model.hidden,
            "o_proj": self.model.query,
            "gate_up": self.model.hidden,
            "down": self.model.ffn_rows,
        }[name]
        return self.quantization.size(size // self.model.dtype_bytes // columns, columns)


LISTED = {
    row["name"]: Architecture(Model(**row["shape"]), **row["served"]) for row in models.LISTED
}


@dataclass(frozen=True)
class Stored:
    """What can be chosen for an architecture; None: what its configuration says.

    dtype_bytes: of an element of the activations and of weights that are not quantized.
    """

    tensor_parallel: int = 1
    dtype_bytes: int | None = None
    quantization: str | None = None
    kv_bytes: int | None = None


def listed(name: str) -> Architecture:
    """The architecture of a listed model; raises TraceError."""
    if name not in LISTED:
        raise TraceError(f"model {name}: not one of {', '.join(LISTED)}, nor a config.json")
    return LISTED[name]


def divided(whole: Architecture, chosen: Stored) -> Architecture:
    """The part of an architecture on one GPU, stored as chosen.

    Raises TraceError if the GPUs cannot share the model evenly.
    """
    ranks = chosen.tensor_parallel
    for what, count in (("heads", whole.model.heads), ("feed-forward rows", whole.model.ffn)):
        if count % ranks:
            raise TraceError(f"tensor parallelism of {ranks} does not divide the {count:,} {what}")
    model = replace(
        whole.model,
        tensor_parallel=ranks,
        dtype_bytes=chosen.dtype_bytes or whole.model.dtype_bytes,
    )
    made = replace(whole, model=model, kv_bytes=chosen.kv_bytes or whole.kv_bytes)
    if chosen.quantization is not None:
        made = replace(made, quantization=QUANTIZATIONS[chosen.quantization])
    return made
