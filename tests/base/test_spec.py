# SPDX-License-Identifier: Apache-2.0
"""The grammar of specs: read, written and cut apart; single options and lists of numbers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocbench.base.spec import (
    MOST_LAYERS,
    Spec,
    SpecSyntaxError,
    name_of,
    options_of,
    parse,
    parse_numbers,
    parse_option,
    parse_options,
    split,
)
from allocbench.errors import UsageError
from allocbench.inputs.devices import device_of, recorded_on

WORDS = st.from_regex(r"[a-z_][a-z0-9_.]{0,8}", fullmatch=True).filter(lambda word: word != "of")
OPTIONS = st.dictionaries(WORDS, WORDS, max_size=4)
SPECS = st.recursive(
    st.builds(Spec, WORDS, OPTIONS), lambda inner: st.builds(Spec, WORDS, OPTIONS, inner)
)


@given(SPECS)
def test_a_written_spec_reads_back(spec: Spec) -> None:
    assert parse(str(spec)) == spec


@given(st.lists(SPECS, min_size=1, max_size=6))
def test_a_list_of_specs_is_split(specs: list[Spec]) -> None:
    assert [parse(text) for text in split(",".join(map(str, specs)))] == specs


def test_options_have_names_and_values() -> None:
    assert parse("bfc") == Spec("bfc")
    assert parse(" bfc:a=1, b = x=y ") == Spec("bfc", {"a": "1", "b": "x=y"})
    assert parse("bfc:") == Spec("bfc")


CONF = "max_split_size_mb:128,expandable_segments:True"


@pytest.mark.parametrize("value", [CONF, "[1:2,4:8,>:1]", "key:1"])
def test_a_value_can_be_a_list_of_keys_with_values(value: str) -> None:
    spec = Spec("caching", {"a": "1", "conf": value, "b": "2"})
    assert str(spec) == f"caching:a=1,conf={value},b=2"
    assert parse(str(spec)) == spec
    last = f"caching:conf={value}"
    assert split(f"{last},naive,{spec},{last}") == [last, "naive", str(spec), last]
    devices = ["sim:24GiB,fail_above=1GiB", "sim:80GiB", "cuda:0,limit=1GiB"]
    assert split(",".join(devices)) == devices


def test_options_can_stand_alone() -> None:
    assert parse_options("time=5, of=2,conf=a:1,b:2") == {"time": "5", "of": "2", "conf": "a:1,b:2"}
    with pytest.raises(SpecSyntaxError, match="'time' is not a list of options: 'time' is not opt"):
        parse_options("time")


def test_the_name_of_a_spec_needs_no_valid_options() -> None:
    assert name_of(" cuda : 0,,") == "cuda"


def test_one_option_can_omit_its_name() -> None:
    assert parse("sim:80GiB,seed=1", first="capacity").options == {"capacity": "80GiB", "seed": "1"}
    assert parse("sim:capacity=80GiB", first="capacity").options == {"capacity": "80GiB"}


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
