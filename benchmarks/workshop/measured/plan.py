# SPDX-License-Identifier: Apache-2.0
"""The runs: chosen for variety, before anything was predicted or measured."""

import shlex
from dataclasses import dataclass
from pathlib import Path

PROGRAMS = Path(__file__).parent / "programs"
FIRST, SECOND, THIRD = (
    Path(__file__).with_name(name) for name in ("runs.txt", "second.txt", "third.txt")
)
"""The runs of each round: those of a later one are other programs."""
ROUNDS = {"first": FIRST, "second": SECOND, "third": THIRD}
KINDS = {
    "cnn": "convolutional networks",
    "vision": "vision transformers",
    "language": "language models, training",
    "generate": "language models, generation",
    "recurrent": "recurrent networks",
    "diffusion": "diffusion models",
    "compiled": "torch.compile",
    "values": "memory depends on computed values",
    "pictures": "detectors, segmentation, images from images",
    "volumes": "volumes, videos, sounds",
    "sequences": "other models of sequences",
    "sciences": "sciences, graphs, games, recommendation",
    "loops": "other training loops",
    "settings": "settings of PyTorch's allocator",
}
"""What the report calls each kind of run."""
EARLIER = "transposed"
"""A formula for workspaces of convolutions that the null GPU no longer has."""
CONVOLUTIONS = ("0", "spatial", "copies", "layout", EARLIER)
"""The formulas that were predicted. The first was the default before the measurement."""
USUAL = "layout"
"""The null GPU's formula, with which the later rounds are predicted."""
LIMITS = (0.97, 1.005)
"""Limits of further runs, as shares of the smallest capacity that `fit` finds."""


@dataclass(frozen=True)
class Run:
    """A program with its options.

    alone: nothing else runs on the card, so that what the driver reports is its own. limited: run
    again under each of `limits`. formula: for workspaces of convolutions; "" for each of
    `CONVOLUTIONS`.
    """

    name: str
    kind: str
    program: str
    options: tuple[str, ...]
    alone: bool
    limited: bool
    limits: tuple[float, ...] = LIMITS
    formula: str = ""

    @property
    def formulas(self) -> tuple[str, ...]:
        """The formulas for workspaces of convolutions with which this run is predicted."""
        if self.formula:
            return (self.formula,)
        return CONVOLUTIONS if self.kind == "cnn" else CONVOLUTIONS[:1]

    def command(self, python: str, limit: int | None = None) -> list[str]:
        """The command line, by which a user would start it."""
        told = () if limit is None else (f"--limit={limit}",)
        return [python, str(PROGRAMS / f"{self.program}.py"), *self.options, *told]


def runs(table: Path = FIRST) -> list[Run]:
    """All runs of a table."""
    found, formula = [], "" if table == FIRST else USUAL
    for line in table.read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            name, kind, program, *options = shlex.split(line)
            flags = {option for option in options if not option.startswith("--")}
            told = tuple(option for option in options if option not in flags)
            shares = [flag.removeprefix("limits=") for flag in flags if flag.startswith("limits=")]
            limits = tuple(float(share) for text in shares for share in text.split(","))
            limited = "limited" in flags or bool(limits)
            found.append(
                Run(name, kind, program, told, "alone" in flags, limited, limits or LIMITS, formula)
            )
    return found
