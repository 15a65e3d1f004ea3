# SPDX-License-Identifier: Apache-2.0
"""The allocators compared on a real GPU: PyTorch's own, and every strategy of allocbench."""

from dataclasses import dataclass

from allocbench import allocators

CONF = "PYTORCH_CUDA_ALLOC_CONF"


@dataclass(frozen=True)
class Contestant:
    """An allocator for PyTorch: a spec of allocbench, or variables that choose PyTorch's own."""

    name: str
    spec: str | None = None
    variables: tuple[tuple[str, str], ...] = ()


NATIVE = (
    Contestant("torch"),
    Contestant("torch-expandable", variables=((CONF, "expandable_segments:True"),)),
    Contestant("torch-async", variables=((CONF, "backend:cudaMallocAsync"),)),
)


FIRST = ("torch", "torch-expandable", "caching", "bfc", "planned")
"""The contestants that say the most; they are measured first."""


def ours() -> list[Contestant]:
    """Every strategy that can be recommended, and `caching` with expandable segments."""
    names = [info.name for info in allocators.strategies() if info.candidate]
    expandable = Contestant("caching-expandable", "caching:expandable_segments=true")
    return [*(Contestant(name, name) for name in names), expandable]


def everyone() -> list[Contestant]:
    """All contestants; PyTorch's own come first."""
    return [*NATIVE, *ours()]


def find(name: str) -> Contestant:
    """The contestant with a name; raises KeyError."""
    return {contestant.name: contestant for contestant in everyone()}[name]
