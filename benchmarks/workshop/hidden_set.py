# SPDX-License-Identifier: Apache-2.0
"""The hidden set of the league: workloads that follow from a seed, which is secret for a year.

    PYTHONPATH=. python -m benchmarks.workshop.hidden_set SEED [ALLOCATOR ...]

prints the commitment of a seed, the SHA-256 of the digests of its workloads, and the scores of
allocators and planners on them; default: all, and `benchmarks/results/hidden_league.json` gets the
scores, without the workloads. docs/league.md has the commitment. Once the seed is published,
everyone can make the set and check both.
"""

import hashlib
import json
import random
import sys
from collections.abc import Iterator, Mapping

import pandas as pd

from allocbench import allocators
from allocbench.commands.league import HEADINGS, cells
from allocbench.questions.league import ADVERSARIES, DEVICE, PROGRAMS, digest, scores
from allocbench.workloads import catalog
from benchmarks.workshop.originals.environments import ROOT

RESULTS = ROOT / "benchmarks" / "results" / "hidden_league.json"
MIB = 1 << 20
SEEDS = 10**9
SERVERS, SEQUENCES = 10, 6
"""How many workloads are serving logs, and how many are synthetic sequences."""


def workloads(seed: str) -> dict[str, dict[str, str]]:
    """The set of a seed, as `league.frozen` gives the public one: digests by workload."""
    draw = random.Random(seed)
    found: dict[str, dict[str, str]] = {PROGRAMS: {}, ADVERSARIES: {}}
    for part, drawn, count in (
        (PROGRAMS, _server(draw), SERVERS),
        (ADVERSARIES, _sequence(draw), SEQUENCES),
    ):
        for _ in range(count):
            spec = next(drawn)
            found[part][spec] = digest(catalog.load(spec))
    return found


def commitment(found: Mapping[str, Mapping[str, str]]) -> str:
    """SHA-256 of the digests of a set."""
    return hashlib.sha256(json.dumps(found).encode()).hexdigest()


def _server(draw: random.Random) -> Iterator[str]:
    while True:
        options = {
            "model": draw.choice(["llama-3-8b", "mistral-7b", "qwen2.5-7b"]),
            "kv": draw.choice(["contiguous", "contiguous", "paged"]),
            "growth": draw.choice(["concat", "double"]),
            "chunk": draw.choice([16, 32, 64, 128]),
            "layer_group": draw.choice([4, 8, 16]),
            "page": draw.choice([16, 32, 64]),
            "token_budget": draw.choice([2048, 4096, 8192]),
            "kv_budget": draw.choice([0, draw.randrange(2 << 30, 12 << 30, MIB)]),
            "count": draw.randrange(80, 250),
            "rate": draw.randrange(2, 30),
            "burstiness": draw.choice([1, 2, 4]),
            "prompt": draw.randrange(100, 2000),
            "output": draw.randrange(50, 400),
            "seed": draw.randrange(SEEDS),
        }
        yield _spec("serve-chat", options)


def _sequence(draw: random.Random) -> Iterator[str]:
    while True:
        yield _spec(
            "random",
            {
                "allocs": draw.randrange(5_000, 15_000),
                "max_size": draw.randrange(MIB, 128 * MIB),
                "max_live": draw.randrange(1 << 30, 20 << 30),
                "alloc_percent": draw.randrange(55, 85),
                "seed": draw.randrange(SEEDS),
            },
        )
        yield _spec(
            "sawtooth",
            {
                "teeth": draw.randrange(8, 40),
                "peak": draw.randrange(256 * MIB, 4 << 30, MIB),
                "smallest": draw.choice([64 << 10, 256 << 10, MIB]),
                "seed": draw.randrange(SEEDS),
            },
        )
        yield _spec(
            "ramp",
            {
                "blocks": draw.randrange(500, 3_000),
                "size": draw.randrange(1 << 10, 4 * MIB),
                "order": "shuffled",
                "seed": draw.randrange(SEEDS),
            },
        )


def _spec(name: str, options: Mapping[str, object]) -> str:
    return f"{name}:{','.join(f'{option}={value}' for option, value in options.items())}"


def main() -> None:
    """Print the commitment and the scores."""
    seed, *specs = sys.argv[1:]
    found = workloads(seed)
    print(commitment(found))
    planners = [] if specs else allocators.planners()
    all_of_ours = allocators.names(allocators.make_device(DEVICE))
    rows = [cells(score) for score in scores(specs or all_of_ours, planners, found)]
    if not specs:
        RESULTS.write_text(json.dumps(rows, indent=1) + "\n")
    print(pd.DataFrame(rows, columns=HEADINGS).to_string(index=False))


if __name__ == "__main__":
    main()
