# SPDX-License-Identifier: Apache-2.0
"""Whisper large-v3-turbo transcribing batches of speech by beam search.

Interesting for an allocator because of the beams: after every token the best five continuations are
selected, and the whole key-value cache is copied in the order of their ancestors while the old one
still lives, in addition to growing by a token. Other blocks are the keys and values of the audio,
one large block per layer that lives as long as its batch, and the scores of 51,866 tokens for every
beam, sorted in each step. Each batch starts with an encoder that briefly needs ten times the memory
of the decoder.
"""

import random
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.workshop.models.llama import bfloat16_on
from benchmarks.workshop.models.program import Mark, ModelProgram
from benchmarks.workshop.models.transformer import Attend, Block, whole

SEED = 0

Cache = list[tuple[Tensor, Tensor]]
"""Keys and values of each layer, (sequences, heads, length, head width)."""


@dataclass(frozen=True)
class AudioBatch:
    """Pieces of audio that are transcribed together, and the length of the longest answer."""

    pieces: int
    tokens: int


@dataclass(frozen=True)
class Config:
    """The network, its search, and the batches to transcribe."""

    encoder_layers: int
    decoder_layers: int
    width: int
    heads: int
    bands: int  # of the spectrogram
    frames: int  # of 30 seconds of the spectrogram, twice the encoder's output length
    vocabulary: int
    longest: int
    beams: int
    batches: tuple[AudioBatch, ...]


def draw_batches(count: int, pieces: int, longest: int) -> tuple[AudioBatch, ...]:
    """Draw batches, all full but the last, with answers of at least a third of the longest."""
    draw = random.Random(SEED)
    sizes = [pieces] * (count - 1) + [draw.randint(1, pieces - 1)]
    return tuple(AudioBatch(size, draw.randint(longest // 3, longest)) for size in sizes)


class DecoderBlock(Block):
    """A block that attends to the audio between self-attention and perceptron."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__(width, heads)
        self.norm_audio = nn.LayerNorm(width)
        self.query_audio = nn.Linear(width, width)
        self.key_value_audio = nn.Linear(width, 2 * width)
        self.projection_audio = nn.Linear(width, width)

    def heard(self, audio: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values (pieces, heads, frames, head width) of encoded audio."""
        both = self.key_value_audio(audio).unflatten(2, (2, self.heads, -1))
        key, value = both.permute(2, 0, 3, 1, 4)
        return key, value

    def decode(self, x: Tensor, attend: Attend, heard: tuple[Tensor, Tensor]) -> Tensor:
        """(sequences, 1, width) -> the same shape."""
        x = self._attend(x, attend)
        query = self.query_audio(self.norm_audio(x)).unflatten(2, (self.heads, -1))
        attended = whole(query.transpose(1, 2), *heard).transpose(1, 2).flatten(2)
        return self._perceive(x + self.projection_audio(attended))


class Whisper(nn.Module):
    """Two convolutions and blocks for the audio; an embedding and blocks for the text."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        width, heads = config.width, config.heads
        self.convolution_1 = nn.Conv1d(config.bands, width, 3, padding=1)
        self.convolution_2 = nn.Conv1d(width, width, 3, stride=2, padding=1)
        self.frames = nn.Parameter(torch.zeros(config.frames // 2, width))
        self.encoder = nn.ModuleList(Block(width, heads) for _ in range(config.encoder_layers))
        self.norm_audio, self.norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.tokens = nn.Embedding(config.vocabulary, width)
        self.positions = nn.Parameter(torch.zeros(config.longest, width))
        self.decoder = nn.ModuleList(
            DecoderBlock(width, heads) for _ in range(config.decoder_layers)
        )

    @property
    def decoder_blocks(self) -> list[DecoderBlock]:
        """The blocks for the text."""
        return cast(list[DecoderBlock], [*self.decoder])

    def encode(self, audio: Tensor) -> Tensor:
        """Spectrograms (pieces, bands, frames) -> (pieces, frames / 2, width)."""
        x = functional.gelu(self.convolution_1(audio))
        x = functional.gelu(self.convolution_2(x)).transpose(1, 2) + self.frames
        for block in self.encoder:
            x = block(x, whole)
        encoded: Tensor = self.norm_audio(x)
        return encoded

    def decode(self, token: Tensor, position: int, heard: Cache, cache: Cache) -> Tensor:
        """Newest tokens (sequences, 1) -> logits (sequences, vocabulary); `cache` grows."""
        x = self.tokens(token) + self.positions[position]
        for index, block in enumerate(self.decoder_blocks):

            def attend(query: Tensor, key: Tensor, value: Tensor, index: int = index) -> Tensor:
                if position:
                    keys, values = cache[index]
                    key, value = torch.cat((keys, key), 2), torch.cat((values, value), 2)
                    cache[index] = key, value
                else:
                    cache.append((key, value))
                return whole(query, key, value)

            x = block.decode(x, attend, heard[index])
        return functional.linear(self.norm(x)[:, 0], self.tokens.weight)


def search(model: Whisper, config: Config, batch: AudioBatch, heard: Cache, device: str) -> Tensor:
    """The texts (pieces * beams, tokens) found by beam search."""
    count, beams = batch.pieces * config.beams, config.beams
    cache: Cache = []
    text = torch.zeros(count, 1, dtype=torch.int64, device=device)
    scores = torch.zeros(batch.pieces, beams, device=device)
    first = torch.arange(0, count, beams, device=device)[:, None]
    for position in range(batch.tokens):
        logits = model.decode(text[:, -1:], position, heard, cache)
        chances = functional.log_softmax(logits, dim=-1, dtype=torch.float32)
        totals = scores[:, :, None] + chances.view(batch.pieces, beams, -1)
        scores, best = totals.flatten(1).topk(beams)
        ancestors = (first + best // config.vocabulary).flatten()
        tokens = (best % config.vocabulary).view(-1, 1)
        text = torch.cat((text[ancestors], tokens), dim=1)
        for index, (keys, values) in enumerate(cache):
            cache[index] = keys.index_select(0, ancestors), values.index_select(0, ancestors)
    return text


def transcribe(config: Config, device: str, mark: Mark) -> None:
    """Transcribe `config.batches` of random audio, one after another."""
    mark("init")
    with bfloat16_on(device):
        model = Whisper(config)
    for batch in config.batches:
        mark("step")
        mark("encode")
        size = (batch.pieces, config.bands, config.frames)
        audio = model.encode(torch.randn(size, dtype=torch.bfloat16, device=device))
        audio = audio.repeat_interleave(config.beams, dim=0)
        heard = [block.heard(audio) for block in model.decoder_blocks]
        del audio
        mark("decode")
        search(model, config, batch, heard, device).cpu()
        del heard
    mark("teardown")


PROGRAM = ModelProgram(
    run=torch.no_grad()(transcribe),
    full=Config(
        encoder_layers=32,
        decoder_layers=4,
        width=1280,
        heads=20,
        bands=128,
        frames=3000,
        vocabulary=51866,
        longest=448,
        beams=5,
        batches=draw_batches(count=4, pieces=16, longest=48),
    ),
    tiny=Config(
        encoder_layers=2,
        decoder_layers=2,
        width=32,
        heads=2,
        bands=8,
        frames=20,
        vocabulary=101,
        longest=16,
        beams=3,
        batches=draw_batches(count=3, pieces=3, longest=8),
    ),
    model="Whisper large-v3-turbo, bfloat16, 4 batches of at most 16 pieces of 30 seconds, 5 beams",
    seed=SEED,
)

if __name__ == "__main__":
    PROGRAM.main()
