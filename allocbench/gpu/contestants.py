# SPDX-License-Identifier: Apache-2.0
"""Who competes on a real GPU: PyTorch's own allocators, and every strategy here."""

from __future__ import annotations

from dataclasses import dataclass

from allocbench import allocators

_CONF = "PYTORCH_CUDA_ALLOC_CONF"


@dataclass(frozen=True)
class Contestant:
    """A way to get memory under PyTorch: a spec of ours, or variables for PyTorch's own."""

    name: str
    spec: str | None = None
    variables: tuple[tuple[str, str], ...] = ()


NATIVE = (
    Contestant("torch"),
    Contestant("torch-expandable", variables=((_CONF, "expandable_segments:True"),)),
    Contestant("torch-async", variables=((_CONF, "backend:cudaMallocAsync"),)),
)


def ours() -> list[Contestant]:
    """Every strategy that may be recommended, with its defaults; `caching` also expandable."""
    names = [info.name for info in allocators.strategies() if info.candidate]
    expandable = Contestant("caching-expandable", "caching:expandable_segments=true")
    return [*(Contestant(name, name) for name in names), expandable]


def all_of_them() -> list[Contestant]:
    """PyTorch's own first."""
    return [*NATIVE, *ours()]


def find(name: str) -> Contestant:
    """The contestant of a name; KeyError when there is none."""
    return {contestant.name: contestant for contestant in all_of_them()}[name]
