# SPDX-License-Identifier: Apache-2.0
"""The activations of a forward pass through the model, as an eager program allocates them.

A pass over T tokens keeps the hidden state (T, hidden) from layer to layer, allocates and frees the
tensors of each layer in turn, and ends with float32 logits for the sequences that get a token. All
layers allocate the same sizes, so a few layers can stand for all of them.
"""

from __future__ import annotations

from allocbench.workloads.events import Events
from allocbench.workloads.serving.models import Model

_LOGIT_BYTES = 4


def run_pass(events: Events, model: Model, tokens: int, rows: int, layers: int) -> None:
    """Write the activations of a pass over `tokens` tokens with `rows` rows of logits.

    layers: number of layers to write.
    """
    per_feature = tokens * model.dtype_bytes
    routed = per_feature * model.experts_per_token

    def take(features: int, label: str) -> int:
        return events.alloc(per_feature * features, label)

    hidden = take(model.hidden, "embedding")
    for _ in range(layers):
        normed = take(model.hidden, "norm")
        qkv = take(model.query + model.key_value, "qkv")
        events.free(normed)
        attended = take(model.query, "attention")
        events.free(qkv)
        projected = take(model.hidden, "o_proj")
        events.free(attended)
        normed = take(model.hidden, "norm")  # of the sum with the hidden state
        events.free(hidden)
        hidden = projected
        gate_up = events.alloc(routed * 2 * model.ffn_rows, "gate_up")
        activated = events.alloc(routed * model.ffn_rows, "silu_mul")
        events.free(gate_up)
        down = take(model.hidden, "down")
        for block in (activated, normed, hidden):
            events.free(block)
        hidden = down
    normed = take(model.hidden, "norm")
    events.free(hidden)
    if rows:
        chosen = events.alloc(rows * model.hidden * model.dtype_bytes, "last_tokens")
        logits = events.alloc(rows * model.vocabulary * _LOGIT_BYTES, "logits")
        events.free(chosen)
        shares = events.alloc(rows * model.vocabulary * _LOGIT_BYTES, "softmax")
        events.free(logits)
        events.free(shares)
    events.free(normed)
