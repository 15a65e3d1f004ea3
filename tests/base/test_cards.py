# SPDX-License-Identifier: Apache-2.0
"""The cards: their bytes and sources, their names, and what a context takes."""

import json
from importlib.resources import files

import pytest

from allocbench.base.cards import cards, context, find, label, notes, read


def test_a_device_has_a_name_that_one_can_read() -> None:
    small = f"sim:{8 << 30},context={198 << 20}"
    assert label(small) == "sim:8.00 GiB (context 198 MiB)"
    assert label("sim:8GiB") == "sim:8GiB"
    assert [label(card.device) for card in cards()] == [card.name for card in cards()]
    (card,) = find("rtx-3060")
    assert label(f"{card.device},costs=h100") == "RTX 3060 12GB (costs=h100)"
    assert "Nothing is subtracted from sim:8GiB" in notes("sim:8GiB")[0]
    assert "can use all" not in notes(small)[0]


def test_every_card_has_its_reported_bytes_and_their_source() -> None:
    table = json.loads(files("allocbench.base").joinpath("cards.json").read_text(encoding="utf-8"))
    assert all(row["source"] for row in table["cards"])
    assert [card.name for card in cards() if not 0.9 < card.usable / card.nominal < 1] == []
    assert len({card.name for card in cards()}) == len(cards())
    assert table["context"]["source"]
    assert all(seen["source"] for seen in table["context"]["seen"])


def test_the_model_of_the_context_is_close_to_reports() -> None:
    table = json.loads(files("allocbench.base").joinpath("cards.json").read_text(encoding="utf-8"))
    for seen in table["context"]["seen"]:
        bytes_of_card = context(seen["card"])
        assert bytes_of_card is not None
        assert bytes_of_card / (seen["mib"] << 20) == pytest.approx(1, abs=0.15)
    assert context("no such card") is None


def test_a_card_without_a_report_is_an_estimate() -> None:
    table = {
        "estimated_share": 0.75,
        "context": {"bytes": 10, "fixed": 1, "per_thread": 2},
        "cards": [{"name": "new", "nominal": 4000, "usable": None}],
    }
    (card,) = read(table)
    assert (card.usable, card.free, card.estimated) == (3000, 2990, True)


def test_a_card_is_found_by_the_begin_of_its_name() -> None:
    assert [card.name for card in find("rtx-4090")] == ["RTX 4090 24GB"]
    assert [card.name for card in find("RTX 4090 24GB")] == ["RTX 4090 24GB"]
    assert [card.name for card in find("h100")] == ["H100 PCIe 80GB", "H100 SXM 80GB"]
    assert len(find("rtx")) > 1
    assert find("") == find("nosuch") == []


def test_the_context_of_every_card_follows_its_threads() -> None:
    table = json.loads(files("allocbench.base").joinpath("cards.json").read_text(encoding="utf-8"))
    rule, capabilities = table["context"], table["capabilities"]
    for row in table["cards"]:
        expected = rule["bytes"]
        if compute := row.get("compute"):
            threads = (
                compute["multiprocessors"]
                * capabilities[str(compute["capability"])]["threads_per_multiprocessor"]
            )
            expected = int(rule["fixed"] + rule["per_thread"] * threads)
        assert context(row["name"]) == expected
