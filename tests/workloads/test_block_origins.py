# SPDX-License-Identifier: Apache-2.0
"""Kinds and places of blocks of training: of programs whose kinds are known, and frozen ones."""

from dataclasses import replace
from random import Random
from typing import Any

import numpy as np
import pytest

from allocbench.workloads import ALLOC, FREE, MARK, Trace, catalog
from allocbench.workloads.block_origins import (
    ACTIVATIONS,
    BACKWARD,
    BACKWARD_PASS,
    FORWARD,
    GRADIENTS,
    KEPT,
    LASTING,
    OPTIMIZER_PASS,
    PARAMETERS,
    STATE,
    UPDATE,
    WORKSPACES,
    Origins,
    derived_places,
    origins,
    places_of,
)
from allocbench.workloads.coverage import Coverage
from allocbench.workloads.vocabulary import Provenance
from tests.gold import Gold
from tests.traces import make
from tests.workloads.test_gold import digest

_Row = tuple[int, int, int, str, str]
"""Op, block, bytes, label and stated kind."""


def _begun_later(rows: list[_Row], cut: int) -> tuple[list[_Row], int]:
    """What a recording has that begins later, and how many blocks were alive then.

    These come first, and nothing says where they come from.
    """
    sizes = {block: size for op, block, size, *_ in rows if op == ALLOC}
    alive = {block for op, block, *_ in rows[:cut] if op == ALLOC}
    alive -= {block for op, block, *_ in rows[:cut] if op == FREE}
    kept = [*((ALLOC, block, sizes[block], "", "") for block in sorted(alive)), *rows[cut:]]
    blocks = [block for op, block, *_ in kept if op == ALLOC]
    number = {block: n for n, block in enumerate(blocks)}
    return [
        (op, block if op == MARK else number[block], size, label, told)
        for op, block, size, label, told in kept
    ], len(alive)


