# SPDX-License-Identifier: Apache-2.0
"""Train models of sequences in ways that the earlier rounds did not have."""

from __future__ import annotations

import argparse
import itertools
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import nn
from torch.nn import functional

sys.path.append(str(Path(__file__).parents[1]))
import measuring

Batch = dict[str, torch.Tensor]
SIZES = {"hidden_size": 512, "num_hidden_layers": 6, "num_attention_heads": 8}
WORDS = 16_000


def sized(kind: str, **options: Any) -> Any:
    """A configuration of a middle size."""
    return transformers.AutoConfig.for_model(kind, vocab_size=WORDS, **SIZES, **options)


def texts(told: argparse.Namespace) -> Batch:
    """Tokens of equal length."""
    return {"input_ids": torch.randint(5, WORDS, (told.batch, told.tokens))}


class Preferences(nn.Module):
    """A model that learns which of two texts is preferred, beside its frozen copy."""

    def __init__(self, config: Any) -> None:
        super().__init__()
        self.model, self.before = (
            transformers.AutoModelForCausalLM.from_config(config) for _ in range(2)
        )
        self.before.requires_grad_(requires_grad=False)

    @staticmethod
    def likelihood(model: Any, ids: torch.Tensor) -> torch.Tensor:
        """The logarithm of the probability of each text."""
        scores = model(ids).logits[:, :-1].log_softmax(-1)
        return scores.gather(-1, ids[:, 1:, None]).squeeze(-1).sum(-1)

    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        """The loss of Direct Preference Optimization; the first half of the texts is preferred."""
        gained = self.likelihood(self.model, input_ids)
        with torch.no_grad():
            usual = self.likelihood(self.before, input_ids)
        good, bad = (gained - usual).chunk(2)
        return -functional.logsigmoid(0.1 * (good - bad)).mean()


class Policy(nn.Module):
    """A model that learns from the rewards of the texts that it generates."""

    def __init__(self, config: Any) -> None:
        super().__init__()
        self.model = transformers.AutoModelForCausalLM.from_config(config)

    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        """The loss; texts are twice as long after the model has continued them."""
        count = input_ids.shape[1]
        with torch.no_grad():
            ids = self.model.generate(
                input_ids,
                max_new_tokens=count,
                min_new_tokens=count,
                do_sample=True,
                pad_token_id=0,
            )
        reward = torch.rand(len(ids), 1, device=ids.device)
        reward = (reward - reward.mean()) / (reward.std() + 1e-4)
        scores = self.model(ids).logits[:, :-1].log_softmax(-1)
        chosen = scores.gather(-1, ids[:, 1:, None]).squeeze(-1)
        loss: torch.Tensor = -(chosen[:, count - 1 :] * reward).mean()
        return loss


class Twins(nn.Module):
    """An encoder that learns which texts belong together."""

    def __init__(self, config: Any) -> None:
        super().__init__()
        self.model = transformers.AutoModel.from_config(config)

    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        """The loss; each text belongs to itself, seen with another dropout."""
        one, two = (
            functional.normalize(self.model(input_ids).last_hidden_state.mean(1), dim=-1)
            for _ in range(2)
        )
        places = torch.arange(len(one), device=one.device)
        return functional.cross_entropy(one @ two.T / 0.05, places)


class Packed(nn.Module):
    """Recurrent layers over packed sequences of different lengths, with a projection."""

    def __init__(self, told: argparse.Namespace) -> None:
        super().__init__()
        self.embedding = nn.Embedding(WORDS, 512)
        self.layers = nn.LSTM(512, 512, 3, batch_first=True, proj_size=256, dropout=0.2)
        self.scores = nn.Linear(256, WORDS)
        self.lengths = [told.tokens - 3 * place for place in range(told.batch)]

    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        """The loss on the places that have words."""
        packed = nn.utils.rnn.pack_padded_sequence(
            self.embedding(input_ids), torch.tensor(self.lengths), batch_first=True
        )
        scores = self.scores(self.layers(packed)[0].data)
        return functional.cross_entropy(scores, torch.zeros_like(scores[:, 0], dtype=torch.long))


