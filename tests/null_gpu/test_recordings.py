# SPDX-License-Identifier: Apache-2.0
"""`caching` agrees with what PyTorch's own allocator records on a null GPU, kind by kind."""

from pathlib import Path

import pytest

from allocbench.verification.verify import verify, verify_all
from tests.null_gpu import NEWEST, VERSIONS, seen

KINDS = (
    "cold",
    "warm",
    "to_nothing",
    "empty_cache",
    "overflow",
    "streams",
    "two_snapshots",
    "graphs",
    "graph_before",
    "graphs_in_one_pool",
)
POOLS_GIVEN_BACK = ("graph_released", "memory_pool")
"""Only from 2.13 on does a recording name the pool of memory that was given back."""

SMALL = "null:h100,memory=1200MiB,context=512MiB"


def recorded(
    folder: Path, version: str, *kinds: str, on: str = "null:h100", conf: str = ""
) -> list[Path]:
    seen(
        "recordings",
        folder,
        str(folder),
        *kinds,
        on=on,
        version=version,
        PYTORCH_CUDA_ALLOC_CONF=conf,
        PYTORCH_ALLOC_CONF=conf,
    )
    return [folder / f"{kind}.pickle" for kind in kinds]


def agrees(path: Path, version: str, options: str = "") -> None:
    verdict = verify(path, f"caching:version={version.rpartition('.')[0]}{options}")
    assert verdict.exit_code == 0, f"{path.stem}: {verdict.difference or verdict.unknown}"
    found = verdict.agreement
    assert found is not None
    assert found.allocs == found.reserved_equal == found.placed_equal > 40
    assert found.segment_calls == found.segment_calls_equal == found.segment_calls_predicted


@pytest.mark.parametrize("version", VERSIONS)
def test_each_kind_of_recording(version: str, tmp_path: Path) -> None:
    for path in recorded(tmp_path, version, *KINDS):
        agrees(path, version)


@pytest.mark.parametrize("version", VERSIONS)
def test_each_kind_with_expandable_segments(version: str, tmp_path: Path) -> None:
    for path in recorded(tmp_path, version, *KINDS, conf="expandable_segments:True"):
        agrees(path, version)


@pytest.mark.parametrize(
    "conf",
    [
        "",
        "expandable_segments:True",
        "max_split_size_mb:24",
        "roundup_power2_divisions:[1:4,2:8,16:2,>:4]",
    ],
)
@pytest.mark.parametrize("version", VERSIONS)
def test_retries_on_a_small_device(version: str, conf: str, tmp_path: Path) -> None:
    for path in recorded(tmp_path, version, "cold", "warm", on=SMALL, conf=conf):
        agrees(path, version)


@pytest.mark.parametrize(
    ("kind", "conf"),
    [
        ("medium", "large_segment_size_mb:32"),
        ("medium", "large_segment_size_mb:32,expandable_segments:True"),
        ("large", "max_split_size_mb:24,max_non_split_rounding_mb:64"),
    ],
)
def test_settings_of_the_newest(kind: str, conf: str, tmp_path: Path) -> None:
    for path in recorded(tmp_path, NEWEST, kind, conf=conf):
        agrees(path, NEWEST)


def test_the_newest_names_the_pool_of_memory_that_was_given_back(tmp_path: Path) -> None:
    for path in recorded(tmp_path, NEWEST, *POOLS_GIVEN_BACK):
        agrees(path, NEWEST)


def test_older_recordings_lack_it_and_verify_says_so(tmp_path: Path) -> None:
    for path in recorded(tmp_path, "2.11.0", *POOLS_GIVEN_BACK):
        verdict = verify(path)
        assert verdict.exit_code == 1
        assert verdict.difference is not None
        assert "does not name private pools" in verdict.difference.reason


def test_every_device_of_a_recording_is_verified(tmp_path: Path) -> None:
    (path,) = recorded(tmp_path, NEWEST, "two_devices", on="null:h100,count=2")
    found = verify_all(path)
    assert [one.device for one in found] == ["cuda:0", "cuda:1"]
    assert [one.exit_code for one in found] == [0, 0]
    assert verify(path).exit_code == 2
