# SPDX-License-Identifier: Apache-2.0
"""A server as it is asked about: names of its model and engine become an answer."""

from dataclasses import dataclass
from pathlib import Path

from allocbench.base.cards import Card
from allocbench.errors import UsageError
from allocbench.questions.occupancy import Outside
from allocbench.questions.serving import Asked, CardParts, answer, longest_sequence
from allocbench.workloads.serving import architectures, engines, model_configs
from allocbench.workloads.serving.architectures import Architecture


@dataclass(frozen=True)
class Server:
    """A server. None: what the engine or the model itself says.

    model: a listed one, or its config.json or the folder of this file. quantization, fp8_cache: how
    weights and the KV cache are stored. positions: tokens of the longest sequence. tokens, rows,
    captured: as in `engines.Batch`. The others are as in `Asked`.
    """

    model: str
    engine: str
    card: Card
    outside: Outside
    share: float | None = None
    quantization: str | None = None
    fp8_cache: bool = False
    block_tokens: int | None = None
    positions: int | None = None
    tokens: int | None = None
    rows: int | None = None
    captured: tuple[int, ...] | None = None

    def answer(self) -> tuple[CardParts, int]:
        """What fills its card, and the tokens of its longest sequence.

        Raises UsageError if the engine would refuse to start, and TraceError for a model that is
        not known.
        """
        architecture = self._architecture()
        longest = self.positions or architecture.positions
        if longest > architecture.positions:
            raise UsageError(
                f"--max-model-len {longest:,}: the model has {architecture.positions:,} positions"
            )
        found = answer(self._asked(architecture, longest))
        if self.engine != engines.SGLANG and found.tokens < longest:
            fits = longest_sequence(lambda most: self._asked(architecture, most), longest)
            raise UsageError(
                f"{self.engine} would refuse to start: its KV cache holds {found.tokens:,} tokens,"
                f" fewer than a sequence of {longest:,}; the largest --max-model-len that fits is"
                f" {fits:,}"
            )
        return found, longest

    def _architecture(self) -> Architecture:
        """The part of the model that each GPU has."""
        if self.model in architectures.LISTED or not Path(self.model).exists():
            whole = architectures.listed(self.model)
        else:
            whole = model_configs.read(Path(self.model), quantized=self.quantization is None)
        stored = architectures.Stored(
            tensor_parallel=self.outside.ranks,
            quantization=self.quantization,
            kv_bytes=1 if self.fp8_cache else None,
        )
        return architectures.divided(whole, stored)

    def _asked(self, architecture: Architecture, positions: int) -> Asked:
        card, ranks = self.card, self.outside.ranks
        batch = engines.batch(
            self.engine,
            card.usable,
            positions,
            ranks=ranks,
            small_batches="a100" in card.name.lower(),
            tokens=self.tokens,
            rows=self.rows,
            captured=self.captured,
        )
        share = self.share or engines.share(self.engine, card.usable, ranks, batch)
        blocks = self.block_tokens or (1 if self.engine == engines.SGLANG else 16)
        return Asked(architecture, self.engine, card, batch, blocks, share, self.outside)
