# SPDX-License-Identifier: Apache-2.0
"""What fills a card: what an allocator reserves, and what is outside of it.

Outside are the CUDA context with the libraries and their loaded kernels, what libraries allocate
without PyTorch, NCCL's buffers, and other processes. The handles of cuBLAS and cuDNN are in the
estimate of the context, and their workspaces in what PyTorch reserves. The numbers and their
sources are in `allocbench/base/cards.json`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from allocbench.base.cards import Card
from allocbench.replays.runner import Runner
from allocbench.workloads import Trace


@dataclass(frozen=True)
class Outside:
    """What is in use outside of the allocator. Bytes.

    context: None: the estimate for the card. other: of other processes. ranks: of the program; with
    more than one, NCCL has buffers. nccl: None: the estimate. libraries: what the recorded program
    held without PyTorch, by library.
    """

    context: int | None = None
    other: int = 0
    ranks: int = 1
    nccl: int | None = None
    libraries: Mapping[str, int] = field(default_factory=dict)

    def parts(self, card: Card) -> Mapping[str, int]:
        """Bytes by what they are for: context, libraries, nccl, other."""
        return {
            "context": card.context if self.context is None else self.context,
            "libraries": sum(self.libraries.values()),
            "nccl": card.nccl(self.ranks) if self.nccl is None else self.nccl,
            "other": self.other,
        }

    def free(self, card: Card) -> int:
        """Bytes of a card that are left for the allocator; at least 0."""
        return max(0, card.usable - sum(self.parts(card).values()))


@dataclass(frozen=True)
class Occupancy:
    """What fills a card at its fullest. Bytes.

    reserved: what the allocator holds there, or would need if the card is too small; not less than
    what the recorded program held before the first event. needed: the least that is enough for it,
    None if nothing is. parts: what is outside of it. fits: whether every request succeeds.
    """

    card: Card
    reserved: int
    needed: int | None
    parts: Mapping[str, int]
    fits: bool

    @property
    def in_use(self) -> int:
        """All bytes in use, as nvidia-smi shows them."""
        return self.reserved + sum(self.parts.values())


def occupancy(run: Runner, spec: str, card: Card, outside: Outside) -> Occupancy:
    """What fills a card when a trace runs there through an allocator; raises SpecError."""
    free, needed = outside.free(card), run.min_capacity(spec)
    fits = free > 0 and run.completes(spec, free)
    reserved = run.on(f"sim:{free}").counted(spec)["peak_reserved"] if fits else needed
    return Occupancy(card, max(int(reserved or 0), run.held), needed, outside.parts(card), fits)


def ranks_of(trace: Trace) -> int:
    """How many ranks the recorded program had, as it saw them."""
    world = str(trace.provenance.extra.get("world", ""))
    return int(world) if world.isdecimal() and int(world) else 1