def _trained(seed: int) -> tuple[Trace, list[str], bool]:
    """Training, the kind that each of its blocks has in truth, and whether the trace tells enough.

    Layers have parameters, activations, temporaries and gradients; an optimizer makes its state in
    the first update. Marks, stated kinds or lines of the program show the steps. Some programs make
    their parameters anew in each update, or keep gradients, results and workspaces.
    """
    rng, rows, truth = Random(seed), list[_Row](), list[str]()
    shown = rng.choice(["marks", "marks", "kinds", "lines"])
    layers, steps = rng.randrange(1, 5), rng.randrange(1, 5)
    keeps, anew, results = rng.random() < 0.3, rng.random() < 0.15, rng.random() < 0.2
    states, odd = rng.choice([0, 1, 2]), rng.random() < 0.3
    apart = 512 if seed < 300 else 0  # bytes
    sizes = [rng.choice([4096, 8192, 5 << 20]) + apart * n for n in range(layers)]

    def alloc(size: int, kind: str, label: str, told: str = "") -> int:
        rows.append((ALLOC, len(truth), size, label, told if shown == "kinds" else ""))
        truth.append(kind)
        return len(truth) - 1

    def free(*blocks: int) -> None:
        rows.extend((FREE, block, 0, "", "") for block in blocks)

    def mark(name: str) -> None:
        if shown == "marks":
            rows.append((MARK, 0, 0, name, ""))

    parameters = [alloc(size, PARAMETERS, "train.py:1 init") for size in sizes]
    if odd:
        alloc(700, LASTING, "train.py:2 init")
    gradients, held = list[int](), list[int]()
    for step in range(steps):
        if not keeps:
            free(*gradients)
            gradients = []
        saved = []
        for size in sizes:
            free(alloc(300 + size, FORWARD, "train.py:5 forward"))
            saved.append(alloc(1000 + size, ACTIVATIONS, "train.py:6 forward"))
        if results:
            held.append(alloc(444, KEPT, "train.py:7 main"))
        for n in reversed(range(layers)):
            temporary = alloc(2000 + sizes[n], BACKWARD, "", BACKWARD_PASS)
            if step == 0 or not keeps:
                gradients.append(alloc(sizes[n], GRADIENTS, "", BACKWARD_PASS))
            free(temporary, saved[n])
        if step == 0 and odd:
            alloc(8_519_680, WORKSPACES, "", BACKWARD_PASS)
        mark(rng.choice(["Optimizer.step#Adam.step", "optimizer"]))
        for n, size in enumerate(sizes):
            for _ in range(states * (step == 0)):
                alloc(size, STATE, "train.py:9 step", OPTIMIZER_PASS)
            free(alloc(size, UPDATE, "train.py:9 step", OPTIMIZER_PASS))
            if anew:
                renewed = alloc(size, PARAMETERS, "train.py:9 step", OPTIMIZER_PASS)
                free(parameters[n])
                parameters[n] = renewed
        mark("step")
    ends_with_results = seed >= 300 and rng.random() < 0.5
    if ends_with_results:
        held += [alloc(444, KEPT, "train.py:7 main") for _ in range(rng.randrange(1, 4))]
    if rng.random() < 0.2:
        free(*parameters, *held)
    later = 0
    if rng.random() < 0.4:
        rows, later = _begun_later(rows, rng.randrange(len(rows)))
    labels = [*dict.fromkeys(["", *(name for *_, label, told in rows for name in (label, told))])]
    named = [[labels.index(label) for *_, label, _ in rows]]
    named.append([labels.index(told) for *_, told in rows])
    events = [
        (op, named[0][n] if op == MARK else b, size) for n, (op, b, size, *_) in enumerate(rows)
    ]
    label, kind = (
        np.array(
            [0 if row[0] == MARK else one for row, one in zip(rows, column, strict=True)], np.uint32
        )
        for column in named
    )
    columns = {"kind": kind} if shown == "kinds" else {}
    trace = make(
        events,
        label=label,
        labels=tuple(labels),
        line=label if shown == "lines" or rng.random() < 0.5 else None,
        provenance=Provenance(live_at_start=later),
        coverage=Coverage("later" if later else "start", rng.choice(["exit", "open"])),
        **columns,
    )
    plain = shown == "marks" and not (odd or anew or results or keeps or later) and steps > 1
    return trace, truth, plain and len({*sizes}) == layers and not ends_with_results


@pytest.mark.parametrize("first", range(0, 360, 60))
def test_origins(first: int, gold: Gold) -> None:
    found = {}
    for seed in range(first, first + 60):
        trace, truth, plain = _trained(seed)
        trace.validate()
        found[str(seed)] = _origins(trace)
        if plain:
            assert origins(trace).kind.tolist() == truth
    gold(f"origins_{first}", found)


@pytest.mark.parametrize("name", catalog.captured())
def test_origins_of_bundled_traces(name: str, gold: Gold) -> None:
    trace = catalog.load(name)
    size = len(trace) // 2
    cut: dict[str, Any] = {column: array[:size] for column, array in trace.columns().items()}
    bare = replace(trace, label=None, kind=None)
    whole = {"whole": trace, "half": replace(trace, **cut), "kinds": replace(trace, kind=None)}
    without_marks = replace(trace, labels=tuple(f"{n}{x}" for n, x in enumerate(trace.labels)))
    found = {n: _origins(one) for n, one in (whole | {"b": bare, "m": without_marks}).items()}
    gold(f"origins_{name}", found)


def _origins(trace: Trace) -> Any:
    found: Origins = origins(trace)
    kinds, numbers = np.unique(found.kind.astype(str), return_inverse=True)
    places = places_of(trace, found.allocs)
    of_derived = derived_places(trace, found, found.derived)
    return {
        "kinds": kinds.tolist(),
        "counts": np.bincount(numbers).tolist(),
        "of blocks": numbers.astype(np.int64),
        "source": found.source,
        "updates": [found.updates, found.update_begins, found.own_updates],
        "places": [digest(repr(one.tolist()).encode()) for one in (places, of_derived)],
    }
