# SPDX-License-Identifier: Apache-2.0
"""Single options and lists of numbers in the grammar of specs."""

import pytest

from allocbench.base.spec import (
    MOST_LAYERS,
    SpecSyntaxError,
    options_of,
    parse,
    parse_numbers,
    parse_option,
)
from allocbench.errors import UsageError
from allocbench.inputs.devices import device_of, recorded_on


def test_one_option() -> None:
    assert parse_option("loss = 1.0") == ("loss", "1.0")
    assert parse_option("runs=3/train.py:88=1") == ("runs=3/train.py:88", "1")
    for wrong in ("", "loss", "=1", "loss="):
        with pytest.raises(SpecSyntaxError, match="is not option=value"):
            parse_option(wrong)


def test_the_options_of_a_spec_are_the_text_after_its_name() -> None:
    assert options_of("caching:conf=max_split_size_mb:128") == "conf=max_split_size_mb:128"
    assert options_of("caching") == ""


def test_a_spec_is_utf_8() -> None:
    for wrong in ("b\udcff", "bfc:extend=\udcff", "limit:of=b\udcff"):
        with pytest.raises(SpecSyntaxError, match="is not UTF-8"):
            parse(wrong)


def test_ranges_and_lists_of_numbers() -> None:
    assert list(parse_numbers("8..11")) == [8, 9, 10, 11]
    assert list(parse_numbers("8..30:8")) == [8, 16, 24]
    assert parse_numbers("8,16,24") == [8, 16, 24]
    assert list(parse_numbers("8..30:0")) == list(parse_numbers("9..8")) == []
    assert parse_numbers("8") == [8]
    for wrong in ("", "8..", "8...9", "8,,9", "-1..3", "8..16:"):
        with pytest.raises(SpecSyntaxError, match="is not a range such as"):
            parse_numbers(wrong)


def test_a_card_sets_the_capacity_and_the_context() -> None:
    assert recorded_on("card:l4") == "null:l4"
    for wrong, complaint in (
        ("card:l4,context=1GiB", "context follows from the card; write sim:80GiB"),
        ("card:l4,memory", "'memory' is not option=value"),
        ("card", "no such card"),
    ):
        with pytest.raises(UsageError, match=complaint):
            device_of(wrong)


def test_specs_inside_each_other_have_a_limit() -> None:
    assert len(parse("check:of=" * (MOST_LAYERS - 1) + "bfc").layers) == MOST_LAYERS
    with pytest.raises(SpecSyntaxError, match="more than 32 specs inside each other"):
        parse("check:of=" * 1000 + "bfc")
