# SPDX-License-Identifier: Apache-2.0
"""The answers to all questions about small inputs are as they were frozen."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pandas as pd
import pytest

from allocbench import api
from allocbench.questions import (
    error_text,
    growth,
    hazards,
    holding,
    league,
    occupancy,
    peaks,
    repetitions,
)
from allocbench.questions.edits import edits
from allocbench.questions.failure import first_failure
from allocbench.questions.serving import answer
from allocbench.questions.serving_load import load
from allocbench.questions.training_blocks import TrainingBlocks
from allocbench.questions.vary import Probe, search
from allocbench.replays.runner import Runner
from allocbench.workloads import MARK, Trace, read
from allocbench.workloads.module_hook import OUTPUT_SHAPES
from allocbench.workloads.serving.engines import ENGINES
from allocbench.workloads.serving.requests import Requests
from tests import drawn_calls
from tests.answer_inputs import CASES, chunks
from tests.gold import Gold, facts, outcome
from tests.questions.test_serving import asked
from tests.questions.test_whatif import HEAVY, SAVED, WEIGHT
from tests.questions.test_whatif import training as layered
from tests.workloads.importers import drawn, snapshots

_SPECS = ["caching", "bfc", "naive"]
_TIGHT = [CASES[n] for n in (0, 1, 2, 4, 11, 12, 13, 15, 16, 19, 23)]


def _recommend(name: str, device: str) -> Any:
    rows = api.recommend(name, device, budget=6, orders=2)
    return [facts(rows), facts(rows.attrs["advice"]), facts(rows.attrs["confidence"])]


def _trace(name: str | Trace, device: str) -> Any:
    """What is known of a trace beside the answers to the questions."""
    trace, where = api._case(name, device)
    run = Runner(trace, where)
    held = holding.holders(trace)
    return {
        "steps": [facts(one) for one in repetitions.all_steps(trace)],
        "leak": facts(growth.leak_of(trace)),
        "reserve": facts(growth.growing_reserve(trace, "caching", where)),
        "hazards": facts(hazards.growing(run, _SPECS, where)),
        "holders": facts(held),
        "kinds": facts(holding.by_kind(held)),
        "peak": facts(peaks.peak_of(trace)),
        "digest": league.digest(trace),
    }


def _failure(name: str, device: str) -> Any:
    found = first_failure(*_case(name, device))
    return found and {
        field: getattr(found, field)
        for field in (
            "event",
            "step",
            "operator",
            "requested",
            "live",
            "allocated",
            "reserved",
            "largest_free",
            "pins",
            "in_one_stretch",
            "address",
        )
    }


def _case(name: str, device: str) -> tuple[Any, str, str]:
    trace, where = api._case(name, device)
    return trace, "caching", where


_QUESTIONS: Mapping[str, tuple[Callable[..., Any], Sequence[tuple[str, str]], int]] = {
    "check": (lambda *case: api.check(*case, everything=True), CASES, 5),
    "explain": (lambda *case: api.explain(case[0], device=case[1]), CASES, 8),
    "failure": (_failure, CASES, 12),
    "fit": (lambda *case: api.fit(case[0], _SPECS, case[1], time_limit=0), CASES[::2], 6),
    "tune": (lambda *case: api.tune(case[0], device=case[1], budget=8), _TIGHT, 4),
    "recommend": (_recommend, _TIGHT, 2),
    "trace": (_trace, CASES, 8),
    "whatif": (lambda *case: api.whatif(case[0], device=case[1]), CASES[1:12], 4),
    "diff": (api.diff, [(old, new) for (old, _), (new, _) in pairwise(CASES)], 8),
}
_GROUPS = [
    (f"{name}_{n}", answer, cases)
    for name, (answer, given, size) in _QUESTIONS.items()
    for n, cases in enumerate(chunks(given, size))
]


@pytest.mark.parametrize(("group", "answer", "cases"), _GROUPS, ids=[one[0] for one in _GROUPS])
def test_questions(
    group: str,
    answer: Callable[..., Any],
    cases: Sequence[tuple[str, str]],
    gold: Gold,
    in_inputs: Path,
) -> None:
    gold(f"question_{group}", {" ".join(case): _told(outcome(answer, *case)) for case in cases})


def _of_training(random: Random) -> Trace:
    """A program of layers, with or without each of what the tests of edits can add to it."""
    names = ("temporary", "keeps_gradients", "buckets", "scores", "history", "statistic", "lookup")
    chosen: dict[str, Any] = {name: random.random() < 0.3 for name in names}
    if random.random() < 0.4:
        chosen["weight"] = random.choice([WEIGHT // 2, HEAVY])
    evaluated = random.choice([0, 0, WEIGHT, HEAVY])
    trace = layered(**chosen, evaluated=evaluated, steps=random.choice([2, 3, 5]))
    size = trace.size.copy()
    for one in np.unique(
        trace.size
    ):  # casts have half the bytes of what they cast, masks a quarter
        if random.random() < 0.25:
            size[trace.size == one] //= random.choice([2, 4])
    if random.random() < 0.3:
        size[trace.size == SAVED] = size[trace.module == trace.labels.index("layers.0.mlp")][0] // 2
    shapes = dict(trace.provenance.extra[OUTPUT_SHAPES])
    if random.random() < 0.4:  # a part that returns scores, or values of as many dimensions
        shapes["layers.0.attention.inner"] = f"[2, 8, 1024, {random.choice([64, 1024])}] float32"
    told = replace(trace.provenance, extra={**trace.provenance.extra, OUTPUT_SHAPES: shapes})
    return _with_notes(replace(trace, size=size, provenance=told), random)


def _with_notes(trace: Trace, random: Random) -> Trace:
    """With marks of another label, which no answer depends on, at up to three places."""
    places = sorted(random.sample(range(len(trace)), random.randrange(4)))
    columns: dict[str, Any] = {
        name: np.insert(values, places, 0) for name, values in trace.columns().items()
    }
    is_mark = columns["op"] == MARK
    for name, which in (("block", is_mark), ("label", True), ("module", True)):
        columns[name] += (which & (columns[name] > 0)).astype(columns[name].dtype)
    new = np.array(places, np.intp) + np.arange(len(places))
    columns["op"][new], columns["block"][new] = MARK, 1
    first, *others = trace.labels
    return replace(trace, labels=(first, "a note", *others), **columns)


def _of_program(seed: int, folder: Path) -> Any:
    """Edits, changes, failures and steps of programs whose blocks are drawn."""
    random = Random(seed)
    trace, other = _of_training(random), _of_training(random)
    device = f"sim:{trace.max_load * random.choice([60, 85, 101]) // 100 >> 20}MiB"
    found = {
        "edits": api.whatif(trace, device=device, ranks=random.choice([1, 4])),
        "made": {one.name: one.made for one in edits(TrainingBlocks(trace), 4)},
        "failure": api.explain(trace, device=device),
        "trace": _trace(trace, device),
        "small": _trace(drawn.program(seed), "sim:64MiB"),
        "changes": api.diff(trace, other, device=device),
        "changed calls": api.diff(_recording(seed, folder), _recording(seed + 1, folder)),
    }
    if seed % 3 == 0:
        found["fits"] = api.check(trace, device, everything=True)
    return {name: _told(answer) for name, answer in found.items()}


def _recording(seed: int, folder: Path) -> Trace:
    content = drawn.snapshot(seed % 2, "caching")
    del content["device_traces"][0][: Random(seed).randrange(12)]
    path = folder / "recording.pickle"
    path.write_bytes(snapshots.pickled(content))
    return read(path)


def _told(answer: Any) -> Any:
    """The facts of an answer, and how many words it has."""
    text = answer.to_json() if isinstance(answer, pd.DataFrame) else repr(answer)
    return [facts(answer), text.count(" ")]


@pytest.mark.parametrize("first", range(0, 30, 2))
def test_drawn_programs(first: int, gold: Gold, tmp_path: Path) -> None:
    found = {str(seed): outcome(_of_program, seed, tmp_path) for seed in (first, first + 1)}
    gold(f"question_programs_{first}", found)


def _served(seed: int) -> Any:
    """How a server answers requests whose prompts may begin alike."""
    random = Random(seed)
    count = random.randrange(1, 30)
    prompt = [random.choice([16, 512, 513, 1024, 3000]) for _ in range(count)]
    requests = Requests(
        np.cumsum([0.0, *(random.choice([0, 0.1, 5]) for _ in range(count - 1))]),
        np.array(prompt),
        np.array([random.choice([1, 16, 17, 400]) for _ in range(count)]),
        [[random.randrange(3) for _ in range(-(-one // 512))] for one in prompt]
        if seed % 3
        else None,
    )
    card, share = random.choice([("l4", 0.85), ("l4", 0.92), ("h100-sxm-80gb", 0.25)])
    found = answer(asked("llama-3-8b", engine=random.choice(ENGINES), card=card, share=share))
    return facts(load(found, requests, random.choice([1024, 8192])))


def test_servers(gold: Gold) -> None:
    gold("question_servers", {str(seed): outcome(_served, seed) for seed in range(60)})


def test_searches_for_a_value(gold: Gold) -> None:
    """Which values are run, where the need grows with the value or does not."""
    found = {}
    for seed in range(120):
        random, order = Random(seed), list[int]()
        values = range(random.randrange(1, 9), random.randrange(10, 200), random.choice([1, 1, 7]))
        base, slope, odd = random.randrange(900), random.randrange(20), random.choice([0, 0, 5])

        def probe(
            value: int, base: int = base, slope: int = slope, odd: int = odd, seed: int = seed
        ) -> Probe:
            order.append(value)  # noqa: B023
            need = base + slope * value - (odd and 200 * (value % odd == 1))
            return Probe(value, need <= 1000, need if need <= 1000 and seed % 4 else None)

        capacity = random.choice([None, 1000, 1000])
        found[str(seed)] = [outcome(search, values, probe, capacity, seed % 5 == 0), order]
    gold("question_searches", found)


@pytest.mark.parametrize("module", [error_text, growth, occupancy])
def test_of_drawn_arguments(module: Any, gold: Gold) -> None:
    name = module.__name__.split(".")[-1]
    gold(f"drawn_{name}", drawn_calls.results(module, 240))
