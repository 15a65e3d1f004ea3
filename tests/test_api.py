# SPDX-License-Identifier: Apache-2.0
"""allocbench.api: frames with the answers of the commands; docs/deciding.md: their real output."""

import json
import re
from pathlib import Path

import pandas as pd
import pytest

from allocbench import api
from allocbench.errors import UsageError
from allocbench.reports.rows.results import records
from allocbench.workloads import catalog
from tests.commands import folder, output

__all__ = ["folder"]  # the fixture, by its import

PAGE = Path(__file__).parent.parent / "docs" / "deciding.md"
BLOCKS = re.findall(
    r"^```console\n\$ allocbench (.*?)\n(.*?)^```$",
    PAGE.read_text(encoding="utf-8"),
    flags=re.MULTILINE | re.DOTALL,
)


def test_frames_equal_the_output_of_commands() -> None:
    given = ["naive", "caching"]
    found = api.fit("gpt2-train", given, time_limit=0)
    line = "fit gpt2-train --allocators naive,caching --time-limit 0 --json -"
    assert json.loads(output(line)) == json.loads(json.dumps(records(found)))
    by_trace = api.fit(catalog.load("gpt2-train"), given, time_limit=0)
    pd.testing.assert_frame_equal(found, by_trace)
    (row,) = api.explain("gpt2-train", "caching", "sim:8GiB").to_dict("records")
    assert row["kind"] == "fragmentation"
    assert "naive" in row["saved_by"]
    assert api.explain("gpt2-train").empty


def test_tune_recommend_and_sweep_are_frames_too() -> None:
    tuned = api.tune("gpt2-train", budget=15)
    assert tuned["allocator"][tuned["best"]].tolist() == [tuned["allocator"].iloc[0]] == ["caching"]
    (least,) = tuned[tuned["least"]].to_dict("records")
    assert least["how"].startswith("export PYTORCH_CUDA_ALLOC_CONF=")
    ranked = api.recommend("gpt2-train", "sim:24GiB", orders=0, budget=0)
    assert ranked["cost"].iloc[1:].dropna().is_monotonic_increasing
    assert ranked.attrs["advice"].chosen in set(ranked["allocator"])
    rows = api.sweep(["good.csv"], ["naive"], ["sim:1GiB"], "s.jsonl", workers=1)
    assert list(rows["workload"]) == ["good"]
    with pytest.raises(UsageError, match="neither a file nor a workload"):
        api.fit("nosuch")


@pytest.mark.parametrize(("line", "shown"), BLOCKS)
def test_the_page_shows_what_the_command_prints(line: str, shown: str) -> None:
    printed = [" ".join(one.split()) for one in output(line).splitlines()]
    wanted = [" ".join(one.split()) for one in shown.splitlines()]
    exact = [one for one in wanted if one and not re.search(r"\d (ns|us)\b|device time: ", one)]
    assert len(exact) >= 3
    assert [one for one in exact if one not in printed] == []


def test_the_page_walks_through_every_question() -> None:
    assert [line.split()[0] for line, _ in BLOCKS] == ["explain", "recommend", "fit", "tune"]
