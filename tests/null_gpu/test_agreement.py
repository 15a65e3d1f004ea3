# SPDX-License-Identifier: Apache-2.0
"""Null GPUs agree with what was measured on an H100, as far as the documentation says."""

import re
from pathlib import Path

import pytest

from allocbench.verification.verify import verify
from docs.generate.agreement import comparison, operator_rows, program_rows
from tests.null_gpu import ROOT, seen
from tests.synthetic_recordings import SYNTHETIC

WITHOUT = "null:h100,graph_workspace=0,convolution_workspace=0"
RECORDINGS = sorted((SYNTHETIC / "h100").glob("*.pickle.gz"))
PAGE = (ROOT / "docs" / "without-a-gpu.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("path", RECORDINGS, ids=lambda path: path.name)
def test_caching_places_every_block_as_pytorch_did_on_an_h100(path: Path) -> None:
    verdict = verify(path)
    assert verdict.exit_code == 0, verdict.unknown or str(verdict.difference)
    found = verdict.agreement
    assert found is not None
    process = path.name.removesuffix(".pickle.gz") + ".0"
    (row,) = (row for row in comparison()["caching"] if row["process"] == process)
    assert found.allocs == found.placed_equal == found.reserved_equal == row["allocs"] > 10_000
    assert found.segment_calls == found.segment_calls_equal == row["segment_calls"]
    assert found.peak_reserved_recorded == found.peak_reserved_predicted


def test_there_are_recordings_of_an_h100() -> None:
    assert len(RECORDINGS) == 3


def test_single_operators_allocate_on_a_null_gpu_what_they_did_on_an_h100(tmp_path: Path) -> None:
    measured = comparison()["operators"]
    without, formulas = (
        seen("workspace_sizes", tmp_path, on=on, version="2.11.0")
        for on in (WITHOUT, "null:h100,graph_workspace=attention")
    )
    assert len(measured["real"]) == len(without) == 700
    equal = {case for case in without if without[case] == measured["real"][case]}
    counted = {"nonzero 100", "nonzero 3000"}  # the comparison is older than what is known of them
    assert equal == set(measured["real"]) - set(measured["null"]) | counted
    attention = {case for case in without if case.startswith("CUDNN_ATTENTION")}
    assert len(attention) == 6
    assert all(formulas[case] == measured["real"][case] for case in attention)


def test_the_page_has_the_numbers_of_the_comparison() -> None:
    rows = comparison()["programs"]
    same = [row["first"] is None for row in rows]
    assert f"{sum(same)} of {len(same)} processes made the same allocs and frees" in PAGE
    differing = [row for row in rows if row["first"]]
    counts = {
        "attention": sum({*_operators(row)} <= {"_cudnn_attention"} for row in differing),
        "convolutions": sum("convolution" in _operators(row) for row in differing),
    }
    assert counts == {"attention": 11, "convolutions": 12}  # one of these is `libraries`
    formulas = {row["process"]: row for row in comparison()["programs with formulas"]}
    both = [formulas.get(row["process"], row) for row in rows]
    equal = [row["process"] for row in both if row["first"] is None]
    assert f"with them (in-sample), {len(equal)} did." in PAGE
    left = [row for row in both if row["first"] and not row["process"].startswith("program--")]
    assert {name for row in left for name in _operators(row)} == {"convolution"}
    assert len(left) == 4
    assert set(comparison()["allocators"].values()) == {"all 12 equal"}
    assert len({*program_rows()}) == 13
    assert [*operator_rows()][-1][:2] == ("all", "700")


def _operators(row: dict[str, dict[str, int]]) -> set[str]:
    """The operators whose allocs differ, without their directions."""
    labels = " ".join([*row["allocs only real"], *row["allocs only null"]])
    found = re.findall(r"aten::(\w*?)(?:_forward|_backward)? ", labels)
    return {"convolution" if "convolution" in name else name for name in found}


def test_verify_names_the_recordings_that_differ() -> None:
    rows = comparison()["caching"]
    small = [row for row in rows if row["process"].startswith("program--")]
    equal = sum(row["verdict"] == "equal" for row in small)
    page = " ".join((ROOT / "docs" / "verify.md").read_text(encoding="utf-8").split())
    assert f"made {len(small)} more recordings there, of small programs: {equal} are equal." in page
    assert f"The other {len(small) - equal} have private pools" in page
    assert all(row["first_difference"] for row in rows if row["verdict"] != "equal")
