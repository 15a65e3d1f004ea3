# SPDX-License-Identifier: Apache-2.0
"""The numbers that users of vLLM and SGLang published, beside those of `allocbench serving`."""

import json
import shlex
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from statistics import median
from typing import Any

from typer.testing import CliRunner

from allocbench.cli import app
from allocbench.workloads.generator import settle
from allocbench.workloads.serving import model_configs, requests
from allocbench.workloads.serving.architectures import LISTED

ROOT = Path(__file__).parents[2]
PUBLISHED = ROOT / "benchmarks/results/published/serving.json"
STARTS = ROOT / "benchmarks/results/server_starts.json"
PARTS = ("weights", "activations", "KV cache", "tokens", "graphs")
_GIB = 1 << 30
_ROUNDED = _GIB // 200
"""Half of the last digit of a published KV cache, in bytes."""


@dataclass(frozen=True)
class Published:
    """What a server printed, on an H100 with 80 GB unless the options say otherwise.

    options: of `allocbench serving`; "" if only the KV cache is compared: `serving` does not
    support the model, or the card is unknown. published: GiB of lines of the answer, as printed,
    and tokens of the KV cache. ranks: GPUs, if there are no options.
    """

    where: str
    url: str
    version: str
    model: str
    published: dict[str, float]
    options: str = ""
    ranks: int = 1

    @property
    def gpus(self) -> int:
        """How many GPUs share the model."""
        words = self.options.split()
        name = "--tensor-parallel"
        return int(words[words.index(name) + 1]) if name in words else self.ranks

    def compared(self) -> dict[str, tuple[float, float]]:
        """Each published number of the card: as published, and as answered."""
        if not self.options:
            return {}
        answer = _answer(self.model, self.options)
        lines = {line["part"]: line["bytes"] / _GIB for line in answer["lines"]}
        lines["tokens"] = answer["kv_tokens"]
        lines["graphs"] = lines["graphs: pool"] + lines["graphs: driver"]
        return {part: (size, lines[part]) for part, size in self.published.items()}

    def held(self) -> tuple[int, int] | None:
        """The fewest and most tokens that the published GiB of a KV cache hold; None if not known.

        GiB are published with two digits, those of SGLang as the sum of two such numbers.
        """
        if not {"KV cache", "tokens"} <= set(self.published):
            return None
        block = 1 if "SGLang" in self.version else 16
        if self.options:
            answer = _answer(self.model, self.options)
            cache = next(line for line in answer["lines"] if line["part"] == "KV cache")
            token = cache["bytes"] // (answer["kv_tokens"] + (block == 1))
            layout = model_configs.CacheLayout(token, 1)
        else:
            layout = model_configs.cache_layout(_configs()[self.model], self.ranks)
        size, off = int(self.published["KV cache"] * _GIB), _ROUNDED * (1 + (block == 1))
        return layout.tokens(size - off, block), layout.tokens(size + off, block)

    def exact(self) -> bool:
        """Whether the published tokens are among those of `held`."""
        held = self.held()
        return held is not None and held[0] <= self.published["tokens"] <= held[1]


@cache
def _file() -> dict[str, Any]:
    read: dict[str, Any] = json.loads(PUBLISHED.read_text(encoding="utf-8"))
    return read


@cache
def _configs() -> dict[str, dict[str, Any]]:
    """The configurations of models that are not listed; `sliding_layers` stands for layer_types."""
    told = {}
    for name, numbers in _file()["configs"].items():
        sliding = numbers.get("sliding_layers", 0)
        full = numbers["num_hidden_layers"] - sliding
        kinds = ["sliding_attention"] * sliding + ["full_attention"] * full
        told[name] = numbers | {"layer_types": kinds}
    return told


@cache
def _answer(model: str, options: str) -> dict[str, Any]:
    """What `allocbench serving` says with --json."""
    with tempfile.TemporaryDirectory() as folder:
        name = model
        if model not in LISTED:
            config = Path(folder) / "config.json"
            config.write_text(json.dumps(_configs()[model]))
            name = str(config)
        answered: dict[str, Any] = json.loads(_run(f"{name} {options} --json -"))
    return answered


def starts() -> list[tuple[str, ...]]:
    """What engines printed when they started on null GPUs, and the computed tokens: rows."""
    rows = list[tuple[str, ...]]()
    for told in json.loads(STARTS.read_text()):
        start, computed = told["start"], told["computed"]
        printed = (start[part] for part in ("weights", "activations", "cache", "graphs"))
        tokens = start["kv_tokens"]
        beside = computed and f"{computed['kv_tokens']:,} ({_error(computed, tokens):+.1f} %)"
        rows.append(
            (
                f"`{told['command']}`",
                " ".join((start["engine"], ".".join(map(str, start["version"])))).strip(),
                f"`{told['device'].partition(',')[0]}`",
                *("" if size is None else f"{size / _GIB:.2f}" for size in printed),
                f"{tokens:,}",
                beside or "",
            )
        )
    return rows


def _error(computed: dict[str, Any], tokens: int) -> float:
    return 100 * (float(computed["kv_tokens"]) / tokens - 1)


def example() -> str:
    """The output of the command at the beginning of the page, for a log of drawn requests."""
    drawn = requests.RandomRequests(**settle(requests.OPTIONS, {"count": 1000, "rate": 1.0})).draw()
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
    return [Published(**case) for case in _file()["logs"]]


def rows() -> list[tuple[str, ...]]:
    """The cells of the table: a row for each case, with the published number and the error."""
    return [
        (
            f"[{case.where}]({case.url})",
            case.version,
            f"`{case.model} {case.options}`" if case.options else f"{case.model}, {case.gpus} GPU",
            *(_cell(case.compared().get(part)) for part in PARTS),
            _held_cell(case),
        )
        for case in published()
    ]


def _cell(numbers: tuple[float, float] | None) -> str:
    if numbers is None:
        return ""
    known, answered = numbers
    digits = ",.2f" if isinstance(known, float) else ",d"
    return f"{known:,}, {answered:{digits}} ({answered / known - 1:+.1%})"


def _held_cell(case: Published) -> str:
    """What the published GiB hold, beside the published tokens."""
    held = case.held()
    if held is None:
        return ""
    known = case.published["tokens"]
    if case.exact():
        return f"{known:,}, equal"
    return f"{known:,}, {held[0]:,} to {held[1]:,} ({held[0] / known - 1:+.1%})"


def summary() -> list[tuple[str, ...]]:
    """For each part, with one GPU and with more: how many numbers, the median and worst error."""
    found = list[tuple[str, ...]]()
    for part in PARTS:
        for several in (False, True):
            errors = [
                (abs(both[part][1] / both[part][0] - 1), case)
                for case in published()
                if (case.gpus > 1) == several and part in (both := case.compared())
            ]
            worst, case = max(errors, key=lambda error: error[0])
            middle = median(error for error, _ in errors)
            gpus = "more" if several else "one"
            name = f"{case.model}, {case.version}"
            found.append((part, gpus, str(len(errors)), f"{middle:.2%}", f"{worst:.1%}: {name}"))
    return found


def exact() -> str:
    """A sentence: how many published KV caches hold as many tokens as published."""
    both = [case for case in published() if case.held()]
    equal = sum(case.exact() for case in both)
    return f"In {equal} of {len(both)} logs, the published GiB hold as many tokens as published."
