# SPDX-License-Identifier: Apache-2.0
"""The numbers that users of vLLM and SGLang published, beside those of `allocbench serving`."""

from __future__ import annotations

import json
import shlex
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from allocbench.cli import app
from allocbench.workloads.generator import settle
from allocbench.workloads.serving import requests

PUBLISHED = Path(__file__).with_suffix(".json")
_GIB = 1 << 30


@dataclass(frozen=True)
class Published:
    """What a server printed, on an H100 with 80 GB unless the options say otherwise.

    options: of `allocbench serving`. published: GiB of lines of the answer, as printed.
    """

    where: str
    url: str
    version: str
    model: str
    options: str
    published: dict[str, float]

    def answer(self) -> dict[str, Any]:
        """What `allocbench serving` says with --json."""
        answered: dict[str, Any] = json.loads(_run(f"{self.model} {self.options} --json -"))
        return answered

    def compared(self) -> dict[str, tuple[float, float]]:
        """GiB of each published line: as published, and as answered."""
        lines = {line["part"]: line["bytes"] / _GIB for line in self.answer()["lines"]}
        return {part: (size, lines[part]) for part, size in self.published.items()}


def example() -> str:
    """The output of the command at the beginning of the page, for a log of drawn requests."""
    drawn = requests.draw(**settle(requests.OPTIONS, {"count": 1000, "rate": 1.0}))
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "requests.csv"
        rows = zip(drawn.arrival, drawn.prompt, drawn.output, strict=True)
        lines = [f"{at:.3f},{asked},{answered}" for at, asked, answered in rows]
        log.write_text("\n".join(["Timestamp,Request tokens,Response tokens", *lines]))
        return _run(f"llama-3.1-8b --device l4 --max-model-len 8192 --log {log}")


def _run(options: str) -> str:
    line = f"serving {options}"
    done = CliRunner().invoke(app, shlex.split(line))
    if done.exit_code:
        raise RuntimeError(f"{line}: {done.output}")
    return done.stdout


def published() -> list[Published]:
    """All published cases."""
    return [Published(**case) for case in json.loads(PUBLISHED.read_text(encoding="utf-8"))]


def rows() -> list[tuple[str, ...]]:
    """The cells of the table: a row for each case, with the published number and the error."""
    return [
        (
            f"[{case.where}]({case.url})",
            case.version,
            f"`{case.model} {case.options}`",
            *(_cell(case.compared().get(part)) for part in ("weights", "activations", "KV cache")),
        )
        for case in published()
    ]


def _cell(numbers: tuple[float, float] | None) -> str:
    if numbers is None:
        return ""
    known, answered = numbers
    return f"{known:g}, {answered:.2f} ({answered / known - 1:+.1%})"
