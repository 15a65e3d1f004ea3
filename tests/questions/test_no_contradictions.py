# SPDX-License-Identifier: Apache-2.0
"""check, explain, fit, recommend and tune say the same of programs of every kind."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from allocbench import api
from allocbench.questions import check as checking
from allocbench.questions.best import of_settings, to_use
from allocbench.questions.explain import explain, leak_of_failure
from allocbench.questions.fit import bounds, fit
from allocbench.questions.hazards import growing
from allocbench.questions.tune import tune
from allocbench.replays.runner import Runner
from allocbench.workloads import Provenance, Trace, write
from allocbench.workloads.coverage import Coverage
from tests.commands import folder
from tests.commands import run as run_command
from tests.questions import studied
from tests.traces import MIB, decoding, training

__all__ = ["folder"]  # the fixture, by its import

PYTORCH = "caching"
LEAK = 24 * MIB  # in each step


@pytest.mark.parametrize(
    ("trace", "share", "verdict"),
    [
        (training(0), 0.7, "too_big"),
        (training(0), 1.02, "fits_with_setting"),
        (training(1), 1.12, "fits_with_setting"),
        (training(1), 1.4, "fits"),
        (decoding(0), 1.02, "fragmented"),
        (decoding(0), 1.2, "fits"),
        (decoding(1), 1.2, "fits_with_setting"),
        (training(9, 12, LEAK), 0.95, "grows"),
        (training(9, 12, LEAK), 1.02, "grows"),
        (training(9, 12, LEAK), 1.2, "grows"),
        (training(9, 12, LEAK), 3, "grows"),
        (training(2, coverage=Coverage(begins="later")), 1.12, "fits_with_setting"),
        (training(2, coverage=Coverage(ends="failure", request=MIB)), 3, "unknown"),
    ],
)
def test_no_command_contradicts_another(trace: Trace, share: float, verdict: str) -> None:
    device = f"sim:{int(trace.max_load * share) // MIB}MiB"
    answer, run = checking.check(trace, device), Runner(trace, device)
    assert answer.verdict == verdict, answer.sentence
    assert checking.exit_code(run, PYTORCH) == answer.exit_code
    found, made = explain(Runner(trace, device), PYTORCH), studied(Runner(trace, device))
    tuned = tune(Runner(trace, device), PYTORCH)
    (fitted,) = fit(Runner(trace, device), [PYTORCH], bounds(trace, 0)).to_dict("records")
    (own,) = made.rows[made.rows["allocator"] == PYTORCH].to_dict("records")
    assert {fitted["min_capacity"], own["min_capacity"], tuned.default.capacity} == {answer.need}
    assert {fitted["card"], own["card"]} == {answer.card}
    assert (found is None) == (own["failures"] == 0) == tuned.default.serves
    advice = made.advice
    assert to_use(tuned, of_settings(tuned, run)) == advice.setting
    if found is not None:
        assert (found.min_capacity, found.card) == (answer.need, answer.card)
        leak = leak_of_failure(found.failure)
        assert verdict != "grows" or leak is not None
        assert leak is None or "The program grows" in " ".join([answer.sentence, *answer.unknown])
    by_kind = {remedy.kind: remedy.change for remedy in answer.remedies}
    assert by_kind.get("setting", advice.setting) == advice.setting
    assert by_kind.get("allocator", advice.chosen) == advice.chosen
    if verdict == "too_big":
        assert (found and found.kind, advice.chosen) == ("full", None)
    if verdict == "fits_with_setting":
        assert by_kind["setting"] == advice.setting
        assert found is not None
        assert found.kind != "full"
    if verdict == "fragmented":
        assert advice.setting is None
    if verdict in ("grows", "unknown") or answer.bound:
        assert made.confidence.level != "high"
    if verdict == "grows":
        assert not answer.remedies
        (told,) = growing(run, [PYTORCH], device)
        grows = told.partition(":")[0]
        write(trace, "trace.parquet")
        for command in ("fit", "explain", "tune --budget 1"):
            shown = run_command(f"{command} trace.parquet --device {device}").stdout
            assert found is not None or grows in " ".join(shown.split()), command


def test_what_a_library_holds_counts_in_every_answer(folder: Path) -> None:
    """Without it, the default would leave enough room."""
    trace = training(1)
    size, left = (int(trace.max_load * share) // MIB for share in (1.4, 1.12))
    extra = {"outside": {"libother.so": (size - left) * MIB}}
    trace = replace(trace, provenance=Provenance(extra=extra))
    write(trace, "trace.parquet")

    def rows(command: str) -> list[dict[str, Any]]:
        shown = run_command(f"{command} trace.parquet --device sim:{size}MiB --json -")
        return list(json.loads(shown.stdout))

    (answer,) = rows("check")
    (remedy, *_) = answer["remedies"]
    assert (answer["verdict"], remedy["kind"]) == ("fits_with_setting", "setting")
    assert rows("explain")
    (compared,) = rows("compare --time 0 --allocators caching")
    assert (compared["capacity"], compared["failures"] > 0) == (answer["capacity"], True)
    best = {row["allocator"] for row in rows("tune") if row["best"]}
    best |= {row["best_setting"] for row in rows("recommend")}
    device = f"sim:{size}MiB"
    assert not api.explain(trace, device=device).empty
    tuned, made = api.tune(trace, device=device), api.recommend(trace, device)
    best |= {*tuned["allocator"][tuned["best"]], *made["best_setting"]}
    assert best == {remedy["change"]}
