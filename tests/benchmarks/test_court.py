# SPDX-License-Identifier: Apache-2.0
"""Every report of the court comes out as its page says."""

import pytest

from benchmarks.workshop.court.cases import CASES, REFUTED, REPRODUCED, SINCE_2_1, Case

each_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.issue)


@each_case
def test_the_sequence_needs_what_the_page_says(case: Case) -> None:
    assert case.measured(case.spec) == (case.reserved, case.refused)
    if case.cure:
        assert case.measured(case.cure) == (case.cured, 0)


@each_case
def test_a_reported_number_is_met_or_the_report_not_reproduced(case: Case) -> None:
    assert case.verdict in (REPRODUCED, REFUTED)
    assert case.reported in (None, case.reserved)


@pytest.mark.parametrize("version", ["2.1", "2.5", "2.9", "2.10", "2.12", "2.13", "2.15"])
@pytest.mark.parametrize(
    "case", [case for case in CASES if case.versions == SINCE_2_1], ids=lambda case: case.issue
)
def test_every_version_of_pytorch_that_is_named_does_the_same(case: Case, version: str) -> None:
    name, _, options = case.spec.partition(":")
    spec = ",".join(filter(None, [f"{name}:version={version}", options]))
    assert case.measured(spec) == (case.reserved, case.refused)


def test_there_are_twenty_reports() -> None:
    assert len({case.issue for case in CASES}) >= 20
