# SPDX-License-Identifier: Apache-2.0
"""Which setting and which allocator to use, and how far the advice can be trusted, over rows."""

from typing import Any

import pandas as pd
import pytest

from allocbench.reports.advice.choosing import PROGRAM_SECONDS, Weights, kind
from allocbench.reports.advice.confidence import Confidence, OtherOrders, confidence
from allocbench.reports.advice.recommending import advise
from allocbench.reports.rows.assumptions import Cost, to_text

GIB = 1 << 30
MIB = 1 << 20
PAGE = Cost("map", 2 * MIB, 1e-6 / 3, 1e-6, 3e-6)
DEFAULT, SETTING, OTHER = "caching", "caching:max_split_size_mb=64", "slab"
EXPANDABLE = "caching:conf=expandable_segments:True"


def rows(capacity: float, **given: tuple[float, float, bool]) -> pd.DataFrame:
    """GiB of the device; for each allocator, GiB, device us per event, and whether it completes."""
    names = {"default": DEFAULT, "setting": SETTING, "expandable": EXPANDABLE, "other": OTHER}
    made = [
        {
            "allocator": names.get(name, name),
            "device": "the card",
            "capacity": int(capacity * GIB),
            "candidate": name != "bump",
            "failures": int(not fits),
            "min_capacity": int(gib * GIB),
            "card": None,
            "peak_reserved": int(gib * GIB),
            "device_seconds": microseconds * 1e-6,
            "device_seconds_per_event": microseconds * 1e-6,
            "device_seconds_source": "estimate",
            "device_assumptions": to_text([(PAGE, microseconds)]),
        }
        for name, (gib, microseconds, fits) in given.items()
    ]
    return pd.DataFrame(made)


def test_the_cost_is_what_the_weights_say() -> None:
    given = rows(100, default=(99, 1, True), other=(90, 2, True), naive=(80, 1, True))
    found = advise(given, weights=Weights(memory=2, time=3, setting=5, plug_in=7, breaks=11))
    slower = 1e-6 / (PROGRAM_SECONDS + 1e-6)
    assert found.costs[OTHER] == pytest.approx(2 * 90 + 3 * 100 * slower + 7 + 11)
    assert found.costs[DEFAULT] == pytest.approx(2 * 99)
    assert found.costs["naive"] == pytest.approx(2 * 80 + 5 + 11)


def test_a_list_is_one_setting() -> None:
    weights = Weights(memory=0, time=0, setting=1)
    costs = {}
    for spec in (
        "caching:conf=max_split_size_mb:20",
        "caching:conf=roundup_power2_divisions:[256:1,512:2,>:4],max_split_size_mb:20",
        "caching:roundup_power2_divisions=[256:1,512:2,>:4]",
    ):
        given = rows(100, **{"default": (10, 1, True), spec: (9, 1, True)})
        costs[spec] = advise(given, weights=weights).costs[spec]
    assert list(costs.values()) == [1, 2, 1]


def test_how_a_program_is_switched() -> None:
    kinds = {
        "caching": "default",
        "caching:version=2.9": "default",
        "caching:conf=expandable_segments:True": "setting",
        "naive": "uncached",
        "bfc": "plug-in",
        "limit:bytes=8GiB,of=caching": "plug-in",
    }
    assert {spec: kind(spec) for spec in kinds} == kinds


def sure(given: pd.DataFrame, **failed: int) -> Confidence:
    """The confidence of the advice over these rows, after three other orders of twelve steps."""
    counted = given.assign(failed_orders=[failed.get(name, 0) for name in given["allocator"]])
    return confidence(counted, advise(given), orders=OtherOrders(3, 3, 12, 12))


@pytest.mark.parametrize(
    ("need", "tried", "about", "level", "words"),
    [
        (95, 3, {}, "high", "5.3% more"),  # of 100 GiB, 5 % are enough room
        (96, 3, {}, "medium", "4.2% more"),
        (50, 3, {}, "high", "twice as much"),
        (51, 3, {}, "high", "96.1% more"),
        (50, 0, {"steps": 3, "kinds": 1}, "high", "request the same sizes, so"),
        (50, 0, {"steps": 12, "kinds": 1}, "high", "The steps request the same sizes, so"),
        (50, 0, {"steps": 3, "kinds": 2}, "medium", "their load exceeds the device"),
        (50, 0, {"steps": 3, "kinds": 2, "wanted": 0}, "medium", "steps were not tried."),
        (50, 0, {"steps": 2, "kinds": 1}, "medium", "2 steps, so"),
        (50, 0, {"steps": 1, "kinds": 1}, "medium", "1 step, so"),
        (50, 0, {"steps": 0, "kinds": 1}, "medium", "no steps, so"),
    ],
)
def test_confidence_has_doubts(
    need: float, tried: int, about: dict[str, Any], level: str, words: str
) -> None:
    given = rows(100, default=(need, 1, True)).assign(failed_orders=0)
    told = {"tried": tried, "wanted": 3, "steps": 12, "kinds": 12} | about
    orders = OtherOrders(**told)
    found = confidence(given, advise(given), orders=orders)
    assert found.level == level
    assert words in found.text
    assert ("longer inputs" in found.text) is (told["kinds"] > 1)
    assert ("what other inputs would need" in found.text) is (told["steps"] < 2)
    assert "Device time" in found.text
    measured = given.assign(device_seconds_source="measured")
    assert "Device time" not in confidence(measured, advise(measured), orders=orders).text
    part = confidence(given, advise(given), orders=orders, coverage="the end is missing")
    assert part.level != "high"
    assert "The end is missing." in part.text