class Jagged(nn.Module):
    """A layer of attention over nested tensors of different lengths."""

    def __init__(self, told: argparse.Namespace) -> None:
        super().__init__()
        self.embedding = nn.Embedding(WORDS, 512)
        self.joined, self.out = nn.Linear(512, 3 * 512), nn.Linear(512, 512)
        self.lengths = [told.tokens - 3 * place for place in range(told.batch)]

    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        """The mean of what the layer makes."""
        parts = [ids[:count] for ids, count in zip(input_ids, self.lengths, strict=True)]
        nested = torch.nested.nested_tensor(parts, layout=torch.jagged)
        x = self.embedding(nested)
        query, key, value = (
            part.unflatten(-1, [8, 64]).transpose(1, 2) for part in self.joined(x).chunk(3, dim=-1)
        )
        seen = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        found: torch.Tensor = self.out(seen.transpose(1, 2).flatten(2)).values().mean()
        return found


class Speech(nn.Module):
    """An encoder of sounds with scores of letters."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        options = SIZES | {"vocab_size": 32, "layerdrop": 0.0}
        config = transformers.AutoConfig.for_model(kind, **options)
        self.model = transformers.AutoModelForCTC.from_config(config)

    def forward(self, input_values: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """The loss."""
        loss: torch.Tensor = self.model(input_values, labels=labels).loss
        return loss


class Continued(nn.Module):
    """A model that predicts the next word."""

    def __init__(self, config: Any) -> None:
        super().__init__()
        self.model = transformers.AutoModelForCausalLM.from_config(config)

    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        """The loss."""
        loss: torch.Tensor = self.model(input_ids, labels=input_ids).loss
        return loss


def make(told: argparse.Namespace) -> nn.Module:
    """The model."""
    llama = {"num_key_value_heads": 4, "intermediate_size": 1408}
    match told.model:
        case "preferences":
            return Preferences(sized("llama", **llama))
        case "policy":
            return Policy(sized("qwen2", **llama))
        case "twins":
            return Twins(sized("bert", intermediate_size=2048))
        case "packed":
            return Packed(told)
        case "jagged":
            return Jagged(told)
        case "wav2vec2" | "hubert":
            return Speech(told.model)
        case "mamba":
            return Continued(
                transformers.MambaConfig(vocab_size=WORDS, hidden_size=512, num_hidden_layers=6)
            )
        case "experts":
            return Continued(sized("mixtral", num_local_experts=8, **llama))
        case kind:
            more = llama | {"head_dim": 64}
            if kind == "gpt_oss":
                more |= {"num_local_experts": 4, "num_experts_per_tok": 2}
            return Continued(sized(kind, **more))


def body(told: argparse.Namespace, stages: measuring.Stages) -> None:
    """The program."""
    torch.manual_seed(0)
    model = make(told).to("cuda")
    model.train()
    stages.reach("model")

    def batches() -> Iterator[Batch]:
        for _ in itertools.count():
            batch = texts(told)
            if isinstance(model, Speech):
                letters = torch.randint(1, 32, (told.batch, 40))
                batch = {"input_values": torch.randn(told.batch, told.tokens), "labels": letters}
            yield {name: tensor.to("cuda") for name, tensor in batch.items()}

    def loss(called: Any, batch: Batch) -> torch.Tensor:
        value: torch.Tensor = called(**batch)
        return value

    measuring.train(told, stages, model, batches(), loss)


def main() -> None:
    """The command line."""
    parser = measuring.parser(__doc__)
    parser.add_argument("--model", required=True)
    parser.add_argument("--tokens", type=int, default=512, help="or samples of a sound")
    measuring.measure(parser.parse_args(), body)


if __name__ == "__main__":
    main()