def test_a_choice_that_was_not_tried_in_other_orders_completes_none() -> None:
    assert "completes" not in OtherOrders(3, 3, 12, 12).sentence(None)


def test_without_advice_there_is_no_confidence() -> None:
    assert sure(rows(24, default=(25, 1, False))) == Confidence("none", ())


@pytest.mark.parametrize(("microseconds", "worth"), [(0.5, True), (0.8, False)])
def test_more_settings_are_advised_only_where_no_cost_favors_fewer(
    microseconds: float, worth: bool
) -> None:
    """The second setting costs 0.1 us; its pages cost a third of the estimate at least."""
    two = "caching:conf=large_segment_size_mb:32,expandable_segments:True"
    fits = {two: (12, microseconds, True)}
    given = rows(24, default=(25, 1, False), expandable=(12, 1, True), **fits)
    assert advise(given).costs[two] < advise(given).costs[EXPANDABLE]
    assert (advise(given).chosen, advise(given).rival) == (two if worth else EXPANDABLE, None)


def test_of_settings_that_change_as_little_the_cheapest_is_advised() -> None:
    """It needs 0.3 GiB more, so at no cost of pages does it cost less than the two settings."""
    two = "caching:conf=large_segment_size_mb:32,expandable_segments:True"
    fits = {two: (12, 0.8, True), "setting": (12.3, 0.85, True), "expandable": (12, 1, True)}
    advised = advise(rows(24, default=(25, 1, False), **fits))
    assert advised.costs[two] < advised.costs[SETTING] < advised.costs[EXPANDABLE]
    assert (advised.chosen, advised.rival) == (SETTING, EXPANDABLE)


@pytest.mark.parametrize(
    ("load", "held", "words"),
    [
        (21, 30, "21.0 GiB are in use at once, more than the card has"),
        (20, 20, "nothing that was tried fits the card"),
        (20, 21, "it is not known what fits the card: 21.0 GiB"),
    ],
)
def test_why_nothing_fits(load: int, held: int, words: str) -> None:
    fails = (25, 1, False)
    both = rows(20, default=fails, other=fails).assign(max_load=load << 30)
    found = advise(both, held=held << 30)
    assert (found.chosen, found.setting, found.keeps) == (None, None, False)
    assert all(f": none, because {words}" in line for line in found.lines)
    default, other = (both[both["allocator"] == name] for name in (DEFAULT, OTHER))
    assert advise(default).lines[1] == "Best allocator: only caching was compared."
    assert advise(other).lines[0] == "Best setting: caching was not compared."


@pytest.mark.parametrize(("need", "fits"), [(23, True), (24, True), (24.5, False)])
def test_a_part_of_a_program_may_need_more_than_a_card(need: float, fits: bool) -> None:
    """The replay of a part completes, but the least capacity is known."""
    given = rows(24, default=(need, 1, True)).assign(coverage="it ends early")
    assert advise(given).chosen == (DEFAULT if fits else None)
    unsearched = given.assign(min_capacity=None, coverage="")
    assert advise(unsearched).chosen == DEFAULT


def test_the_default_is_a_setting_for_a_program_that_has_another() -> None:
    given = rows(24, default=(10, 1, True), expandable=(20, 1, True))
    weights = Weights(memory=0, time=0, setting=5, plug_in=7, breaks=0)
    found = advise(given, given=EXPANDABLE, weights=weights)
    assert (found.chosen, found.keeps, found.costs[EXPANDABLE]) == (EXPANDABLE, True, 0)
    fails = rows(24, default=(10, 1, True), expandable=(25, 1, False))
    found = advise(fails, given=EXPANDABLE, weights=weights)
    assert (found.chosen, found.setting, found.keeps) == (DEFAULT, DEFAULT, False)
    assert found.costs == {DEFAULT: 0}
